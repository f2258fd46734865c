#pragma once
#include <dnnl.hpp>
#include <utility>

#include "lib/cpu/library_call.h"

// The engine and streams of oneDNN, shared by the kernels that use it.
namespace reel::cpu {

dnnl::engine& onednn_engine();
dnnl::stream& onednn_stream();  // of the calling thread

/// An OnednnState holds objects of oneDNN's that a thread keeps. They are not destroyed if oneDNN has ended before the
/// thread does.
template <class T>
struct OnednnState {
  T* const state = new T;
  OnednnState() = default;
  OnednnState(const OnednnState&) = delete;
  OnednnState& operator=(const OnednnState&) = delete;
  ~OnednnState() {
    if (const OnednnCall call; call) delete state;
  }
};

}  // namespace reel::cpu
