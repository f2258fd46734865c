#include "lib/distributed/run/nodes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace reel::distributed::run {
namespace {

using nlohmann::json;

constexpr Milliseconds kSlice{200};  // of a wait: how late a signal may be heard
constexpr auto kFarewell = std::chrono::seconds(10);
constexpr const char* kWell = "well";

Milliseconds to_milliseconds(double seconds) { return Milliseconds(std::llround(std::min(seconds, 1e6) * 1000)); }

// What ranks have printed need not be UTF-8.
std::string to_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json to_json(const Outcome& outcome) {
  json failures = json::array();
  for (const auto& failure : outcome.failures)
    failures.push_back({{"rank", failure.rank},
                        {"status", failure.status},
                        {"what", failure.what},
                        {"last_lines", failure.last_lines}});
  return {{"failures", failures}, {"signal", outcome.signal}, {"can_restart", outcome.can_restart}};
}

Outcome to_outcome(const json& value) {
  Outcome outcome;
  for (const auto& failure : value.at("failures"))
    outcome.failures.push_back(
        {failure.at("rank"), failure.at("status"), failure.at("what"), failure.at("last_lines")});
  outcome.signal = value.at("signal");
  outcome.can_restart = value.at("can_restart");
  return outcome;
}

StoreOptions store_options(const RunOptions& options, const std::string& token) {
  StoreOptions result;
  result.host = options.host;
  result.port = options.port;
  result.run_id = "reel-run " + options.run_id;
  result.world_size = options.nodes;
  result.token = token;
  result.timeout = to_milliseconds(options.rendezvous);
  if (options.heartbeat) result.heartbeat = to_milliseconds(*options.heartbeat);
  return result;
}

}  // namespace

Nodes::Nodes(const RunOptions& options, const std::string& token)
    : node_(options.node),
      nodes_(options.nodes),
      ranks_(options.ranks),
      patience_(to_milliseconds(options.rendezvous)) {
  const StoreOptions store = store_options(options, token);
  if (node_ == 0) server_ = std::make_unique<StoreServer>(store);
  member_ = connect_store(node_, store);
}

std::string Nodes::key(int generation, const char* name) const { return std::to_string(generation) + "/" + name; }

std::string Nodes::get(const std::string& key, const Stopped& stopped) {
  while (true) {
    try {
      return member_->get(key, kSlice);
    } catch (const Error& error) {
      if (error.kind != Error::kTimeout || member_->aborted()) throw;
    }
    REEL_CHECK(!stopped, "stopped");
  }
}

std::vector<int> Nodes::sizes(const Stopped& stopped) {
  const auto until = Clock::now() + patience_;
  const std::string prefix = "ranks/";
  member_->set(prefix + std::to_string(node_), std::to_string(ranks_));
  std::vector<int> result;
  for (int node = 0; node < nodes_; ++node) {
    while (true) {
      try {
        result.push_back(std::stoi(member_->get(prefix + std::to_string(node), kSlice)));
        break;
      } catch (const Error& error) {
        if (error.kind != Error::kTimeout || member_->aborted()) throw;
      }
      REEL_CHECK(!stopped, "stopped");
      REEL_CHECK(Clock::now() < until, "node rank ", node, " of ", nodes_, " has not come within ",
                 std::chrono::duration<double>(patience_).count(), " s");
    }
  }
  return result;
}

Place Nodes::agree_on_place(Place place, const Stopped& stopped) {
  const std::string name = key(place.generation, "place");
  if (node_ == 0) {
    member_->set(
        name,
        to_text({{"store_port", place.store_port}, {"master_port", place.master_port}, {"run_id", place.run_id}}));
    return place;
  }
  const json agreed = json::parse(get(name, stopped));
  place.store_port = agreed.at("store_port");
  place.master_port = agreed.at("master_port");
  place.run_id = agreed.at("run_id");
  return place;
}

void Nodes::ended(int generation, bool well) {
  if (!well)
    member_->compare_set(key(generation, "end"), "", std::to_string(node_));
  else if (member_->add(key(generation, "ended well"), 1) == nodes_)
    member_->compare_set(key(generation, "end"), "", kWell);
}

std::string Nodes::await_end(int generation, const Stopped& stopped) {
  const std::string end = get(key(generation, "end"), stopped);
  if (end == kWell || end == std::to_string(node_)) return "";
  return "a rank of node rank " + end + " has failed";
}

Verdict Nodes::settle(int generation, const Outcome& outcome, const std::function<Verdict(Outcome)>& decide,
                      const Stopped& stopped) {
  const auto report = [&](int node) { return key(generation, "report/") + std::to_string(node); };
  member_->set(report(node_), to_text(to_json(outcome)));
  if (node_ != 0) {
    const json verdict = json::parse(get(key(generation, "verdict"), stopped));
    return {verdict.at("restart"), verdict.at("status"), verdict.at("text")};
  }
  // The node that was first comes first.
  const std::string end = get(key(generation, "end"), stopped);
  std::vector<int> order(static_cast<size_t>(nodes_));
  std::iota(order.begin(), order.end(), 0);
  if (end != kWell)
    std::stable_partition(order.begin(), order.end(), [&](int node) { return std::to_string(node) == end; });
  Outcome all;
  for (const int node : order) {
    Outcome one = to_outcome(json::parse(get(report(node), stopped)));
    std::ranges::move(one.failures, std::back_inserter(all.failures));
    if (!all.signal) all.signal = one.signal;
    all.can_restart = all.can_restart && one.can_restart;
  }
  const Verdict verdict = decide(std::move(all));
  member_->set(key(generation, "verdict"),
               to_text({{"restart", verdict.restart}, {"status", verdict.status}, {"text", verdict.text}}));
  return verdict;
}

void Nodes::farewell(const Stopped& stopped) {
  try {
    if (member_->add("farewell", 1) == nodes_) member_->set("all know", "");
    const auto until = Clock::now() + kFarewell;
    while (node_ == 0 && Clock::now() < until && !stopped) {
      try {
        member_->get("all know", kSlice);
        break;
      } catch (const Error& error) {
        if (error.kind != Error::kTimeout || member_->aborted()) throw;
      }
    }
  } catch (const Error&) {  // the others have ended already
  }
  member_->leave();
}

}  // namespace reel::distributed::run
