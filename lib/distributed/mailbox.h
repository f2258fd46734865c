#pragma once
#include <algorithm>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "lib/distributed/engine.h"

namespace reel::distributed {

/// What a message says of itself.
struct Header {
  int tag;
  DType dtype;
  uint64_t bytes;
  uint64_t id;  // of its sender's messages
};

/// A message that is waited for, and the memory that it goes to.
struct Receiving {
  std::vector<int> from;  // any of these ranks
  int tag = 0;
  void* data = nullptr;
  size_t bytes = 0;
  DType dtype = kFloat32;
  int sender = -1;  // once it is complete
  std::optional<Error> error = {};
};

/// Brings the messages that have come together with those that are waited for. Not locked.
template <class Arrived>
class Mailbox {
 public:
  /// What waits for this one, nullptr if nothing does: it is kept then.
  Receiving* arrive(int from, const Arrived& arrived) {
    for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
      if ((*waiting)->tag != arrived.header.tag) continue;
      const std::vector<int>& wanted = (*waiting)->from;
      if (std::find(wanted.begin(), wanted.end(), from) == wanted.end()) continue;
      Receiving* const found = *waiting;
      waiting_.erase(waiting);
      return found;
    }
    arrived_.push_back({from, arrived});
    return nullptr;
  }

  /// Calls take(from, arrived) with the first that has come, or keeps `waiting` until it comes.
  template <class Take>
  void wait_for(Receiving* waiting, const Take& take) {
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

  void forget(Receiving* waiting) { waiting_.remove(waiting); }
  template <class Which>
  void forget_if(const Which& which) {
    arrived_.remove_if([&](const Entry& entry) { return which(entry.arrived); });
  }

 private:
  struct Entry {
    int from;
    Arrived arrived;
  };
  std::list<Receiving*> waiting_;
  std::list<Entry> arrived_;
};

/// Of a message that is not what was waited for.
inline Error wrong_message(int from, const Header& header, size_t bytes, DType dtype) {
  const auto elements = [](uint64_t size, DType type) { return size / static_cast<uint64_t>(size_of(type)); };
  return Error(Error::kMismatch,
               detail::concat("recv of ", elements(bytes, dtype), " elements of ", name_of(dtype), " with tag ",
                              header.tag, ": rank ", from, " of the group has sent ",
                              elements(header.bytes, header.dtype), " of ", name_of(header.dtype)),
               {from});
}

}  // namespace reel::distributed
