#include "lib/distributed/store_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "reel/version.h"

namespace reel::distributed {
namespace {

using wire::Op, wire::Reader, wire::Retry, wire::Status, wire::Writer;

constexpr size_t kMaxStored = size_t{256} << 20;    // of all keys and values
constexpr size_t kMaxQueued = 4 * wire::kMaxFrame;  // of answers that a client does not read
constexpr size_t kMaxStrangers = 64;                // connections before hello
constexpr size_t kKeyCost = 128;                    // of a key beside its bytes, about
constexpr int kMaxWaiters = 1024;                   // of a rank
constexpr Milliseconds kHelloTime(5000);            // for it
constexpr Milliseconds kSweep(100);                 // between looks at what is not exactly timed
constexpr Milliseconds kOrphaned(500);              // until waits that nobody will end fail
constexpr Milliseconds kFresh(20), kProbe(250);     // activities: young enough; time for an answer
constexpr Milliseconds kLongest(int64_t{1} << 40);  // that anybody waits

/// Takes the same time whatever differs.
bool same_secret(std::string_view a, std::string_view b) {
  volatile unsigned char different = 0;
  for (size_t i = 0; i < wire::kTokenBytes; ++i) different = different | static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

Milliseconds read_timeout(Reader& fields) { return std::clamp(Milliseconds(fields.i64()), Milliseconds(0), kLongest); }

/// What is not printable would spoil a message, and long keys do not help.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 100));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  return text.size() > 100 ? shown + "…" : shown;
}
std::string quoted(std::string_view text) { return "\"" + printable(text) + "\""; }

std::string name_of(const wire::Hello& hello) {
  return "rank " + std::to_string(hello.rank) + " (process " + std::to_string(hello.pid) + " on " +
         printable(hello.host) + ")";
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  std::string text;
  const size_t shown = ranks.size() > kShown + 1 ? kShown : ranks.size();
  for (size_t i = 0; i < shown; ++i) {
    if (i) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return shown == ranks.size() ? text : text + " and " + std::to_string(ranks.size() - shown) + " more";
}

std::string name_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_ranks(ranks);
}

std::string in_seconds(Clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.1f} s", seconds);
}

StoreJob::StoreJob(const StoreOptions& options)
    : token_(wire::parse_token(options.token)),
      run_id_(wire::short_run_id(options.run_id)),
      needs_token_(!options.token.empty()),
      world_size_(options.world_size),
      patience_(wire::patience_of(options.heartbeat)),
      beat_(wire::beat_of(patience_)),
      generation_(options.generation),
      ranks_(static_cast<size_t>(options.world_size)) {}

// ---- connections ----------------------------------------------------------------------------------------------------

StoreJob::Peer& StoreJob::open(std::string from, std::string here, Time now) {
  // A genuine client says hello at once; whoever is silent for longest makes room.
  if (strangers_.size() >= kMaxStrangers) {
    if (Peer* const oldest = find(strangers_.front())) close(*oldest);
    strangers_.pop_front();
  }
  const uint64_t id = next_peer_++;
  Peer& peer = peers_[id];
  peer.id = id;
  peer.from = std::move(from);
  peer.here = std::move(here);
  peer.opened = peer.heard = peer.sent = now;
  strangers_.push_back(id);
  return peer;
}

StoreJob::Peer* StoreJob::find(uint64_t id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

void StoreJob::close(Peer& peer) {
  peer.closing = true;
  if (!std::exchange(peer.dirty, true)) changed_.push_back(peer.id);
}

void StoreJob::send_shared(Peer& peer, std::shared_ptr<const std::string> frame) {
  if (peer.closing || frame->empty()) return;
  peer.out_bytes += frame->size();
  peer.out.push_back(std::move(frame));
  if (!std::exchange(peer.dirty, true)) changed_.push_back(peer.id);
  if (peer.out_bytes > kMaxQueued) {  // it asks and does not read
    peer.out.clear();
    peer.out_begin = peer.out_bytes = 0;
    peer.closing = true;
  }
}

void StoreJob::send(Peer& peer, std::string frame, std::shared_ptr<const std::string> body) {
  send_shared(peer, std::make_shared<const std::string>(std::move(frame)));
  if (body) send_shared(peer, std::move(body));
}

void StoreJob::fail(Peer& peer, uint32_t id, const Error& error) {
  send(peer, Writer(Op::kReply, id).u8(static_cast<uint8_t>(Status::kFailed)).error(error).finish());
}

void StoreJob::wrong_call(Peer& peer, uint32_t id, const std::string& message) {
  send(peer, Writer(Op::kReply, id).u8(static_cast<uint8_t>(Status::kWrongCall)).string(message).finish());
}

void StoreJob::receive(Peer& peer, std::string_view bytes, Time now) {
  if (peer.closing) return;
  peer.heard = now;
  try {
    peer.in.append(bytes);
    while (!peer.closing) {
      const std::optional<std::string_view> frame = peer.in.next(peer.rank < 0 ? wire::kMaxHello : wire::kMaxFrame);
      if (!frame) return;
      handle(peer, *frame, now);
    }
  } catch (const wire::Malformed& error) {
    const int rank = peer.rank;
    close(peer);
    if (rank >= 0 && !aborted_) {
      peer.rank = -1;
      abort(Error(Error::kPeerLost,
                  ranks_[static_cast<size_t>(rank)].name + " sent no message of a store: " + error.what(), {rank}),
            now);
    }
  }
}

void StoreJob::closed(uint64_t id, const std::string& why, Time now) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  const int number = found->second.rank;
  for (auto waiter = waiters_.begin(); number >= 0 && waiter != waiters_.end();)
    waiter = waiter->second.peer == id ? forget(waiter) : std::next(waiter);
  std::erase(strangers_, id);
  peers_.erase(found);
  if (number < 0) return;
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.peer != id || rank.state != State::kHere) return;
  rank.state = State::kAbsent;
  --present_;
  if (aborted_) return;
  const std::string doing =
      rank.activity.empty() ? "" : "; " + in_seconds(now - rank.beat) + " before it was in: " + rank.activity;
  abort(Error(Error::kPeerLost, rank.name + " died: " + why + doing, {number}), now);
}

