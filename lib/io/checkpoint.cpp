#include "reel/io/checkpoint.h"

#include <algorithm>
#include <map>

#include "reel/random.h"

// Checkpoints: one safetensors file with the state_dict of every part (model, optimizer, …), named "part.key", and the
// state of the generator; its metadata hold a version and the list of parts. Loading either succeeds or leaves all
// parts as they were.
namespace reel::io {
namespace {

constexpr const char *kVersionKey = "reel.checkpoint", *kPartsKey = "reel.parts", *kVersion = "1";
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

/// Of the exception that is being handled.
std::string what_is_thrown() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string joined(const auto& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

void Checkpoint::add_part(Part part) {
  REEL_CHECK(!part.name.empty() && part.name.find_first_of(".,") == std::string::npos && part.name != kGenerator,
             "Checkpoint::add: a part cannot be named '", part.name, "'");
  for (const Part& other : parts_)
    REEL_CHECK(other.name != part.name, "Checkpoint::add: there is a part '", part.name, "' already");
  parts_.push_back(std::move(part));
}

void Checkpoint::save(const std::filesystem::path& path, Metadata metadata) const {
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
  metadata[kVersionKey] = kVersion;
  metadata[kPartsKey] = joined(names);  // parts without tensors are in no tensor's name
  io::save(all, path, metadata);
}

Metadata Checkpoint::load(const std::filesystem::path& path, CheckpointOptions options) {
  Metadata metadata;
  const StateDict all = io::load(path, &metadata);
  const std::string file = path.string();
  const auto version = metadata.extract(kVersionKey), listed = metadata.extract(kPartsKey);
  REEL_CHECK(version && listed, file, ": not a checkpoint, its metadata name no version");
  REEL_CHECK(version.mapped() == kVersion, file, ": a checkpoint of version ", version.mapped().substr(0, 20),
             ", this is version ", kVersion);

  std::map<std::string, StateDict> dicts;
  for (std::string_view rest = listed.mapped(); !rest.empty();) {
    const size_t comma = rest.find(',');
    dicts[std::string(rest.substr(0, comma))];
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  for (const auto& [name, tensor] : all) {
    const size_t dot = name.find('.');
    const auto part = dot == std::string::npos ? dicts.end() : dicts.find(name.substr(0, dot));
    REEL_CHECK(part != dicts.end(), file, ": '", name.substr(0, 200), "' belongs to none of its parts");
    part->second.emplace_back(name.substr(dot + 1), tensor);
  }

  std::vector<std::string> missing, unexpected;
  for (const Part& part : parts_)
    if (!dicts.contains(part.name)) missing.push_back(part.name);
  if (options.strict && !dicts.contains(kGenerator)) missing.push_back(kGenerator);
  for (const auto& [name, dict] : dicts)
    if (name != kGenerator &&
        std::none_of(parts_.begin(), parts_.end(), [&name = name](const Part& p) { return p.name == name; }))
      unexpected.push_back(name);
  REEL_CHECK(missing.empty() && (unexpected.empty() || !options.strict), file,
             ": the checkpoint does not fit; missing: ", joined(missing), "; unexpected: ", joined(unexpected));

  const GeneratorState own_generator = generator_state();
  std::vector<std::pair<const Part*, StateDict>> before;
  std::string at = kGenerator;
  try {
    const GeneratorState generator = options.strict ? to_generator(dicts[kGenerator]) : own_generator;
    for (const Part& part : parts_) {
      at = part.name;
      before.emplace_back(&part, copy_of(part.state()));
      part.load(dicts[part.name]);
    }
    set_generator_state(generator);
  } catch (...) {
    std::string problem = what_is_thrown();
    for (const auto& [part, state] : before) try {
        part->load(state);
      } catch (...) {
        problem += "; " + part->name + " could not be restored either: " + what_is_thrown();
      }
    set_generator_state(own_generator);
    reel::detail::fail(file, ": ", at, ": ", problem);
  }
  return metadata;
}

}  // namespace reel::io
