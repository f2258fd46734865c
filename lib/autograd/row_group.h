// RowGroup records which calls of a group, made as one, take part in a backward pass.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "lib/autograd/tape.h"
#include "lib/device/allocator.h"

namespace reel {

/// A RowGroup stands for calls that were made as one, each with rows of its own, in backward passes. A call whose
/// results get no gradient in a pass has no part in that pass: its arguments get none either (which is not the same as
/// zeros), and what is recorded of the calls is kept, since a later pass may begin at this one.
class RowGroup {
 public:
  /// A set of results of a call has a bit for each of the first 7 results, and one for all others.
  using Results = uint8_t;
  static constexpr Results kAllResults = 0xff;
  static Results result(size_t i) { return static_cast<Results>(1u << std::min<size_t>(i, 7)); }

  /// A Ref is a counted reference, or none. It is not thread-safe: a graph belongs to one thread at a time.
  class Ref {
   public:
    Ref() = default;
    explicit Ref(RowGroup* group) : group_(group) {
      if (group_) ++group_->refs_;
    }
    Ref(const Ref& other) : Ref(other.group_) {}
    Ref(Ref&& other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
    Ref& operator=(Ref other) noexcept { return std::swap(group_, other.group_), *this; }
    ~Ref() {
      if (group_ && --group_->refs_ == 0) release_cpu(group_, bytes_for(group_->calls_));
    }
    explicit operator bool() const { return group_; }
    RowGroup* operator->() const { return group_; }
    RowGroup* get() const { return group_; }

   private:
    RowGroup* group_ = nullptr;
  };

  /// Makes a group of calls that have so many rows each. Its nodes are those that this thread records from now on,
  /// until end().
  static Ref begin(std::span<const int64_t> rows) {
    return Ref(new (allocate_cpu(bytes_for(rows.size()))) RowGroup(rows));
  }
  void end() { end_ = next_sequence(); }

  /// Returns the sequence number of its first node; end_sequence() returns the one behind its last node.
  uint64_t first_sequence() const { return first_; }
  uint64_t end_sequence() const { return end_; }
  /// Returns whether this is one of its nodes.
  bool holds(const Node& node) const { return node.sequence >= first_ && node.sequence < end_; }
  /// Notes that in this pass a gradient of these results of the call has arrived.
  void arrive(uint64_t pass, size_t call, Results results) {
    if (pass_ != pass) pass_ = pass, std::fill_n(arrived(), calls_, Results{0});
    arrived()[call] |= results;
  }
  /// Returns the results of each call whose gradients have arrived; an empty list if none has been noted in this pass.
  std::span<const Results> arrived_in(uint64_t pass) const { return {arrived(), pass_ == pass ? calls_ : 0}; }
  /// Returns whether a gradient of one of these results has arrived in this pass. If none has been noted, the gradient
  /// comes another way, and belongs to every call.
  bool has_part(uint64_t pass, size_t call, Results results) const {
    return pass_ != pass || (arrived()[call] & results) != 0;
  }
  /// Returns whether all calls take part in this pass, so far.
  bool complete(uint64_t pass) const {
    return pass_ == pass && std::find(arrived(), arrived() + calls_, Results{0}) == arrived() + calls_;
  }
  /// Returns how many rows each call has.
  std::span<const int64_t> rows() const { return {reinterpret_cast<const int64_t*>(this + 1), calls_}; }

 private:
  explicit RowGroup(std::span<const int64_t> rows) : calls_(rows.size()), first_(next_sequence()), end_(first_) {
    std::copy(rows.begin(), rows.end(), reinterpret_cast<int64_t*>(this + 1));
  }
  static size_t bytes_for(size_t calls) { return sizeof(RowGroup) + calls * (sizeof(int64_t) + sizeof(Results)); }
  // Returns the results that have arrived, of each call. They lie behind the numbers of rows, and these behind this
  // header.
  Results* arrived() { return reinterpret_cast<Results*>(reinterpret_cast<int64_t*>(this + 1) + calls_); }
  const Results* arrived() const { return const_cast<RowGroup*>(this)->arrived(); }

  const size_t calls_;
  const uint64_t first_;
  uint64_t end_;
  uint64_t pass_ = 0;  // for which `arrived` is valid
  uint32_t refs_ = 0;
};

}  // namespace reel
