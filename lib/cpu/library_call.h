// Calls of OpenBLAS and oneDNN, of which a fork waits for the end.
// These libraries have locks, which a fork by another thread would leave locked in the child, and static objects,
// which they destroy at the end of the process, when threads and destructors of the program may still compute.
#pragma once

namespace reel::cpu {

/// A call of OpenBLAS, or of LAPACK, which is part of it. A fork waits until none is on its way. At the very end of the
/// process those of other threads wait for the end.
class OpenblasCall {
 public:
  OpenblasCall();
  ~OpenblasCall();
  OpenblasCall(const OpenblasCall&) = delete;
  OpenblasCall& operator=(const OpenblasCall&) = delete;
};

/// A call of oneDNN. A fork waits until none is on its way. While it lives, oneDNN uses no thread but this one: its
/// threads wait for one another by spinning, also for one whose core another process has, and for ever if OpenMP grants
/// fewer than it has been told.
class OnednnCall {
 public:
  OnednnCall();
  ~OnednnCall();
  OnednnCall(const OnednnCall&) = delete;
  OnednnCall& operator=(const OnednnCall&) = delete;
  /// False where the process is ending: oneDNN must not be used any more.
  explicit operator bool() const { return entered_; }
  /// To be called after what may have made static objects of oneDNN's, a call of a new kind: they are destroyed only
  /// after further calls have become false.
  static void outlive_what_it_made();

 private:
  const bool entered_;
  int threads_before_ = 0;
};

}  // namespace reel::cpu
