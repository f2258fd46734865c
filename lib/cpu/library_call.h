// A fork waits until no call of OpenBLAS or oneDNN is on its way.
// These libraries have locks, which a fork by another thread would leave locked in the child, and static objects,
// which they destroy at the end of the process, when threads and destructors of the program may still compute.
#pragma once

namespace reel::cpu {

/// An OpenblasCall lives as long as a call of OpenBLAS, or of LAPACK, which is part of it. At the very end of the
/// process the calls of other threads wait for that end.
class OpenblasCall {
 public:
  OpenblasCall();
  ~OpenblasCall();
  OpenblasCall(const OpenblasCall&) = delete;
  OpenblasCall& operator=(const OpenblasCall&) = delete;
};

/// An OnednnCall lives as long as a call of oneDNN. While it lives, oneDNN uses no thread but this one: its
/// threads wait for one another by spinning, also for one whose core another process has, and for ever if OpenMP grants
/// fewer than it has been told.
class OnednnCall {
 public:
  OnednnCall();
  ~OnednnCall();
  OnednnCall(const OnednnCall&) = delete;
  OnednnCall& operator=(const OnednnCall&) = delete;
  /// It is false where the process is ending: oneDNN must not be used any more.
  explicit operator bool() const { return entered_; }
  /// Keeps static objects of oneDNN's, which a call of a new kind may have made, until further calls have become false.
  /// It is called after such a call.
  static void outlive_what_it_made();

 private:
  const bool entered_;
  int threads_before_ = 0;
};

}  // namespace reel::cpu