// ---- hello and goodbye ----------------------------------------------------------------------------------------------

void StoreJob::refuse(Peer& peer, Retry retry, const Error& error) {
  send(peer, Writer(Op::kRefused).u8(static_cast<uint8_t>(retry)).error(error).finish());
  close(peer);
}

void StoreJob::greet(Peer& peer, Reader& fields, Time now) {
  const wire::Hello hello = wire::Hello::read(fields);
  const auto mismatch = [](const std::string& message) { return Error(Error::kMismatch, "store: " + message); };
  if (needs_token_ && !same_secret(hello.token, token_))
    return refuse(peer, Retry::kElsewhere, mismatch("the token is wrong: REEL_TOKEN differs from the server's"));
  if (hello.run_id != run_id_)
    return refuse(
        peer, Retry::kElsewhere,
        mismatch("this process is of the run " + quoted(hello.run_id) + ", the server of the run " + quoted(run_id_)));
  if (hello.generation != generation_)
    return refuse(
        peer, hello.generation > generation_ ? Retry::kLater : Retry::kNever,
        mismatch("this process is of generation " + std::to_string(hello.generation) + ", the job is in generation " +
                 std::to_string(generation_) + (hello.generation < generation_ ? ": it was expelled" : "")));
  if (aborted_) return refuse(peer, Retry::kNever, *aborted_);

  // From here on it is one of the job's, and what differs is the whole job's error.
  std::string difference;
  const std::string who = name_of(hello);
  if (hello.protocol != wire::kProtocol)
    difference = "a process at " + peer.from + " speaks protocol " + std::to_string(hello.protocol) +
                 " of the store, the server " + std::to_string(wire::kProtocol) +
                 ": they are of different versions of reel";
  else if (hello.version != reel::version())
    difference = who + " is of reel " + hello.version + ", the server of reel " + reel::version();
  else if (hello.world_size != world_size_)
    difference = who + " was started as one of " + std::to_string(hello.world_size) + " ranks, the server's job has " +
                 std::to_string(world_size_);
  else if (hello.rank < 0 || hello.rank >= world_size_)
    difference = who + " is beyond the job's " + std::to_string(world_size_) + " ranks";
  if (!difference.empty()) {
    const bool known = hello.protocol == wire::kProtocol;
    const Error error(Error::kMismatch, "store: " + difference,
                      known ? std::vector<int>{hello.rank} : std::vector<int>{});
    refuse(peer, Retry::kNever, error);
    return abort(error, now);
  }
  const Rank& rank = ranks_[static_cast<size_t>(hello.rank)];
  if (rank.state == State::kHere)
    return refuse(peer, Retry::kNever,
                  Error(Error::kMismatch,
                        "store: there are two of rank " + std::to_string(hello.rank) + ": this is " + who + ", but " +
                            rank.name + " is in the job already",
                        {hello.rank}));
  // All ranks are to leave before any comes again, or it would find the keys that it set before.
  if (rank.state == State::kLeft)
    return refuse(peer, Retry::kLater,
                  Error(Error::kTimeout,
                        "store: " + rank.name + " has left, and " + name_ranks(ranks_in(State::kHere)) + " not yet",
                        ranks_in(State::kHere)));
  join(peer, hello);
}

