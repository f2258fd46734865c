// reel-run on one machine.
#include "test/distributed/launched.h"

using namespace launched;

TEST_CASE("reel-run prints lines with the rank before them", "[launcher]") {
  Run run(script({"-n", "3"}, "echo one $RANK; echo two >&2; echo; printf three"));
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == std::vector<std::string>{"[0] ", "[0] one 0", "[0] three", "[1] ", "[1] one 1",
                                                            "[1] three", "[2] ", "[2] one 2", "[2] three"});
  CHECK(sorted_lines(run.err()) == std::vector<std::string>{"[0] two", "[1] two", "[2] two"});
}

TEST_CASE("reel-run returns the status of the rank that fails first, and shows its last lines", "[launcher]") {
  Run failing(script({"-n", "3", "--grace", "0.1"},
                     "[ $RANK = 1 ] || exec sleep 30; for i in $(seq 100 125); do echo line $i >&2; done; exit 7"));
  CHECK(failing.wait() == 7);
  CHECK_THAT(failing.err(), Contains("the first failure: rank 1 (process ") && Contains("exited with status 7"));
  CHECK_THAT(failing.err(),
             Contains("\n    line 106\n") && Contains("\n    line 125\n") && !Contains("\n    line 105\n"));
  CHECK_THAT(failing.err(), Contains("2 others have 0.1 s to end"));

  Run killed(script({"-n", "2", "--grace", "0.1"}, "[ $RANK = 1 ] || exec sleep 30; kill -SEGV $$"));
  CHECK(killed.wait() == 128 + SIGSEGV);
  CHECK_THAT(killed.err(), Contains("was killed by signal 11 (Segmentation fault)"));
}

TEST_CASE("reel-run lets ranks end by themselves after a failure", "[launcher]") {
  Run run(script({"-n", "2"}, "[ $RANK = 1 ] && exit 3; sleep 0.3; echo saved"));
  CHECK(run.wait() == 3);
  CHECK(run.out() == "[0] saved\n");
}

TEST_CASE("reel-run kills what ignores its signals, and what ranks leave behind", "[launcher]") {
  Run run(script({"-n", "2", "--grace", "0.1"},
                 "[ $RANK = 1 ] && { sleep 100 & echo pid $!; sleep 0.2; exit 3; };"
                 "trap '' TERM; echo pid $$; while true; do sleep 0.05; done"));
  CHECK(run.wait() == 3);
  const auto ids = ids_in(run.out());
  CHECK(ids.size() == 2);
  CHECK(all_end(ids, 0s));

  Run stopped(script({"-n", "2", "--grace", "0.1"}, "[ $RANK = 1 ] && exit 4; kill -STOP $$"));
  CHECK(stopped.wait() == 4);
  Run left_behind(script({"-n", "2"}, "sleep 100 & echo pid $!"));
  CHECK(left_behind.wait() == 0);
  CHECK(all_end(ids_in(left_behind.out()), 0s));
}

TEST_CASE("reel-run does not wait for what has left its process groups", "[launcher]") {
  Run run(script({"-n", "2"}, "setsid sh -c 'echo pid $$; exec sleep 5' & sleep 0.2; exit 3"));
  const auto begun = Clock::now();
  CHECK(run.wait() == 3);
  CHECK(Clock::now() - begun < 3s);
  const auto ids = ids_in(run.out());
  CHECK(ids.size() == 2);
  for (const pid_t id : ids) ::kill(id, SIGKILL);
}

TEST_CASE("reel-run has a shell's status for what cannot be run", "[launcher]") {
  const Folder folder;
  const struct {
    std::string program;
    int status;
    const char* message;
  } rows[] = {{folder / "none", 127, "No such file or directory"},
              {"reel-no-such-program", 127, "No such file or directory"},
              {folder.path, 126, "Is a directory"},
              {write(folder / "text", "x"), 126, "Permission denied"}};
  for (const auto& row : rows) {
    Run run({"-n", "2", "--max-restarts", "3", row.program});
    CHECK(run.wait() == row.status);
    CHECK_THAT(run.err(), Contains("cannot run " + row.program + ": " + row.message));
    CHECK_THAT(run.err(), !Contains("again"));
  }
  write(folder / "script", "echo $1");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  Run run({(folder / "script").string(), "without #!"});
  CHECK(run.wait() == 0);
  CHECK(run.out() == "[0] without #!\n");
}

