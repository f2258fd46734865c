#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "lib/base/per_thread.h"

// Caches of execution plans: the heuristics of cuBLASLt and cuDNN take longer than a small problem itself, and a
// program repeats its problems.
namespace reel::cuda {

/// The numbers that identify a problem: sizes, strides, alignments, types.
template <size_t N>
using PlanKey = std::array<int64_t, N>;
struct PlanHash {
  template <size_t N>
  size_t operator()(const PlanKey<N>& key) const {
    uint64_t hash = 14695981039346656037u;  // FNV-1a, a word at a time
    for (const int64_t word : key) hash = (hash ^ static_cast<uint64_t>(word)) * 1099511628211u;
    return hash ^ hash >> 32;
  }
};

/// A least-recently-used cache of at most `capacity` plans, not counting those that a captured graph may run: they
/// stay. A hit allocates nothing. Not synchronized: each thread has its own.
template <size_t N, class Plan>
class Plans {
 public:
  explicit Plans(size_t capacity) : capacity_(capacity) {}

  /// The plan for `key`, or else a new one: Plan(arguments…). One that says it does not last() is made anew.
  template <class... A>
  Plan& get(const PlanKey<N>& key, const A&... arguments) {
    if (const auto found = places_.find(key); found != places_.end()) {
      const auto place = found->second;
      if (lasts(place->second)) {
        if (capturing() || place->first.captured) [[unlikely]]
          return keep(place);
        entries_.splice(entries_.begin(), entries_, place);
        return place->second;
      }
      places_.erase(found);
      (place->first.captured ? captured_ : entries_).erase(place);
    }
    entries_.emplace_front(std::piecewise_construct, std::forward_as_tuple(Id{key}),
                           std::forward_as_tuple(arguments...));
    places_.emplace(key, entries_.begin());
    if (capturing()) return keep(entries_.begin());
    if (entries_.size() > capacity_) {
      places_.erase(entries_.back().first.key);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

  /// Makes the plan for `key` that for `other`, unless there is one.
  void rename(const PlanKey<N>& key, const PlanKey<N>& other) {
    const auto found = places_.find(key);
    if (found == places_.end() || !places_.emplace(other, found->second).second) return;
    found->second->first.key = other;
    places_.erase(key);
  }

 private:
  struct Id {
    PlanKey<N> key;
    bool captured = false;
  };
  using Entries = std::list<std::pair<Id, Plan>>;

  Plan& keep(typename Entries::iterator place) {
    if (!std::exchange(place->first.captured, true)) captured_.splice(captured_.begin(), entries_, place);
    return place->second;
  }
  static bool lasts(const Plan& plan) {
    if constexpr (requires { plan.lasts(); }) return plan.lasts();
    return true;
  }
  size_t capacity_;
  Entries entries_;   // most recently used first
  Entries captured_;  // of graphs
  std::unordered_map<PlanKey<N>, typename Entries::iterator, PlanHash> places_;
};

/// The calling thread's L for its current device: a library's handle and the plans made with it. When the thread ends,
/// its L goes to a list from which the next new thread takes it. It is never destroyed: destroying a library's handle
/// synchronizes the device, which would invalidate the capture of a graph in any thread.
template <class L>
L& of_this_thread() {
  struct Idle {
    std::mutex mutex;
    std::array<std::vector<L*>, kMaxDevices> of_device;
  };
  static Idle& idle = *new Idle;
  struct Own {
    std::array<L*, kMaxDevices> of_device{};
    ~Own() {
      std::lock_guard lock(idle.mutex);
      for (size_t device = 0; device < kMaxDevices; ++device)
        if (of_device[device]) idle.of_device[device].push_back(of_device[device]);
    }
  };
  static constinit thread_local PerThread<Own> own;
  const auto device = static_cast<size_t>(std::max(current.device, 0));
  L*& mine = own->of_device[device];
  if (mine) [[likely]]
    return *mine;
  {
    std::lock_guard lock(idle.mutex);
    if (std::vector<L*>& all = idle.of_device[device]; !all.empty()) {
      mine = all.back();
      all.pop_back();
      return *mine;
    }
  }
  const RelaxedCaptureGuard guard;
  return *(mine = new L);
}

/// The largest power of two, up to 256, that divides an address.
inline int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<int64_t>(address & -address);
}

}  // namespace reel::cuda