void StoreJob::join(Peer& peer, const wire::Hello& hello) {
  std::erase(strangers_, peer.id);
  peer.rank = hello.rank;
  Rank& rank = ranks_[static_cast<size_t>(hello.rank)];
  rank = Rank();
  rank.state = State::kHere;
  rank.peer = peer.id;
  rank.name = name_of(hello);
  rank.is_local = hello.process == wire::process_number();
  ++present_;
  orphaned_.reset();
  const bool host_changed = rank.is_local && (host_rank_ < 0 || hello.rank < host_rank_);
  if (host_changed) host_rank_ = hello.rank;
  if (reached_at_.empty()) reached_at_ = peer.here;
  send(peer, Writer(Op::kWelcome).u32(static_cast<uint32_t>(patience_.count())).finish());
  if (host_changed)
    for (auto& [id, other] : peers_)
      if (other.rank >= 0) send(other, Writer(Op::kPulse).i32(host_rank_).finish());
  if (host_rank_ >= 0) send(peer, Writer(Op::kPulse).i32(host_rank_).finish());
  if (present_ + left_ < world_size_ && reached_at_.empty()) return;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {  // for an address: it is known now
    Peer* const asks = find(waiter->second.peer);
    if (waiter->second.op != Op::kAddress || !asks) {
      ++waiter;
      continue;
    }
    send(*asks, Writer(Op::kReply, waiter->second.id).u8(0).string(reached_at_).finish());
    waiter = forget(waiter);
  }
}

void StoreJob::leave(Peer& peer, std::string_view activity, Time now) {
  Rank& rank = ranks_[static_cast<size_t>(peer.rank)];
  beat(rank, activity, now);
  rank.state = State::kLeft;
  --present_;
  ++left_;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();)
    waiter = waiter->second.peer == peer.id ? forget(waiter) : std::next(waiter);
  peer.rank = -1;
  close(peer);
  if (left_ == world_size_) reset(now);
}

void StoreJob::reset(Time now) {
  for (auto& [id, peer] : peers_)
    if (peer.rank >= 0) {
      peer.rank = -1;
      close(peer);
    }
  std::fill(ranks_.begin(), ranks_.end(), Rank{});
  present_ = left_ = waiting_ranks_ = 0;
  host_rank_ = -1;
  reached_at_.clear();
  values_.clear();
  stored_ = 0;
  waiters_.clear();
  waiting_for_.clear();
  deadlines_.clear();
  orphaned_.reset();
  swept_ = now;
}

