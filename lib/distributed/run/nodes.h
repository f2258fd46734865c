#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lib/distributed/run/job.h"
#include "lib/distributed/run/options.h"
#include "reel/distributed/store.h"

namespace reel::distributed::run {

/// How a generation has ended on all machines.
struct Verdict {
  bool restart = false;
  int status = 0;
  std::string text = {};  // for each machine's user
};

/// The reel-runs of several machines, which agree by a store of their own at the job's address. All functions wait, and
/// throw reel::Error when a machine is lost; `stopped` ends them.
class Nodes {
 public:
  using Stopped = std::atomic<bool>;
  /// Node 0 hosts the store, the others connect with it.
  Nodes(const RunOptions& options, const std::string& token);

  /// By node, how many ranks it has, once all have come.
  std::vector<int> sizes(const Stopped& stopped);
  /// Node 0's place is everybody's, but for the first rank.
  Place agree_on_place(Place place, const Stopped& stopped);
  /// The generation has ended here: with a failure, or well.
  void ended(int generation, bool well);
  /// Waits until it has ended somewhere with a failure, or everywhere well. Returns what to tell about a failure that
  /// was not here, otherwise "".
  std::string await_end(int generation, const Stopped& stopped);
  /// After that: tells node 0 how it has ended here, which decides by `decide` what all do.
  Verdict settle(int generation, const Outcome& outcome, const std::function<Verdict(Outcome)>& decide,
                 const Stopped& stopped);
  /// Node 0, which takes the store with it, waits until all others know the last verdict.
  void farewell(const Stopped& stopped);

 private:
  std::string get(const std::string& key, const Stopped& stopped);
  std::string key(int generation, const char* name) const;

  const int node_, nodes_, ranks_;
  const Clock::duration patience_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Member> member_;
};

}  // namespace reel::distributed::run
