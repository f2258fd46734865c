// Runs the code of all pages, in an empty folder that is removed at the end.
#include <unistd.h>

#include "samples/guide/guide.h"

int main() try {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("reel-guide-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  for (const auto page : {tour, tensors, gradients, model, data_sets, training, finetune, onnx_files, trees, sequences,
                          custom_ops, gpu, many_machines, from_pytorch, deploy}) {
    reel::manual_seed(1);
    page();
  }
  std::filesystem::current_path(folder.parent_path());
  std::filesystem::remove_all(folder);
  std::cout << "all pages ran\n";
} catch (const std::exception& e) {
  std::cerr << "guide: " << e.what() << '\n';
  return 1;
}