void StoreJob::restart(int generation, Time now) {
  const Error expelled(Error::kAborted, "store: the job has gone on to generation " + std::to_string(generation) +
                                            "; this process is of generation " + std::to_string(generation_) +
                                            ", and was expelled");
  if (!aborted_) abort(expelled, now);
  reset(now);
  generation_ = generation;
  aborted_.reset();
}

void StoreJob::abort(const Error& reason, Time now) {
  if (aborted_) return;
  aborted_.emplace(reason);
  const auto frame = std::make_shared<const std::string>(Writer(Op::kAbort).error(reason).finish());
  for (auto& [id, peer] : peers_)
    if (peer.rank >= 0) send_shared(peer, frame);
  waiters_.clear();  // a client fails its own requests
  waiting_for_.clear();
  deadlines_.clear();
  values_.clear();
  stored_ = 0;
  swept_ = now;
}

std::vector<int> StoreJob::present_elsewhere() const {
  std::vector<int> ranks = ranks_in(State::kHere);
  std::erase_if(ranks, [&](int rank) { return ranks_[static_cast<size_t>(rank)].is_local; });
  return ranks;
}

std::vector<int> StoreJob::ranks_in(State state) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].state == state) ranks.push_back(static_cast<int>(i));
  return ranks;
}

// ---- requests -------------------------------------------------------------------------------------------------------

void StoreJob::handle(Peer& peer, std::string_view frame, Time now) {
  Reader fields(frame);
  const Op op = static_cast<Op>(fields.u8());
  const uint32_t id = fields.u32();
  if ((op == Op::kHello) != (peer.rank < 0)) throw wire::Malformed("it did not say hello first, or twice");
  if (op == Op::kHello) return greet(peer, fields, now);
  const int number = peer.rank;
  Rank& rank = ranks_[static_cast<size_t>(number)];

  switch (op) {
    case Op::kBeat: {
      const std::string_view activity = fields.string(wire::kMaxActivity);
      fields.end();
      return beat(rank, activity, now);
    }
    case Op::kBye: {
      const std::string_view activity = fields.string(wire::kMaxActivity);
      fields.end();
      if (aborted_) return close(peer);
      return leave(peer, activity, now);
    }
    case Op::kAbort: {
      const Error reason = fields.error();
      fields.end();
      return abort(reason, now);
    }
    default: break;
  }
  if (aborted_) return;  // it has been told

  const auto key = [&] { return fields.string(wire::kMaxKey); };
  const auto value = [&] { return fields.string(wire::kMaxValue); };
  const auto done = [&] { return Writer(Op::kReply, id).u8(static_cast<uint8_t>(Status::kDone)); };
  const auto fits = [&](std::string_view name, size_t size) {
    const auto old = values_.find(std::string(name));
    const size_t freed = old == values_.end() ? 0 : old->second->size() + name.size() + kKeyCost;
    const bool good = stored_ - freed + name.size() + size + kKeyCost <= kMaxStored;
    if (!good)
      wrong_call(peer, id,
                 "store: it is full: " + std::to_string(stored_ >> 20) + " MiB are stored, and " + quoted(name) +
                     " has " + std::to_string(size) + " bytes");
    return good;
  };

  switch (op) {
    case Op::kSet: {
      const std::string_view name = key(), text = value();
      fields.end();
      if (!fits(name, text.size())) return;
      set(name, std::string(text));
      return send(peer, done().finish());
    }
    case Op::kAdd: {
      const std::string_view name = key();
      int64_t sum = 0;
      const int64_t amount = fields.i64();
      fields.end();
      if (const auto found = values_.find(std::string(name)); found != values_.end()) {
        const std::string& text = *found->second;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum);
        if (error != std::errc() || end != text.data() + text.size())
          return wrong_call(peer, id, "store: add: the value of " + quoted(name) + " is no number: " + quoted(text));
      }
      if (__builtin_add_overflow(sum, amount, &sum))
        return wrong_call(peer, id, "store: add: " + quoted(name) + " overflows");
      if (!fits(name, 20)) return;
      set(name, std::to_string(sum));
      return send(peer, done().i64(sum).finish());
    }
    case Op::kCompareSet: {
      const std::string_view name = key(), expected = value(), desired = value();
      fields.end();
      auto found = values_.find(std::string(name));
      if (found == values_.end() ? expected.empty() : *found->second == expected) {
        if (!fits(name, desired.size())) return;
        set(name, std::string(desired));
        found = values_.find(std::string(name));
      }
      const auto body = found == values_.end() ? std::make_shared<const std::string>() : found->second;
      return send(peer, done().u32(static_cast<uint32_t>(body->size())).finish(body->size()), body);
    }
    case Op::kErase: {
      const std::string name(key());
      fields.end();
      const bool there = values_.contains(name);
      erase(name);
      return send(peer, done().u8(there).finish());
    }
    case Op::kGet: {
      std::vector<std::string> keys{std::string(key())};
      const Milliseconds timeout = read_timeout(fields);
      fields.end();
      return wait(peer, {peer.id, id, op, std::move(keys), 0, now, now + timeout, timeout, 0});
    }
    case Op::kWait: {
      const Milliseconds timeout = read_timeout(fields);
      const uint32_t count = fields.u32();
      if (count > wire::kMaxKeys || count > fields.rest().size() / 4)
        throw wire::Malformed("a message names more keys than it has");
      std::vector<std::string> keys(count);
      for (std::string& name : keys) name = key();
      fields.end();
      return wait(peer, {peer.id, id, op, std::move(keys), 0, now, now + timeout, timeout, 0});
    }
    case Op::kActivities: {
      fields.end();
      Waiter waiter{peer.id, id, op, {}, 0, now, now + kProbe, kProbe, 0};
      for (Rank& other : ranks_) {
        if (other.state != State::kHere || now - other.beat < kFresh) continue;
        ++waiter.missing;
        if (now - other.probed < kFresh) continue;
        other.probed = now;
        send(*find(other.peer), Writer(Op::kProbe).finish());
      }
      waiter.since = now - kFresh;
      return wait(peer, std::move(waiter));
    }
    case Op::kAddress: {
      const Milliseconds timeout = read_timeout(fields);
      fields.end();
      if (present_ + left_ == world_size_ || !reached_at_.empty())
        return send(peer, done().string(reached_at_).finish());
      return wait(peer, {peer.id, id, op, {}, 0, now, now + timeout, timeout, 0});
    }
    default: throw wire::Malformed("it asked for what no store does");
  }
}

