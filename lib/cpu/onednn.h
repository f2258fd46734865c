#pragma once
#include <dnnl.hpp>

// The engine and streams of oneDNN, shared by the kernels that use it.
namespace reel::cpu {

dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();  // of the calling thread

/// While it lives, calls of oneDNN from this thread use no other: its threads wait for one another by spinning, also
/// for one whose core another process has, and for ever if OpenMP grants fewer than it has been told.
class SingleThreadOnednn {
 public:
  SingleThreadOnednn();
  ~SingleThreadOnednn();
  SingleThreadOnednn(const SingleThreadOnednn&) = delete;
  SingleThreadOnednn& operator=(const SingleThreadOnednn&) = delete;

 private:
  int before_;
};

}  // namespace reel::cpu
