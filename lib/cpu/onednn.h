#pragma once
#include <dnnl.hpp>

// What the kernels that oneDNN carries out share.
namespace reel::cpu {

dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();  // of the calling thread

/// While it lives, oneDNN uses num_threads() threads for what the calling thread asks of it.
class OnednnThreads {
 public:
  OnednnThreads();
  ~OnednnThreads();
  OnednnThreads(const OnednnThreads&) = delete;
  OnednnThreads& operator=(const OnednnThreads&) = delete;

 private:
  int before_;
};

}  // namespace reel::cpu