void StoreJob::beat(Rank& rank, std::string_view activity, Time now) {
  const Time before = std::exchange(rank.beat, now);
  rank.activity = activity;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    Waiter& w = waiter->second;
    if (w.op != Op::kActivities || before > w.since || --w.missing > 0) {
      ++waiter;
      continue;
    }
    answer_activities(w, now);
    waiter = forget(waiter);
  }
}

void StoreJob::answer_activities(const Waiter& waiter, Time now) {
  Peer* const peer = find(waiter.peer);
  if (!peer) return;
  Writer writer(Op::kReply, waiter.id);
  writer.u8(static_cast<uint8_t>(Status::kDone)).u32(static_cast<uint32_t>(world_size_));
  for (const Rank& rank : ranks_) {
    const std::string what = rank.state == State::kAbsent ? "has not joined"
                             : rank.state == State::kLeft
                                 ? "left" + (rank.activity.empty() ? "" : " after: " + rank.activity)
                                 : rank.activity;
    const Peer* const its = rank.state == State::kHere ? find(rank.peer) : nullptr;
    const Time since = its ? its->heard : rank.beat;
    const bool known = rank.state != State::kAbsent;
    writer.string(what).i64(known ? std::chrono::duration_cast<Milliseconds>(now - since).count() : 0);
  }
  send(*peer, writer.finish());
}

