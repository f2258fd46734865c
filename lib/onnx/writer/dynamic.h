// Dynamic holds the dynamic dimensions of a model that is exported, and the sizes at which it is run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reel/onnx/save.h"
#include "reel/tensor.h"

namespace reel::onnx::writer {

/// A Number has a value in each run: a size, say.
using Number = std::vector<int64_t>;

/// Dynamic has the dynamic dimensions by name, and the sizes that they have in the runs of the model.
class Dynamic {
 public:
  Dynamic(TensorList inputs, const std::vector<DynamicDim>& dims);

  const std::vector<std::vector<std::string>>& names() const {
    return names_;
  }                                              ///< The name of each dimension of each input, or "".
  size_t count() const { return dims_.size(); }  ///< How many names there are.
  /// Returns whether save() chooses the sizes of a name, not the caller.
  bool is_free(size_t name) const { return dims_[name].is_free; }

  size_t runs() const { return dims_.empty() ? 2 : dims_[0].sizes.size(); }  ///< The first is of the example.
  std::vector<int64_t> sizes(size_t run) const;                              ///< The sizes of all names in a run.
  std::string show(const std::vector<int64_t>& sizes) const;                 ///< "batch = 3, len = 5"
  std::string find(const Number& sizes) const;  ///< The name of the dimension with these sizes in the runs, or "".
  /// Returns the examples in these sizes, with their elements repeated. They are always copies.
  std::vector<Tensor> inputs(TensorList examples, const std::vector<int64_t>& sizes) const;

 private:
  struct Dim {
    std::string name;
    Number sizes;  // in each run
    bool is_free;
  };
  void choose_sizes();
  void check_sizes() const;

  std::vector<std::vector<std::string>> names_;
  std::vector<Dim> dims_;
};

}  // namespace reel::onnx::writer
