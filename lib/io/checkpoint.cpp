#include "reel/io/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lib/io/tensor_file.h"
#include "reel/ops/rnn.h"
#include "reel/random.h"

// Checkpoints: one safetensors file with the state_dict of every part (model, optimizer, …), named "part.key", and the
// state of the generator; its metadata hold a version and the list of parts. Loading either succeeds or leaves all
// parts as they were. It takes no more memory than the file has bytes: while a part is loaded only its own tensors are
// read, and copied are the old states of the parts before it.
namespace reel::io {
namespace {

constexpr const char *kVersionKey = "reel.checkpoint", *kPartsKey = "reel.parts", *kVersion = "2";
constexpr const char* kGenerator = "generator";

StateDict generator_dict() {
  const GeneratorState state = generator_state();
  const auto number = [](uint64_t value) {
    return full({}, static_cast<int64_t>(value), {.dtype = kInt64, .device = kCPU});
  };
  return {{"seed", number(state.seed)}, {"offset", number(state.offset)}};
}

GeneratorState to_generator(const StateDict& dict) {
  const auto number = [&](const char* name) {
    const Tensor* value = find(dict, name);
    REEL_CHECK(dict.size() == 2 && value && value->dtype() == kInt64 && value->numel() == 1,
               "it is not the state of a generator");
    return static_cast<uint64_t>(value->item<int64_t>());
  };
  return {.seed = number("seed"), .offset = number("offset")};
}

StateDict copy_of(StateDict dict) {
  for (auto& [name, tensor] : dict) tensor = tensor.detach().clone();
  return dict;
}

/// Throws the exception that is being handled again if it reports a lack of memory.
void rethrow_out_of_memory() {
  try {
    throw;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
  }
}

/// Returns the message of the exception that is being handled.
std::string what_is_thrown() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string joined(const auto& names, const char* by = ",") {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : by) + name;
  return text;
}

using Variables = std::initializer_list<std::pair<const char*, Tensor*>>;
StateDict tensors_of(const Variables& variables) {
  StateDict dict;
  for (const auto& [name, tensor] : variables)
    if (tensor->defined()) dict.emplace_back(name, *tensor);
  return dict;
}
void replace(const Variables& variables, const StateDict& dict) {
  for (const auto& entry : dict) {
    const auto same = [&](const auto& variable) { return variable.first == entry.first; };
    if (std::none_of(variables.begin(), variables.end(), same)) reel::detail::fail("unexpected: ", entry.first);
  }
  for (const auto& [name, tensor] : variables) {
    const Tensor* given = find(dict, name);
    *tensor = !given ? Tensor() : tensor->defined() ? given->to(tensor->device()) : given->to(default_device());
  }
}

}  // namespace

void Checkpoint::add_part(Part part) {
  REEL_CHECK(!part.name.empty() && part.name.find_first_of(".,") == std::string::npos && part.name != kGenerator,
             "Checkpoint::add: a part cannot be named '", part.name, "'");
  for (const Part& other : parts_)
    REEL_CHECK(other.name != part.name, "Checkpoint::add: there is a part '", part.name, "' already");
  parts_.push_back(std::move(part));
}

Checkpoint& Checkpoint::add(std::string name, Tensor& tensor) {
  add_part({std::move(name),
            [&tensor] {
              return tensors_of({{"value", &tensor}});
            },
            [&tensor](const StateDict& dict) {
              replace({{"value", &tensor}}, dict);
            }});
  return *this;
}
Checkpoint& Checkpoint::add(std::string name, CellState& state) {
  add_part({std::move(name),
            [&state] {
              return tensors_of({{"h", &state.h}, {"c", &state.c}});
            },
            [&state](const StateDict& dict) {
              replace({{"h", &state.h}, {"c", &state.c}}, dict);
            }});
  return *this;
}

StateDict Checkpoint::parts_of(long double number) {
  const auto high = static_cast<double>(number), low = static_cast<double>(number - high);
  REEL_CHECK(static_cast<long double>(high) + low == number, "Checkpoint::save: the long double ", number,
             " is not the sum of two doubles");
  return {{"value", tensor({high, low}, {.dtype = kFloat64, .device = kCPU})}};
}
StateDict Checkpoint::parts_of(uint64_t number) {
  const auto high = static_cast<int64_t>(number >> 32), low = static_cast<int64_t>(number & 0xffffffff);
  return {{"value", tensor({high, low}, {.dtype = kInt64, .device = kCPU})}};
}
void Checkpoint::check_exact(Scalar given, Scalar held) {
  const bool exact = !given.is_floating_point() ? held.fits<int64_t>() && held.to<int64_t>() == given.to<int64_t>()
                     : held.is_floating_point() ? std::isfinite(held.to<double>()) || !std::isfinite(given.to<double>())
                                                : held.to<double>() == given.to<double>();
  REEL_CHECK(exact, "the number ", Tensor(given).to_string(), " is not one that the variable can hold");
}

