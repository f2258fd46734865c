#include "test/fuzz/store_target.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "lib/distributed/store_job.h"
#include "reel/version.h"

using namespace reel::distributed;
using wire::Op, wire::Writer;

namespace {

constexpr int kWorld = 3;  // the third rank is yet to come

std::string hello(int rank) {
  wire::Hello hello;
  hello.token = std::string(wire::kTokenBytes, '\0');
  hello.version = reel::version();
  hello.rank = rank;
  hello.world_size = kWorld;
  hello.host = "host";
  return hello.frame();
}

StoreOptions options() {
  StoreOptions options;
  options.world_size = kWorld;
  return options;
}

struct Server {
  StoreJob job{options()};
  Time now{};
  std::array<uint64_t, 4> ids{};  // the healthy rank, the other one, two strangers

  Server() {
    for (uint64_t& id : ids) id = job.open("10.0.0.1", "10.0.0.2", now).id;
    receive(0, hello(0));
    receive(1, hello(1));
    settle();
  }
  void receive(size_t who, std::string_view text) {
    if (StoreJob::Peer* const peer = job.find(ids[who])) job.receive(*peer, text, now);
  }
  // Sends everything, and ends connections that are to be ended, which strangers then open again.
  void settle() {
    for (std::vector<uint64_t> changed = job.changed(); !changed.empty(); changed = job.changed())
      for (const uint64_t id : changed) {
        StoreJob::Peer* const peer = job.find(id);
        if (!peer) continue;
        size_t bytes = 0;
        for (const auto& text : peer->out) bytes += text->size();
        if (bytes - peer->out_begin != peer->out_bytes) throw std::logic_error("the bytes to be sent are miscounted");
        if (id == ids[0]) last.clear();
        for (const auto& text : peer->out)
          if (id == ids[0]) last += *text;
        peer->out.clear();
        peer->out_begin = peer->out_bytes = 0;
        peer->dirty = false;
        if (!peer->closing) continue;
        job.closed(id, "its connection to the store was closed", now);
        if (id == ids[2] || id == ids[3]) (id == ids[2] ? ids[2] : ids[3]) = job.open("10.0.0.1", "", now).id;
      }
  }
  std::string last;  // what the healthy rank got last
};

}  // namespace

bool feed_store(std::span<const uint8_t> bytes) {
  Server server;
  while (bytes.size() >= 2) {
    const size_t who = 1 + bytes[0] % 3, count = std::min<size_t>(bytes[1], bytes.size() - 2);
    server.now += Milliseconds(bytes[0] / 3);
    server.receive(0, Writer(Op::kBeat).string("well").finish());
    server.receive(who, {reinterpret_cast<const char*>(bytes.data()) + 2, count});
    server.job.tick(server.now);
    server.settle();
    bytes = bytes.subspan(2 + count);
  }
  if (server.job.aborted()) return false;
  server.receive(0, Writer(Op::kSet, 1).string("healthy").string("yes").finish());
  server.settle();
  server.receive(0, Writer(Op::kGet, 2).string("healthy").i64(0).finish());
  server.settle();
  if (!server.job.aborted() && !server.last.ends_with("yes")) throw std::logic_error("a healthy rank got no answer");
  return !server.job.aborted();
}

std::vector<std::string> store_seeds() {
  const auto from = [](int who, const std::string& frame) {
    std::string text;
    for (size_t at = 0; at < frame.size(); at += 200) {
      const std::string part = frame.substr(at, 200);
      text += std::string{static_cast<char>(who - 1), static_cast<char>(part.size())} + part;
    }
    return text;
  };
  const std::string beat = Writer(Op::kBeat).string("all_reduce 3").finish(),
                    set = Writer(Op::kSet, 2).string("key").string("value").finish(),
                    get = Writer(Op::kGet, 3).string("key").i64(1000).finish(),
                    wait = Writer(Op::kWait, 4).i64(50).u32(2).string("key").string("other").finish(),
                    add = Writer(Op::kAdd, 5).string("n").i64(-3).finish(),
                    compare = Writer(Op::kCompareSet, 6).string("key").string("value").string("new").finish(),
                    erase = Writer(Op::kErase, 7).string("key").finish(),
                    activities = Writer(Op::kActivities, 8).finish(),
                    address = Writer(Op::kAddress, 9).i64(100).finish(), bye = Writer(Op::kBye).string("end").finish(),
                    abort = Writer(Op::kAbort).error(Error(Error::kAborted, "why", {1}, 2)).finish();
  return {
      from(1, set) + from(1, get) + from(1, add) + from(1, compare) + from(1, erase),
      from(1, get) + from(2, hello(2)) + from(2, wait) + from(2, set) + from(1, set) + from(2, address),
      from(1, activities) + from(1, beat) + from(1, address) + from(2, hello(2)) + from(1, activities),
      from(1, wait) + from(1, bye) + from(2, hello(1)) + from(3, hello(2)) + from(3, get) + from(3, bye),
      from(2, hello(2)) + from(2, abort) + from(1, set),
  };
}
