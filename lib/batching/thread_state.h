// This file has ThreadStateSnapshot, which keeps the state of a thread that each fiber has for itself.
#pragma once
#include <cstdint>

#include "lib/autograd/autocast.h"
#include "lib/tensor/profile.h"
#include "reel/types.h"

namespace reel::batching {

/// A ThreadStateSnapshot holds the state of the thread that is each fiber's own: guards on its stack change it and
/// change it back.
class ThreadStateSnapshot {
 public:
  /// Takes the state of the running fiber, for one that begins now.
  void begin();
  /// Takes the state of the running fiber, which is about to wait.
  void save();
  /// Makes it the thread's again.
  void restore();

 private:
  bool grad_mode_ = true, anomaly_ = false, watching_ = false;
  DType autocast_ = kFloat32;
  ParameterCasts* casts_ = nullptr;
  Device device_ = kCPU;
  profile::OpenEvents events_;
};

/// Returns what the states of fibers must have in common for their calls to be one.
uint64_t current_modes();

}  // namespace reel::batching