void Checkpoint::save(const std::filesystem::path& path, const Metadata& metadata,
                      CheckpointSaveOptions options) const {
  REEL_CHECK(options.keep > 0, "Checkpoint::save: ", options.keep, " files to keep");
  for (const auto& [key, value] : metadata)
    REEL_CHECK(!key.starts_with("reel."), "Checkpoint::save: metadata of one's own cannot be named '", key, "'");
  StateDict all;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const StateDict& dict) {
    names.push_back(name);
    for (const auto& [key, tensor] : dict) all.emplace_back(name + "." + key, tensor);
  };
  for (const Part& part : parts_) add(part.name, part.state());
  add(kGenerator, generator_dict());
  Metadata complete = metadata;
  complete[kVersionKey] = kVersion;
  complete[kPartsKey] = joined(names);  // parts without tensors are in no tensor's name
  io::save(all, path, complete, options.keep);
}

std::optional<LoadedCheckpoint> Checkpoint::load_newest(const std::filesystem::path& path, CheckpointOptions options) {
  constexpr int kMaxMissing = 2;  // a process may have been killed between two renames
  std::vector<std::string> damaged;
  std::error_code error;
  for (int i = 0, missing = 0; missing <= kMaxMissing; ++i) {
    const std::filesystem::path file = kept_file(path, i);
    if (!std::filesystem::exists(file, error)) {
      ++missing;
      continue;
    }
    if (options.verify) try {
        TensorFile(file).verify();
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const Error& problem) {
        damaged.push_back(problem.what());
        continue;
      }
    Metadata metadata = load(file, options);
    return LoadedCheckpoint{file, std::move(metadata), std::move(damaged)};
  }
  REEL_CHECK(damaged.empty(), "Checkpoint::load_newest: no file can be read: ", joined(damaged, "; "));
  return {};
}

Metadata Checkpoint::load(const std::filesystem::path& path, CheckpointOptions options) {
  const TensorFile tensors(path, options.verify);
  Metadata metadata = tensors.metadata();
  const std::string file = path.string();
  const auto version = metadata.extract(kVersionKey), listed = metadata.extract(kPartsKey);
  REEL_CHECK(version && listed, file, ": not a checkpoint, its metadata name no version");
  REEL_CHECK(version.mapped() == kVersion, file, ": a checkpoint of version ", version.mapped().substr(0, 20),
             ", this is version ", kVersion);
  REEL_CHECK(tensors.has_checksums() || !options.verify, file, ": byte 8: its metadata have no checksums");

  std::set<std::string> names;
  for (std::string_view rest = listed.mapped(); !rest.empty();) {
    const size_t comma = rest.find(',');
    names.emplace(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  for (const TensorEntry& entry : tensors.entries()) {
    const size_t dot = entry.name.find('.');
    REEL_CHECK(dot != std::string::npos && names.contains(entry.name.substr(0, dot)), file, ": '",
               entry.name.substr(0, 200), "' belongs to none of its parts");
  }

  std::vector<std::string> missing, unexpected;
  for (const Part& part : parts_)
    if (!names.contains(part.name)) missing.push_back(part.name);
  if (options.strict && !names.contains(kGenerator)) missing.push_back(kGenerator);
  for (const std::string& name : names)
    if (name != kGenerator &&
        std::none_of(parts_.begin(), parts_.end(), [&name](const Part& p) { return p.name == name; }))
      unexpected.push_back(name);
  REEL_CHECK(missing.empty() && (unexpected.empty() || !options.strict), file,
             ": the checkpoint does not fit; missing: ", joined(missing), "; unexpected: ", joined(unexpected));

  const auto read = [&](const std::string& part) { return tensors.load({.prefix = part + "."}); };
  const GeneratorState own_generator = generator_state();
  std::vector<std::pair<const Part*, StateDict>> before;
  before.reserve(parts_.size());
  std::string at = kGenerator;
  try {
    const GeneratorState generator = options.strict ? to_generator(read(kGenerator)) : own_generator;
    for (const Part& part : parts_) {
      at = part.name;
      StateDict old = &part == &parts_.back() ? StateDict() : copy_of(part.state());  // nothing fails after the last
      part.load(read(part.name));
      before.emplace_back(&part, std::move(old));
    }
    set_generator_state(generator);
  } catch (...) {
    std::string lost;
    for (const auto& [part, state] : before) try {
        part->load(state);
      } catch (...) {
        lost += "; " + part->name + " could not be restored: " + what_is_thrown();
      }
    set_generator_state(own_generator);
    if (lost.empty()) rethrow_out_of_memory();
    reel::detail::fail(file, ": ", at, ": ", what_is_thrown(), lost);
  }
  return metadata;
}

}  // namespace reel::io