void StoreJob::set(std::string_view key, std::string value) {
  const std::string name(key);
  erase(name);
  stored_ += name.size() + value.size() + kKeyCost;
  values_[name] = std::make_shared<const std::string>(std::move(value));
  orphaned_.reset();
  const auto waiting = waiting_for_.extract(name);
  if (waiting.empty()) return;
  for (const uint64_t number : waiting.mapped())
    if (const auto waiter = waiters_.find(number); waiter != waiters_.end() && advance(number, waiter->second))
      forget(waiter);
}

void StoreJob::erase(std::string_view key) {
  const auto found = values_.find(std::string(key));
  if (found == values_.end()) return;
  stored_ -= key.size() + found->second->size() + kKeyCost;
  values_.erase(found);
}

// ---- requests that wait ---------------------------------------------------------------------------------------------

void StoreJob::wait(Peer& peer, Waiter waiter) {
  const uint64_t number = next_waiter_++;
  if (waiter.op == Op::kActivities && waiter.missing == 0) return answer_activities(waiter, waiter.deadline - kProbe);
  Rank& rank = ranks_[static_cast<size_t>(peer.rank)];
  if (rank.waits >= kMaxWaiters) return wrong_call(peer, waiter.id, "store: a rank waits for too many keys at once");
  if ((waiter.op == Op::kGet || waiter.op == Op::kWait) && advance(number, waiter)) return;
  if (waiter.timeout == Milliseconds(0)) return give_up(waiter, waiter.deadline);
  if (rank.waits++ == 0) ++waiting_ranks_;
  deadlines_.emplace(waiter.deadline, number);
  waiters_.emplace(number, std::move(waiter));
}

/// Whether the waiter has its answer. Otherwise it stands in line for the next key that is missing.
bool StoreJob::advance(uint64_t number, Waiter& waiter) {
  Peer* const peer = find(waiter.peer);
  if (!peer) return true;
  for (; waiter.next < waiter.keys.size(); ++waiter.next) {
    const std::string& key = waiter.keys[waiter.next];
    if (values_.contains(key)) continue;
    if (waiter.timeout > Milliseconds(0)) waiting_for_[key].push_back(number);
    return false;
  }
  Writer writer(Op::kReply, waiter.id);
  writer.u8(static_cast<uint8_t>(Status::kDone));
  if (waiter.op == Op::kWait) {
    send(*peer, writer.finish());
  } else {
    const auto& value = values_.at(waiter.keys[0]);
    send(*peer, writer.u32(static_cast<uint32_t>(value->size())).finish(value->size()), value);
  }
  return true;
}

std::map<uint64_t, StoreJob::Waiter>::iterator StoreJob::forget(std::map<uint64_t, Waiter>::iterator waiter) {
  const Waiter& w = waiter->second;
  if (const Peer* const peer = find(w.peer); peer && peer->rank >= 0)
    if (--ranks_[static_cast<size_t>(peer->rank)].waits == 0) --waiting_ranks_;
  deadlines_.erase({w.deadline, waiter->first});
  if (w.next < w.keys.size())
    if (const auto line = waiting_for_.find(w.keys[w.next]); line != waiting_for_.end()) {
      std::erase(line->second, waiter->first);
      if (line->second.empty()) waiting_for_.erase(line);
    }
  return waiters_.erase(waiter);
}

/// Its deadline has come.
void StoreJob::give_up(Waiter& waiter, Time now) {
  Peer* const peer = find(waiter.peer);
  if (!peer) return;
  if (waiter.op == Op::kActivities) return answer_activities(waiter, now);
  std::string message = "store: waited " + in_seconds(waiter.timeout) + " for ";
  size_t missing = 0;
  for (const std::string& key : waiter.keys)
    if (!values_.contains(key) && ++missing <= 4) message += (missing > 1 ? ", " : "") + quoted(key);
  if (missing > 4) message += " and " + std::to_string(missing - 4) + " more keys";
  if (waiter.op == Op::kAddress) message += "all ranks to come";
  const std::vector<int> absent = ranks_in(State::kAbsent), left = ranks_in(State::kLeft);
  if (!absent.empty())
    message += "; " + name_ranks(absent) + (absent.size() == 1 ? " has" : " have") + " not joined the job";
  if (!left.empty()) message += "; " + name_ranks(left) + (left.size() == 1 ? " has" : " have") + " left it";
  fail(*peer, waiter.id, Error(Error::kTimeout, message, absent.empty() ? left : absent));
}