TEST_CASE("reel-run refuses wrong flags, and leaves a program's own alone", "[launcher]") {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"-n", "2"},
      {"-n", "0", "true"},
      {"-n", "two", "true"},
      {"--nproc-pernode", "2", "true"},
      {"--nnodes", "1:4", "true"},
      {"--nnodes", "2", "true"},
      {"--nnodes", "2", "--node-rank", "2", "--master-addr", "localhost", "true"},
      {"--nnodes", "2", "--node-rank", "0", "true"},
      {"--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "--rdzv-endpoint", "b:1", "true"},
      {"--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "--master-port", "65536", "true"},
      {"--node-rank", "1", "true"},
      {"--tee", "4", "true"},
      {"--redirects", "3", "true"},
      {"--max-restarts", "-1", "true"},
      {"--heartbeat", "0", "true"},
      {"--rdzv-backend", "etcd", "true"}};
  for (const auto& arguments : wrong) {
    Run run(arguments);
    CAPTURE(arguments);
    CHECK(run.wait() == 2);
    CHECK_THAT(run.err(), !Contains("first failure"));
  }
  for (const std::vector<std::string>& before : {std::vector<std::string>{}, {"--"}}) {
    std::vector<std::string> arguments = {"-n", "1"};
    arguments.insert(arguments.end(), before.begin(), before.end());
    arguments.insert(arguments.end(), {"printf", "%s,", "-n", "--", "--help", "a b", ""});
    Run run(arguments);
    CHECK(run.wait() == 0);
    CHECK(run.out() == "[0] -n,--,--help,a b,,\n");
  }
  Run help({"--help"});
  CHECK(help.wait() == 0);
  CHECK_THAT(help.out(), Contains("reel-run [OPTIONS] PROGRAM [ARGUMENTS...]"));
  Run version({"--version"});
  CHECK(version.wait() == 0);
  CHECK_THAT(version.out(), StartsWith("reel-run "));
}

