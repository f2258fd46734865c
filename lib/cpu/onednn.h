#pragma once
#include <dnnl.hpp>

// The engine, streams and threads of oneDNN, shared by the kernels that use it.
namespace reel::cpu {

dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();  // of the calling thread

/// While it lives, calls of oneDNN from this thread use num_threads() threads.
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
