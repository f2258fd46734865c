#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Tensors by name, as modules and optimizers save and load them.
namespace reel {

/// Tensors by name, in order: what modules and optimizers save and load.
struct StateDict : std::vector<std::pair<std::string, Tensor>> {
  using vector::vector;
  using vector::operator[];
  using vector::at;
  using vector::erase;
  ///@{
  /// The first tensor of that name; an Error if there is none. Assigning to it changes the dict, not the tensor.
  const Tensor& operator[](std::string_view name) const;
  Tensor& operator[](std::string_view name);
  const Tensor& at(std::string_view name) const { return (*this)[name]; }
  Tensor& at(std::string_view name) { return (*this)[name]; }
  ///@}
  bool contains(std::string_view name) const;  ///< Whether there is a tensor of that name.
  /// Removes the tensors of that name, and returns how many there were.
  size_t erase(std::string_view name) {
    return std::erase_if(*this, [&](const auto& entry) { return entry.first == name; });
  }
};
/// A line for each tensor: its name, dtype and shape.
std::ostream& operator<<(std::ostream& out, const StateDict& dict);

/// The first tensor of that name, nullptr if there is none.
inline const Tensor* find(const StateDict& dict, std::string_view name) {
  for (const auto& [key, tensor] : dict)
    if (key == name) return &tensor;
  return nullptr;
}

inline bool StateDict::contains(std::string_view name) const { return find(*this, name); }
inline const Tensor& StateDict::operator[](std::string_view name) const {
  const Tensor* found = find(*this, name);
  REEL_CHECK(found, "StateDict: there is no '", name, "'");
  return *found;
}
inline Tensor& StateDict::operator[](std::string_view name) { return const_cast<Tensor&>(std::as_const(*this)[name]); }

/// Which tensors of a StateDict or a file are loaded, under which names, and what may not fit. A pretrained body under
/// another head: io::load(net, "body.safetensors", {.ignore_mismatched_sizes = true}).
struct LoadOptions {
  /// Into a module: names that are missing or not expected are an Error. If none of the names fits, so it is without.
  bool strict = true;
  /// Into a module: tensors that are given with another shape are left as they are and listed in
  /// LoadResult::mismatched. Otherwise they are an Error.
  bool ignore_mismatched_sizes = false;
  /// Selects the names to load, all if not given. Of a file, the others' data are not read, and may be of types that no
  /// tensor has: {.keep = [](std::string_view name) { return !name.starts_with("head."); }}
  std::function<bool(std::string_view name)> keep = {};
  /// Loads the names that begin with it, and takes it off: {.prefix = "model."} loads "model.fc.weight" as "fc.weight".
  std::string prefix = {};
  /// Gives the name to load a tensor as, from its name without the prefix. Two of one name are an Error.
  std::function<std::string(std::string_view name)> rename = {};
  /// Compares what is read of a file with its checksums, if it has any, and throws if it is damaged.
  bool verify = true;
  /// Uses the tensors of a safetensors or .pt file where they lie: the file is mapped (mmap) and read where it is
  /// touched, so that loading takes a moment and processes share its memory; the mapping lasts as long as one of the
  /// tensors. They can be changed; the file stays as it is. As long as they are used the file may be replaced by
  /// another one, as io::save and mv do, but not be changed in place: tensors would change with it, and the process
  /// would be killed (SIGBUS) where the file has become shorter or its disk cannot be read. `verify` reads the whole
  /// file once, for files with checksums. Tensors of bool, of types that are converted, and at odd addresses are read.
  bool mmap = false;
};

}  // namespace reel
#pragma GCC visibility pop
