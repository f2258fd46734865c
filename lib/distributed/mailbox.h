#pragma once
#include <algorithm>
#include <list>
#include <span>
#include <vector>

#include "lib/distributed/engine.h"
#include "lib/distributed/text.h"

namespace reel::distributed {

/// What a message says of itself.
struct Header {
  int tag;
  DType dtype;
  uint64_t bytes;
  uint64_t id;  // of its sender's messages
};

/// Brings the messages that have come together with those that are waited for. Not locked.
template <class Waiting, class Arrived>
class Mailbox {
 public:
  /// What waits for this one, nullptr if nothing does: it is kept then.
  Waiting* arrive(int from, const Arrived& arrived) {
    for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
      if ((*waiting)->tag != arrived.header.tag) continue;
      const std::vector<int>& wanted = (*waiting)->from;
      if (std::find(wanted.begin(), wanted.end(), from) == wanted.end()) continue;
      Waiting* const found = *waiting;
      waiting_.erase(waiting);
      return found;
    }
    arrived_.push_back({from, arrived});
    return nullptr;
  }

  /// Calls take(from, arrived) with the first that has come, or keeps `waiting` until it comes.
  template <class Take>
  void wait_for(Waiting* waiting, const Take& take) {
    for (auto entry = arrived_.begin(); entry != arrived_.end(); ++entry) {
      if (entry->arrived.header.tag != waiting->tag) continue;
      if (std::find(waiting->from.begin(), waiting->from.end(), entry->from) == waiting->from.end()) continue;
      const Entry found = *entry;
      arrived_.erase(entry);
      take(found.from, found.arrived);
      return;
    }
    waiting_.push_back(waiting);
  }

  void forget(Waiting* waiting) { waiting_.remove(waiting); }
  template <class Which>
  void forget_if(const Which& which) {
    arrived_.remove_if([&](const Entry& entry) { return which(entry.arrived); });
  }

 private:
  struct Entry {
    int from;
    Arrived arrived;
  };
  std::list<Waiting*> waiting_;
  std::list<Entry> arrived_;
};

/// Of a message that is not what was waited for.
inline Error wrong_message(int from, const Header& header, size_t bytes, DType dtype) {
  const auto elements = [](uint64_t size, DType type) { return size / static_cast<uint64_t>(size_of(type)); };
  return Error(
      Error::kMismatch,
      concat("recv of ", elements(bytes, dtype), " elements of ", name_of(dtype), " with tag ", header.tag, ": rank ",
             from, " of the group has sent ", elements(header.bytes, header.dtype), " of ", name_of(header.dtype)),
      {from});
}

}  // namespace reel::distributed
