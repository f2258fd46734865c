#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reel/error.h"

#pragma GCC visibility push(default)
/// The Error that ends a job of several processes.
namespace reel::distributed {

/// What ends a job of several processes. Every rank gets one that names the first cause: the rank that died, stopped
/// answering, or called something else. A group is dead after its first Error; all its later calls throw that again.
struct Error : reel::Error {
  /// What has happened.
  enum Kind {
    kTimeout,    ///< An op or a rendezvous took longer than the timeout; `ranks` had not come.
    kPeerLost,   ///< `ranks` died, missed their heartbeats or left early.
    kStoreLost,  ///< The connection to the store was lost: the machine that hosts it, or this one, is cut off.
    kMismatch,   ///< Ranks called different collectives, or the same with other sizes; the message prints each call.
    kAborted,    ///< A rank gave up: an exception in its own code, or ProcessGroup::abort().
  };

  /// `sequence` is the number of the collective in its group, from 1, 0 if it was none.
  Error(Kind kind_, const std::string& message, std::vector<int> ranks_ = {}, uint64_t sequence_ = 0)
      : reel::Error(message), kind(kind_), ranks(std::move(ranks_)), sequence(sequence_) {}

  Kind kind;               ///< What has happened.
  std::vector<int> ranks;  ///< Ranks of the whole job that are to blame, in ascending order; empty if unknown.
  uint64_t sequence;       ///< The collective that noticed.
};

}  // namespace reel::distributed
#pragma GCC visibility pop