TEST_CASE("reel-run tells ranks what torchrun would", "[launcher]") {
  const std::string show =
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $REEL_NUM_THREADS $OMP_NUM_THREADS "
      "$REEL_DIST_TIMEOUT $REEL_DIST_HEARTBEAT; echo ${#REEL_TOKEN}";
  const auto cores = std::max(1u, std::thread::hardware_concurrency() / 2);  // as far as nobody has bound this
  Run run(script({"--nproc_per_node=2", "--max_restarts", "4", "--rdzv_id", "mine", "--timeout", "90.5", "--heartbeat",
                  "2", "--standalone"},
                 show),
          {{"REEL_NUM_THREADS", "5"}, {"PET_NNODES", "3"}});
  CHECK(run.wait() == 0);
  const auto lines = sorted_lines(run.out());
  REQUIRE(lines.size() == 4);
  const auto line = [&](int rank) {
    const std::string r = std::to_string(rank);
    return "[" + r + "] " + r + " 2 " + r + " 2 0 127.0.0.1 0 4 mine 5 " + std::to_string(cores) + " 90.5 2";
  };
  if (::sysconf(_SC_NPROCESSORS_ONLN) == static_cast<long>(std::thread::hardware_concurrency())) {
    CHECK(lines[0] == line(0));
    CHECK(lines[2] == line(1));
  }
  CHECK(lines[1] == "[0] 32");

  Run variables(script({}, "echo $WORLD_SIZE $TORCHELASTIC_RUN_ID"),
                {{"PET_NPROC_PER_NODE", "3"}, {"PET_RDZV_ID", "job"}, {"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}});
  CHECK(variables.wait() == 0);
  CHECK(sorted_lines(variables.out()) == std::vector<std::string>{"[0] 3 job", "[1] 3 job", "[2] 3 job"});
  Run port(script({"-n", "1", "--master-port", "4711"}, "echo $MASTER_PORT"));
  CHECK(port.wait() == 0);
  CHECK(port.out() == "[0] 4711\n");
  Run flags_first(script({"-n", "1"}, "echo $WORLD_SIZE"), {{"PET_NPROC_PER_NODE", "3"}});
  CHECK(flags_first.wait() == 0);
  CHECK(flags_first.out() == "[0] 1\n");
  Run gpus(script({"-n", "auto"}, "echo $WORLD_SIZE"), {{"CUDA_VISIBLE_DEVICES", "0,3,-1,1"}});
  CHECK(gpus.wait() == 0);
  CHECK(sorted_lines(gpus.out()) == std::vector<std::string>{"[0] 2", "[1] 2"});
  Run none(script({"-n", "gpu"}, "true"), {{"CUDA_VISIBLE_DEVICES", "-1"}});
  CHECK(none.wait() == 2);
  // Each of these is the same secret for all; it is told to nobody by the list of processes.
  Run given(script({"-n", "1"}, "echo $REEL_TOKEN"), {{"REEL_TOKEN", "0123456789abcdef0123456789abcdef"}});
  CHECK(given.wait() == 0);
  CHECK(given.out() == "[0] 0123456789abcdef0123456789abcdef\n");
  Run malformed(script({"-n", "1"}, "true"), {{"REEL_TOKEN", "12"}});
  CHECK(malformed.wait() == 1);
  CHECK_THAT(malformed.err(), Contains("REEL_TOKEN: expected 32"));
}

TEST_CASE("ranks inherit no descriptor, no blocked and no ignored signal of reel-run's", "[launcher]") {
  const std::string show = "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status";
  Run run(script({"-n", "2"}, show));
  CHECK(run.wait() == 0);
  Run directly({"-c", show}, {}, -1, -1, "/bin/sh");
  CHECK(directly.wait() == 0);
  // Signals 32 and 33 are the C library's own.
  const auto ignored = [](const std::string& text, const std::string& prefix) {
    const std::string name = prefix + "SigIgn:\t";
    return std::stoull(text.substr(text.find(name) + name.size(), 16), nullptr, 16) & ~0x180000000ull;
  };
  const std::string first = directly.out().substr(0, directly.out().find('\n') + 1);  // descriptors, blocked signals
  for (const char* rank : {"[0] ", "[1] "}) {
    CHECK_THAT(run.out(), Contains(rank + first));
    CHECK(ignored(run.out(), rank) == ignored(directly.out(), ""));
  }
}

TEST_CASE("megabytes of output arrive whole, in lines that do not mix", "[launcher]") {
  // Lines of ten digits, 2 MB a rank; one long line; and a last one without an end.
  Run run(
      script({"-n", "2"}, "seq -f '%010.0f' 1 200000; head -c 300000 /dev/zero | tr '\\0' x; echo; printf end $RANK"));
  CHECK(run.wait() == 0);
  int64_t next[2] = {1, 1}, wrong = 0, ends = 0, longs = 0;
  const std::string long_line(300000, 'x');
  std::istringstream stream(run.out());
  for (std::string line; std::getline(stream, line);) {
    if (line.size() < 4 || line[0] != '[' || line.substr(2, 2) != "] " || (line[1] != '0' && line[1] != '1')) {
      ++wrong;
      continue;
    }
    const std::string rest = line.substr(4);
    if (rest == "end")
      ++ends;
    else if (rest == long_line)
      ++longs;
    else if (std::atoll(rest.c_str()) != next[line[1] - '0']++)
      ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(ends == 2);
  CHECK(longs == 2);
  CHECK(next[0] == 200001);
  CHECK(next[1] == 200001);
}

TEST_CASE("a reader that does not read keeps reel-run from nothing but printing", "[launcher]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Run run(
      script({"-n", "2", "--grace", "0.1"}, "echo pid $$ >&2; [ $RANK = 0 ] && exec cat /dev/zero; sleep 0.3; exit 5"),
      {}, -1, ends[1]);
  ::close(ends[1]);
  std::vector<pid_t> ids;
  REQUIRE(eventually([&] { return (ids = ids_in(run.err())).size() == 2; }));
  CHECK(all_end(ids, 10s));  // although nobody has read a byte
  run.signal(SIGTERM);
  CHECK(run.wait() == 5);
  ::close(ends[0]);

  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  ::close(ends[0]);  // nobody reads, and never will
  Run broken(script({"-n", "2"}, "seq 1 100000; echo done >&2"), {}, -1, ends[1]);
  ::close(ends[1]);
  CHECK(broken.wait() == 0);
  CHECK(sorted_lines(broken.err()) == std::vector<std::string>{"[0] done", "[1] done"});
}

TEST_CASE("signals are passed on to the ranks", "[launcher]") {
  const std::string ready = "echo ready; while true; do sleep 0.01; done";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string name = std::to_string(signal);
    Run saving(script({"-n", "2", "--max-restarts", "1"}, "trap 'echo saved; exit 0' " + name + "; " + ready));
    REQUIRE((saving.prints("[0] ready") && saving.prints("[1] ready")));
    saving.signal(signal);
    CHECK(saving.wait() == 0);
    CHECK_THAT(saving.out(), Contains("[0] saved") && Contains("[1] saved"));
    Run dying(script({"-n", "2", "--max-restarts", "1"}, ready));
    REQUIRE((dying.prints("[0] ready") && dying.prints("[1] ready")));
    dying.signal(signal);
    CHECK(dying.wait() == 128 + signal);
    CHECK_THAT(dying.err(), !Contains("again"));
  }
  Run user(script({"-n", "2"}, "trap 'echo told; exit 0' USR1; " + ready));
  REQUIRE((user.prints("[0] ready") && user.prints("[1] ready")));
  user.signal(SIGUSR1);
  CHECK(user.wait() == 0);
  CHECK_THAT(user.out(), Contains("[0] told") && Contains("[1] told"));
}

TEST_CASE("a second signal kills ranks that ignore the first", "[launcher]") {
  Run run(script({"-n", "2"}, "trap '' INT; echo pid $$; while true; do sleep 0.01; done"));
  REQUIRE((run.prints("[0] pid") && run.prints("[1] pid")));
  const auto ids = ids_in(run.out());
  run.signal(SIGINT);
  run.signal(SIGINT);  // the same, by a program that sends it twice
  std::this_thread::sleep_for(600ms);
  CHECK(is_alive(ids[0]));
  CHECK(is_alive(ids[1]));
  run.signal(SIGINT);
  CHECK(run.wait() == 128 + SIGKILL);
  CHECK(all_end(ids, 0s));
}

TEST_CASE("no rank outlives a reel-run that is killed", "[launcher]") {
  Run run(script({"-n", "3"}, "trap '' TERM HUP INT; echo pid $$; while true; do sleep 0.1; done"));
  for (const char* rank : {"[0] pid", "[1] pid", "[2] pid"}) REQUIRE(run.prints(rank));
  const auto ids = ids_in(run.out());
  REQUIRE(ids.size() == 3);
  run.signal(SIGKILL);
  run.wait();
  CHECK(all_end(ids, 2s));
}

TEST_CASE("rank 0 reads reel-run's stdin, and others nothing", "[launcher]") {
  const Folder folder;
  const int in = ::open(write(folder / "in", "text\n").c_str(), O_RDONLY | O_CLOEXEC);
  Run run(script({"-n", "2"}, "cat; echo end"), {}, in);
  ::close(in);
  CHECK(run.wait() == 0);
  CHECK(sorted_lines(run.out()) == std::vector<std::string>{"[0] end", "[0] text", "[1] end"});
}

TEST_CASE("all ranks are started again after a failure, a hundred times without a leak", "[launcher]") {
  Run run(script({"-n", "2", "--max-restarts", "100"},
                 "[ $RANK = 0 ] && echo $(ls /proc/$PPID/fd | wc -l) $(ls /proc/$PPID/task | wc -l) $REEL_STORE;"
                 "[ $TORCHELASTIC_RESTART_COUNT = 100 ] && exit 0; [ $RANK = 1 ] && kill -9 $$; exit 0"));
  CHECK(run.wait() == 0);
  auto lines = sorted_lines(run.out());
  CHECK(lines.size() == 101);
  // The pipes of the other rank may be there or not.
  std::vector<int> counts;
  for (const auto& line : lines) counts.push_back(std::stoi(line.substr(4)));
  CHECK(*std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()) < 12);
  CHECK(lines.front().substr(lines.front().find(' ', 5)) == lines.back().substr(lines.back().find(' ', 5)));
  CHECK_THAT(run.err(), Contains("started again, 100 of 100 times"));

  Run twice(script({"-n", "2", "--max-restarts", "2"}, "echo $TORCHELASTIC_RESTART_COUNT; exit 9"));
  CHECK(twice.wait() == 9);
  CHECK(sorted_lines(twice.out()) == std::vector<std::string>{"[0] 0", "[0] 1", "[0] 2", "[1] 0", "[1] 1", "[1] 2"});
}

TEST_CASE("output goes to files of --log-dir", "[launcher]") {
  const Folder folder;
  const std::string logs = folder / "logs", text = "echo out; printf err >&2";
  const auto file = [&](const char* id, const char* rest) { return contents(logs + "/" + id + "/attempt_0/" + rest); };
  Run both(script({"-n", "2", "--log-dir", logs, "--rdzv-id", "../both"}, text));
  CHECK(both.wait() == 0);
  CHECK(file("___both", "0/stdout.log") == "out\n");
  CHECK(file("___both", "1/stderr.log") == "err");
  CHECK(sorted_lines(both.out()) == std::vector<std::string>{"[0] out", "[1] out"});
  Run files(script({"-n", "2", "--log_dir", logs, "--rdzv-id", "files", "-r", "3", "-t", "1:2"}, text + "; exit 1"));
  CHECK(files.wait() == 1);
  CHECK(file("files", "0/stderr.log") == "err");
  CHECK(file("files", "1/stdout.log") == "out\n");
  CHECK(files.out().empty());
  CHECK_THAT(files.err(), !Contains("[0] err") && Contains("[1] err") && Contains("\n    err\n"));
  Run one(script({"-n", "2", "--log-dir", logs, "--rdzv-id", "one", "--tee", "1"}, text));
  CHECK(one.wait() == 0);
  CHECK(file("one", "0/stdout.log") == "out\n");
  CHECK_FALSE(std::filesystem::exists(logs + "/one/attempt_0/0/stderr.log"));
  CHECK_THAT(one.err(), Contains("[0] err"));
}