/// Ranks that have left set no keys. Once all the others wait for keys, nobody does.
void StoreJob::fail_orphans(Time now) {
  const bool orphaned = left_ > 0 && present_ > 0 && present_ + left_ == world_size_ && waiting_ranks_ == present_;
  if (!orphaned) return orphaned_.reset();
  if (!orphaned_) orphaned_ = now;
  if (now - *orphaned_ < kOrphaned) return;
  orphaned_.reset();
  const std::vector<int> left = ranks_in(State::kLeft);
  std::string message = "store: " + name_ranks(left) + " left the job while others still waited";
  const std::string& activity = ranks_[static_cast<size_t>(left[0])].activity;
  if (!activity.empty()) message += "; rank " + std::to_string(left[0]) + " was in: " + activity;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    Peer* const peer = find(waiter->second.peer);
    const bool key = waiter->second.next < waiter->second.keys.size();
    if (peer && key)
      fail(*peer, waiter->second.id,
           Error(Error::kPeerLost, message + " (for " + quoted(waiter->second.keys[waiter->second.next]) + ")", left));
    waiter = key ? forget(waiter) : std::next(waiter);
  }
}

// ---- time -----------------------------------------------------------------------------------------------------------

void StoreJob::find_silent(Time now) {
  std::vector<int> silent, suspects;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].state != State::kHere) continue;
    const Clock::duration silence = now - find(ranks_[i].peer)->heard;
    if (silence >= patience_) silent.push_back(static_cast<int>(i));
    if (silence >= patience_ - beat_) suspects.push_back(static_cast<int>(i));  // that beat was due, too
  }
  if (silent.empty()) return;
  const Rank& first = ranks_[static_cast<size_t>(silent[0])];
  std::string message = first.name + " has not been heard of for " + in_seconds(now - find(first.peer)->heard) +
                        ": it was stopped or cut off";
  if (!first.activity.empty()) message += "; it was in: " + first.activity;
  if (suspects.size() > 1) {
    message += "; silent are " + name_ranks(suspects);
    if (suspects == present_elsewhere())
      message += ", which is all: perhaps it is the server's machine that is cut off";
  }
  abort(Error(Error::kPeerLost, message, suspects), now);
}

Time StoreJob::tick(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto waiter = waiters_.find(deadlines_.begin()->second);
    if (waiter == waiters_.end()) {
      deadlines_.erase(deadlines_.begin());
      continue;
    }
    give_up(waiter->second, now);
    forget(waiter);
  }
  const Clock::duration sweep = std::min<Clock::duration>(kSweep, beat_ / 2);
  if (now - swept_ >= sweep) {
    // If this process itself was stopped, so were the ranks in it, and others' signs of life are still to be read.
    if (now - swept_ > sweep + beat_) judge_after_ = now + 2 * beat_;
    swept_ = now;
    while (!strangers_.empty()) {
      Peer* const oldest = find(strangers_.front());
      if (oldest && now - oldest->opened < kHelloTime) break;
      if (oldest) close(*oldest);
      strangers_.pop_front();
    }
    if (!aborted_) {
      if (now >= judge_after_) find_silent(now);
      fail_orphans(now);
    }
    std::shared_ptr<const std::string> pulse;
    for (auto& [id, peer] : peers_) {
      if (peer.rank < 0 || peer.closing || now - peer.sent < beat_) continue;
      peer.sent = now;
      if (peer.out_bytes) continue;  // bytes are on their way, or it does not read
      if (!pulse) pulse = std::make_shared<const std::string>(Writer(Op::kPulse).i32(host_rank_).finish());
      send_shared(peer, pulse);
    }
  }
  const Time next = swept_ + sweep;
  return deadlines_.empty() ? next : std::min(next, deadlines_.begin()->first);
}

}  // namespace reel::distributed
