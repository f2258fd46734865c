#pragma once
#include <concepts>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/io/safetensors.h"
#include "reel/state_dict.h"

#pragma GCC visibility push(default)
namespace reel {
struct CellState;
}  // namespace reel
/// Checkpoints: the whole state of a training run in one file.
namespace reel::io {

/// Anything with state_dict() and load_state_dict(): modules, optimizers, schedulers, samplers, data loaders.
/// load_state_dict() loads everything, or throws and changes nothing.
template <class T>
concept Stateful = requires(const T& object, T& target, const StateDict& dict) {
  { object.state_dict() } -> std::convertible_to<StateDict>;
  target.load_state_dict(dict);
};

/// Of Checkpoint::load.
struct CheckpointOptions {
  /// Throw if the file has parts that were not added. With false such parts, and the generator's state, are skipped: to
  /// load the model alone.
  bool strict = true;
  /// Throw if the file is damaged: if it is not what its checksums say, or has none. With false it is loaded as it is.
  bool verify = true;
};

/// Of Checkpoint::save.
struct CheckpointSaveOptions {
  /// How many files there are in the end: `path`, which is the newest, and those that it was before, whose names have
  /// 1, 2, … before the extension: "run.1.safetensors". Older ones are removed; with 1 no such name is touched.
  int keep = 1;
};

/// What Checkpoint::load_newest has found.
struct LoadedCheckpoint {
  std::filesystem::path path;        ///< The file that was loaded.
  Metadata metadata;                 ///< The user's, in it.
  std::vector<std::string> damaged;  ///< For each newer file, why it could not be read.
};

/// Everything that a training run needs to resume, in one file:
///
///   io::Checkpoint checkpoint;
///   checkpoint.add("model", net).add("optimizer", adam).add("data", loader);
///   checkpoint.load_newest("run.safetensors");
///   while (loader.epoch() < 5)
///     for (auto [x, y] : loader) {
///       …
///       if (loader.position() % 100 == 0) checkpoint.save("run.safetensors", {{"note", "baseline"}}, {.keep = 2});
///     }
///
/// The calling thread's random generator is part of every checkpoint. A run that is killed and resumed continues bit
/// for bit. The file is a safetensors file of tensors "model.hidden.weight", "optimizer.state.0.step",
/// "generator.seed", …; its metadata hold the user's and "reel.checkpoint", the version of this arrangement.
class Checkpoint {
 public:
  /// Adds a part, which must outlive the checkpoint. A name is not empty, holds no '.' and no ',', is not "generator",
  /// and is used once.
  template <Stateful T>
  Checkpoint& add(std::string name, T& object) {
    add_part({std::move(name), [&object]() -> StateDict { return object.state_dict(); },
              [&object](const StateDict& dict) { object.load_state_dict(dict); }});
    return *this;
  }

  ///@{
  /// Adds a variable of the run, with which it is loaded: the state that a recurrent net carries over, a best loss, a
  /// number of steps. A tensor may be undefined, and is replaced by what the file has, on the device that it is on. A
  /// number that the variable cannot hold, such as 2.7 or 2^40 for an int, is an Error; a float variable takes the
  /// nearest value to a double.
  Checkpoint& add(std::string name, Tensor& tensor);
  Checkpoint& add(std::string name, CellState& state);
  template <class Number>
  requires std::is_arithmetic_v<Number> Checkpoint& add(std::string name, Number& number) {
    add_part({std::move(name), [&number] { return state_of(number); },
              [&number](const StateDict& dict) { number = number_of<Number>(dict); }});
    return *this;
  }
  ///@}

  /// Writes all parts as io::save does: atomically, so that a crash leaves either the old file or the new one. Keys of
  /// the metadata that begin with "reel." are an Error. `path` is there at any time, also where older files are kept.
  void save(const std::filesystem::path& path, const Metadata& metadata = {}, CheckpointSaveOptions options = {}) const;

  /// Restores the saved state of all parts, in the order in which they were added, and returns the user's metadata. All
  /// or nothing: anything that does not fit, and any bit that has changed since the file was written, is an Error that
  /// names the file and the part. Parts that had been loaded by then are restored; one that throws while it is restored
  /// is named, too. Takes no more memory than the file has bytes, beside what the parts keep.
  Metadata load(const std::filesystem::path& path, CheckpointOptions options = {});

  /// Loads the newest of the files that save() has kept which is not damaged, as load() does; nothing if there are
  /// none. Throws if none of those that there are can be read, or if one can be read and does not fit.
  std::optional<LoadedCheckpoint> load_newest(const std::filesystem::path& path, CheckpointOptions options = {});

 private:
  // A number is one element, bool, int64 or float64, or two where none of these has its value: the upper and the lower
  // half of 64 bits, or a double and what it lacks of a long double.
  template <class Number>
  static StateDict state_of(Number number) {
    constexpr bool kFloats = std::is_floating_point_v<Number>;
    if constexpr (std::is_same_v<Number, long double>)
      if (static_cast<double>(number) != number && number == number) return parts_of(number);
    if constexpr (std::is_unsigned_v<Number> && sizeof(Number) == sizeof(uint64_t))
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return parts_of(uint64_t{number});
    constexpr DType kDType = kFloats ? kFloat64 : std::is_same_v<Number, bool> ? kBool : kInt64;
    return {{"value", full({}, number, {.dtype = kDType, .device = kCPU})}};
  }
  static StateDict parts_of(long double number);
  static StateDict parts_of(uint64_t number);
  static void check_exact(Scalar given, Scalar held);
  template <class Number>
  static Number number_of(const StateDict& dict) {
    const Tensor& value = dict["value"];
    if (value.numel() == 2) {
      if constexpr (std::is_floating_point_v<Number>) {
        if (value.dtype() == kFloat64)
          return static_cast<Number>(static_cast<long double>(value[0].item<double>()) + value[1].item<double>());
      } else if constexpr (std::is_unsigned_v<Number> && sizeof(Number) == sizeof(uint64_t)) {
        if (value.dtype() == kInt64) return value[0].item<Number>() << 32 | value[1].item<uint32_t>();
      }
      REEL_CHECK(false, "the number, of two parts of ", value.dtype(), ", is not one that the variable can hold");
    }
    const Scalar given = value.item();
    const auto number = given.to<Number>("the number");
    check_exact(given, number);
    return number;
  }
  struct Part {
    std::string name;
    std::function<StateDict()> state;
    std::function<void(const StateDict&)> load;
  };
  void add_part(Part part);

  std::vector<Part> parts_;
};

}  // namespace reel::io
#pragma GCC visibility pop
