#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <protozero/pbf_message.hpp>
#include <set>
#include <thread>

#include "lib/tensorboard/event_file.h"
#include "lib/tensorboard/histogram.h"
#include "lib/tensorboard/schema.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/tensorboard.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using tensorboard::SummaryWriter;
namespace fs = std::filesystem;
namespace tb = reel::tensorboard;

namespace {

// ---- a reader of our own --------------------------------------------------------------------------------------------

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The data of whole records; `rest` gets what comes after them.
std::vector<std::string> records_of(const fs::path& path, std::string* rest = nullptr) {
  const std::string bytes = read_bytes(path);
  std::vector<std::string> records;
  size_t at = 0;
  const auto number = [&]<class T>(size_t where, T value) {
    std::memcpy(&value, bytes.data() + where, sizeof value);
    return value;
  };
  while (bytes.size() - at >= 12) {
    const auto length = number(at, uint64_t{});
    if (bytes.size() - at - 12 < length + 4) break;
    const std::string_view record = std::string_view(bytes).substr(at + 12, length);
    REQUIRE(number(at + 8, uint32_t{}) == tb::masked_crc32c(std::string_view(bytes).substr(at, 8)));
    REQUIRE(number(at + 12 + length, uint32_t{}) == tb::masked_crc32c(record));
    records.emplace_back(record);
    at += 16 + length;
  }
  if (rest) *rest = bytes.substr(at);
  return records;
}

fs::path only_file(const fs::path& folder) {
  fs::path found;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("events.")) found = entry, ++count;
  REQUIRE(count == 1);
  return found;
}

// A message's fields by their numbers: of each, the bytes or the bits of its values, in order.
struct Message {
  std::multimap<uint32_t, std::string> fields;

  explicit Message(const std::string& data) {
    protozero::pbf_reader reader(data);
    while (reader.next()) {
      std::string value;
      const auto put = [&](auto bits) { value.assign(reinterpret_cast<const char*>(&bits), sizeof bits); };
      const uint32_t tag = reader.tag();
      switch (reader.wire_type()) {
        case protozero::pbf_wire_type::varint: put(reader.get_int64()); break;
        case protozero::pbf_wire_type::fixed64: put(reader.get_fixed64()); break;
        case protozero::pbf_wire_type::fixed32: put(reader.get_fixed32()); break;
        default: value = reader.get_string();
      }
      fields.emplace(tag, value);
    }
  }
  bool has(uint32_t field) const { return fields.count(field) > 0; }
  std::string bytes(uint32_t field) const {
    REQUIRE(fields.count(field) == 1);
    return fields.find(field)->second;
  }
  Message part(uint32_t field) const { return Message(bytes(field)); }
  template <class T>
  T number(uint32_t field) const {
    T value;
    const std::string bits = bytes(field);
    REQUIRE(bits.size() == sizeof value);
    std::memcpy(&value, bits.data(), sizeof value);
    return value;
  }
  std::vector<double> doubles(uint32_t field) const {
    const std::string bits = bytes(field);
    std::vector<double> values(bits.size() / sizeof(double));
    std::memcpy(values.data(), bits.data(), bits.size());
    return values;
  }
};

struct Value : Message {
  int64_t step;
  explicit Value(const std::string& record)
      : Message(Message(record).part(tb::event::kSummary).bytes(tb::summary::kValue)),
        step(Message(record).number<int64_t>(tb::event::kStep)) {}
  std::string tag() const { return bytes(tb::value::kTag); }
};
std::vector<Value> values_of(const fs::path& folder) {
  std::vector<Value> values;
  for (const std::string& record : records_of(only_file(folder)))
    if (Message(record).has(tb::event::kSummary)) values.emplace_back(record);
  return values;
}

// The pixels of what the writer makes: one chunk of rows that are not filtered.
std::string unpack_png(const std::string& png, int64_t height, int64_t row) {
  REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  const size_t at = png.find("IDAT");
  REQUIRE(at != std::string::npos);
  std::string rows(static_cast<size_t>(height * (row + 1)), '\0'), pixels;
  uLongf size = rows.size();
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(png.data() + at + 4),
                     png.size() - at - 4) == Z_OK);
  REQUIRE(size == rows.size());
  for (int64_t y = 0; y < height; ++y) {
    REQUIRE(rows[static_cast<size_t>(y * (row + 1))] == 0);
    pixels += rows.substr(static_cast<size_t>(y * (row + 1) + 1), static_cast<size_t>(row));
  }
  return pixels;
}

}  // namespace

// ---- the format -----------------------------------------------------------------------------------------------------

TEST_CASE("records have TensorFlow's checksums", "[tensorboard]") {
  // RFC 3720, B.4: 32 zero bytes have the CRC 0x8A9136AA; 0xE3069283 is the usual check value of "123456789".
  const auto mask = [](uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; };
  CHECK(tb::masked_crc32c(std::string(32, '\0')) == mask(0x8A9136AA));
  CHECK(tb::masked_crc32c("123456789") == mask(0xE3069283));
}

TEST_CASE("a log begins with its version, and a scalar is these bytes", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_scalar("loss", full({1, 1}, 0.5), 300);
  CHECK_THROWS_WITH(log.add_scalar("loss", ones({2}), 300), "add_scalar: loss is a tensor [2], not one number");
  CHECK_THROWS_WITH(log.add_scalar("loss", Tensor(), 300), "add_scalar: loss is undefined, not one number");
  const auto records = records_of(only_file(folder.path));
  REQUIRE(records.size() == 2);
  // wall_time, then file_version; step 300; summary { value { tag, simple_value } }
  CHECK(records[0].substr(9) ==
        "\x1a\x0d"
        "brain.Event:2");
  CHECK(records[1].substr(9) == "\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f"s);
  CHECK(records[1].substr(0, 1) == "\x09");
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  CHECK(std::abs(Message(records[1]).number<double>(tb::event::kWallTime) - now) < 100);
}

TEST_CASE("values that are not finite are logged", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_scalar("nan", std::nan(""), 0);
  log.add_scalar("infinite", -std::numeric_limits<double>::infinity(), 1);
  const auto values = values_of(folder.path);
  REQUIRE(values.size() == 2);
  CHECK(std::isnan(values[0].number<float>(tb::value::kSimpleValue)));
  CHECK(values[1].number<float>(tb::value::kSimpleValue) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("each writer has a file of its own, and a continued run says where", "[tensorboard]") {
  const Folder folder;
  const SummaryWriter first(folder.path), second(folder.path, {.purge_step = 70, .filename_suffix = ".resumed"});
  CHECK(folder.count() == 2);
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    const bool resumed = entry.path().extension() == ".resumed";
    const auto records = records_of(entry);
    REQUIRE(records.size() == (resumed ? 2 : 1));
    if (!resumed) continue;
    CHECK(Message(records[1]).number<int64_t>(tb::event::kStep) == 70);
    CHECK(Message(records[1]).part(tb::event::kSessionLog).number<int64_t>(tb::session_log::kStatus) == 1);
  }
}

TEST_CASE("of several ranks the first writes, or each in its folder", "[tensorboard]") {
  const Folder folder;
  SummaryWriter silent(folder.path, {.rank = 1});
  silent.add_scalar("a", 1, 0), silent.add_text("a", "b", 0), silent.add_scalars("a", {{"b", 1}}, 0), silent.flush();
  silent.add_embedding(ones({2, 2}), {}, "words");
  CHECK(folder.count() == 0);
  SummaryWriter second(folder.path, {.rank = 1, .every_rank = true});
  second.add_scalar("a", 1, 0);
  CHECK(values_of(folder / "rank1").size() == 1);
}

TEST_CASE("scalars of one chart are runs", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  for (int step = 0; step < 3; ++step) log.add_scalars("loss/all", {{"train", 1. + step}, {"dev", 2}}, step);
  log.flush();
  CHECK(values_of(folder.path).empty());
  const auto train = values_of(folder / "loss_all_train");
  REQUIRE(train.size() == 3);
  CHECK(train[2].tag() == "loss/all");
  CHECK(train[2].number<float>(tb::value::kSimpleValue) == 3);
  CHECK(values_of(folder / "loss_all_dev").size() == 3);
}

// ---- histograms -----------------------------------------------------------------------------------------------------

TEST_CASE("histograms count each value in its bucket", "[tensorboard][cpu]") {
  std::vector<double> values{0,
                             -0.,
                             1e-12,
                             -1e-12,
                             1e-13,
                             -1e-13,
                             5e-324,
                             1e20,
                             -1e20,
                             3e20,
                             -3e20,
                             1e300,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::lowest(),
                             1,
                             -1};
  double bound = 1e-12;
  for (int i = 0; i < 700; ++i, bound *= 1.1)
    for (const double x : {bound, std::nextafter(bound, 0), std::nextafter(bound, 1e300)})
      values.insert(values.end(), {x, -x});
  manual_seed(3);
  const Tensor random = randn({5000}, {.dtype = kFloat64}) * exp(randn({5000}, {.dtype = kFloat64}) * 9);
  values.insert(values.end(), random.data<double>(), random.data<double>() + random.numel());
  const tb::Histogram found = tb::Histogram::of(std::span<const double>(values));
  REQUIRE(found.limits.size() == found.counts.size());
  CHECK(found.counted == static_cast<int64_t>(values.size()));
  std::vector<double> expected(found.counts.size());
  for (const double x : values) {
    const auto bucket = std::upper_bound(found.limits.begin(), found.limits.end(), x) - found.limits.begin();
    ++expected[static_cast<size_t>(std::min<ptrdiff_t>(bucket, std::ssize(expected) - 1))];
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("bucket " << i << " below " << found.limits[i]);
    REQUIRE(found.counts[i] == expected[i]);
  }
  CHECK(std::is_sorted(found.limits.begin(), found.limits.end()));
}

TEST_CASE("histograms of tensors of all kinds", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  log.add_histogram("float", tensor({1., nan, -2., inf, 3., -inf}), 7);
  log.add_histogram("bool", tensor({1, 0, 1}).to(kBool), 7);
  log.add_histogram("int", arange(10).reshape({2, 5}).t(), 7);
  log.add_histogram("half", tensor({0.5, 0.25}).to(kBFloat16), 7);
  log.add_histogram("parameter", ones({3}).requires_grad_(), 7);
  log.add_histogram("none", full({2}, nan), 7);
  const auto values = values_of(folder.path);
  REQUIRE(values.size() == 6);
  namespace field = tb::histogram;
  const Message mixed = values[0].part(tb::value::kHisto), whole = values[2].part(tb::value::kHisto);
  CHECK(mixed.number<double>(field::kNum) == 3);
  CHECK(mixed.number<double>(field::kMin) == -2);
  CHECK(mixed.number<double>(field::kMax) == 3);
  CHECK(mixed.number<double>(field::kSum) == 2);
  CHECK(mixed.number<double>(field::kSumSquares) == 14);
  const auto counts = mixed.doubles(field::kBucket), limits = mixed.doubles(field::kBucketLimit);
  CHECK(counts.size() == limits.size());
  CHECK(counts.front() == 1);
  CHECK(counts.back() == 1);
  CHECK(limits.back() > 3);
  CHECK(values[0].part(tb::value::kMetadata).bytes(tb::metadata::kDescription) ==
        "At step 7 not counted: 1 NaN, 2 infinite, of 6 values.");
  CHECK(!values[2].has(tb::value::kMetadata));
  CHECK(whole.number<double>(field::kNum) == 10);
  CHECK(whole.number<double>(field::kSum) == 45);
  CHECK(values[1].part(tb::value::kHisto).number<double>(field::kSum) == 2);
  CHECK(values[3].part(tb::value::kHisto).number<double>(field::kSum) == 0.75);
  CHECK(values[4].part(tb::value::kHisto).doubles(field::kBucket) == std::vector<double>{3});
  CHECK(values[5].part(tb::value::kHisto).number<double>(field::kNum) == 0);
}

// ---- pictures, text, tables -----------------------------------------------------------------------------------------

TEST_CASE("pictures are PNG", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_image("grey", tensor({{0., 1., 0.5}, {0.25, 0.002, 0.999}}), 0);
  log.add_image("rgb", arange(24).reshape({3, 2, 4}).to(kUInt8), 1);
  log.add_image("rgba", zeros({4, 1, 1}), 2);
  const auto values = values_of(folder.path);
  REQUIRE(values.size() == 3);
  const Message grey = values[0].part(tb::value::kImage), rgb = values[1].part(tb::value::kImage);
  CHECK(grey.number<int64_t>(tb::image::kHeight) == 2);
  CHECK(grey.number<int64_t>(tb::image::kWidth) == 3);
  CHECK(grey.number<int64_t>(tb::image::kColorspace) == 1);
  CHECK(unpack_png(grey.bytes(tb::image::kEncoded), 2, 3) == "\x00\xff\x80\x40\x01\xff"s);
  CHECK(unpack_png(rgb.bytes(tb::image::kEncoded), 2, 12).substr(0, 6) == "\x00\x08\x10\x01\x09\x11"s);
  CHECK(values[2].part(tb::value::kImage).number<int64_t>(tb::image::kColorspace) == 4);
}

TEST_CASE("text, hyperparameters and points", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_text("notes", "*naïve*", 3);
  log.add_hparams({{"lr", 0.1}, {"layers", 2}, {"optimizer", "adam"}, {"bias", true}}, {{"accuracy", 92.}});
  CHECK_THROWS_WITH(log.add_hparams({{"lr", 0.2}}, {}), Contains("has hyperparameters already"));
  log.add_embedding(tensor({{1., 2.}, {3., 4.}}), {"one", "two"}, "words/a");
  log.add_embedding(ones({3, 2}), {}, "plain", 5);
  const auto values = values_of(folder.path);
  REQUIRE(values.size() == 5);
  CHECK(values[0].tag() == "notes/text_summary");
  CHECK(values[0].part(tb::value::kTensor).bytes(tb::tensor::kStringValue) == "*naïve*");
  CHECK(values[1].tag() == "_hparams_/experiment");
  CHECK(values[3].tag() == "accuracy");
  const Message start(values[2].part(tb::value::kMetadata).part(tb::metadata::kPluginData).part(2).bytes(3));
  CHECK(start.fields.count(tb::hparams::kValues) == 4);
  CHECK(read_bytes(folder / "0_words%2fa/metadata.tsv") == "one\ntwo\n");
  CHECK(read_bytes(folder / "0_words%2fa/tensors.bytes").size() == 16);
  CHECK_THAT(read_bytes(folder / "projector_config.pbtxt"), Contains("words%2fa:0") && Contains("plain:5"));
}

TEST_CASE("points of other tags and of earlier writers stay", "[tensorboard]") {
  const Folder folder;
  const auto entries = [&] {
    const std::string text = read_bytes(folder / "projector_config.pbtxt");
    int count = 0;
    for (size_t at = 0; (at = text.find("embeddings {", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  {
    SummaryWriter log(folder.path);
    log.add_embedding(ones({2, 1}), {}, "a/b");
    log.add_embedding(ones({3, 1}), {}, "a_b");  // not the same file
    log.add_embedding(ones({4, 1}), {}, "a\\b \"c\"\n%2f");
  }
  CHECK(read_bytes(folder / "0_a%2fb/tensors.bytes").size() == 8);
  CHECK(read_bytes(folder / "0_a_b/tensors.bytes").size() == 12);
  CHECK(read_bytes(folder / "0_a%5cb %22c%22%0a%252f/tensors.bytes").size() == 16);
  CHECK(entries() == 3);
  SummaryWriter log(folder.path, {.purge_step = 1});
  log.add_embedding(ones({1, 1}), {}, "a/b", 1);
  CHECK(entries() == 4);
  log.add_embedding(ones({5, 1}), {}, "a_b");
  CHECK(entries() == 4);
  CHECK_THAT(read_bytes(folder / "projector_config.pbtxt"),
             Contains("tensor_shape: 5") && !Contains("tensor_shape: 3"));
  CHECK_THROWS_WITH(log.add_embedding(ones({1, 1}), {}, std::string(300, 'a')), Contains("cannot make the folder"));
  CHECK_THROWS_WITH(log.add_embedding(ones({1, 1}), {}, "a\0b"s), Contains("a zero byte"));
}

TEST_CASE("the graph of a model shows what is used but not registered", "[tensorboard]") {
  struct Net : nn::Layer<Net> {
    nn::Linear known{*this, "known", 4, 8};
    nn::Linear forgotten{8, 2};
    Tensor forward(const Tensor& x) { return forgotten(known(x)); }
  } net;
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_graph(net, {randn({3, 4})});
  const std::string bytes = contents(only_file(folder.path));
  CHECK_THAT(bytes, Contains("used_but_not_registered/tensor_") && Contains("known/weight"));
}

TEST_CASE("the graph of a model has its modules as scopes", "[tensorboard]") {
  struct Net : nn::Layer<Net> {
    nn::Linear hidden{*this, "hidden", 4, 8};
    nn::BatchNorm1d norm{*this, "norm", 8};
    nn::Linear out{*this, "out", 8, 2};
    Tensor forward(const Tensor& x) { return out(relu(norm(hidden(x)))); }
  } net;
  const Folder folder;
  SummaryWriter log(folder.path);
  const Tensor before = net.norm.running_mean.clone();
  log.add_graph(net, {randn({3, 4})});
  CHECK(net.is_training());
  CHECK(!net.hidden.weight.grad().defined());
  CHECK(equal(before, net.norm.running_mean));
  CHECK_THROWS_WITH(log.add_graph(net, {ones({3, 4}), ones({3, 4})}), Contains("cannot be called with 2 tensors"));
  const auto records = records_of(only_file(folder.path));
  REQUIRE(records.size() == 2);
  std::set<std::string> names, sources;
  const Message graph = Message(records[1]).part(tb::event::kGraphDef);
  const auto [begin, end] = graph.fields.equal_range(tb::graph::kNode);
  for (auto node = begin; node != end; ++node) {
    const Message fields(node->second);
    CHECK(names.insert(fields.bytes(tb::graph::kName)).second);
    const auto [first, last] = fields.fields.equal_range(tb::graph::kInput);
    for (auto source = first; source != last; ++source) sources.insert(source->second);
  }
  for (const std::string& source : sources) CHECK(names.count(source.substr(0, source.find(':'))) == 1);
  for (const char* name : {"input_0", "output_0", "hidden/weight", "norm/bias", "out/bias"}) CHECK(names.count(name));
  const auto has_op_in = [&](const std::string& scope) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with(scope + "/") && name.find('_', scope.size()) != std::string::npos;
    });
  };
  CHECK(has_op_in("hidden"));
  CHECK(has_op_in("norm"));
  CHECK(has_op_in("out"));
}

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST_CASE("what cannot be logged is refused, and the log goes on", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  CHECK_THROWS_WITH(log.add_scalar("", 1, 0), Contains("add_scalar: the tag is empty"));
  CHECK_THROWS_WITH(log.add_scalar("a", 1, -1), Contains("'a' at step -1"));
  CHECK_THROWS_WITH(log.add_scalar("a\xff", 1, 0), Contains("byte 1, 0xff, is not UTF-8"));
  CHECK_THROWS_WITH(log.add_text("a", "\xc3", 0), Contains("add_text: the text: byte 0"));
  CHECK_THROWS_WITH(log.add_histogram("a", zeros({0}), 0), Contains("add_histogram: 'a' of no values"));
  CHECK_THROWS_WITH(log.add_histogram("a", Tensor(), 0), Contains("of no values"));
  CHECK_THROWS_WITH(log.add_image("a", zeros({2, 3, 3}), 0), Contains("has 2 channels"));
  CHECK_THROWS_WITH(log.add_image("a", zeros({3}), 0), Contains("expected [C, H, W]"));
  CHECK_THROWS_WITH(log.add_image("a", zeros({1, 0, 3}), 0), Contains("0 x 3"));
  CHECK_THROWS_WITH(log.add_image("a", full({2, 2}, 255.), 0), Contains("values from 255 to 255"));
  CHECK_THROWS_WITH(log.add_image("a", full({2, 2}, std::nan("")), 0), Contains("[0, 1]"));
  CHECK_THROWS_WITH(log.add_image("a", zeros({2, 2}).to(kInt64), 0), Contains("expected uint8"));
  CHECK_THROWS_WITH(log.add_hparams({{"", 1}}, {}), Contains("the tag is empty"));
  CHECK_THROWS_WITH(log.add_embedding(ones({2, 2}), {"a"}, "t"), Contains("1 labels for vectors [2, 2]"));
  CHECK_THROWS_WITH(log.add_embedding(ones({2, 2}), {"a", "b\n"}, "t"), Contains("a tab or a line break"));
  CHECK_THROWS_WITH(log.add_embedding(ones({2}), {}, "t"), Contains("expected vectors [n, d]"));
  CHECK_THROWS_WITH(SummaryWriter("/proc/no/such"), Contains("cannot make the folder"));
  CHECK_THROWS_WITH(SummaryWriter(folder.path, {.purge_step = -2}), Contains("purge_step -2"));
  log.add_scalar("a", 1, 0);
  CHECK(records_of(only_file(folder.path)).size() == 2);
}

TEST_CASE("a disk that is full costs the record that does not fit", "[tensorboard]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_scalar("a", 1, 0);
  const fs::path file = only_file(folder.path);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = fs::file_size(file) + 20;
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_WITH(log.add_text("b", std::string(1000, 'x'), 1), Contains("it ends with the last whole record"));
  setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  log.add_scalar("c", 1, 2);
  std::string rest;
  CHECK(records_of(file, &rest).size() == 3);
  CHECK(rest.empty());
}

TEST_CASE("threads share a writer", "[tensorboard][threads]") {
  const Folder folder;
  SummaryWriter log(folder.path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int step = 0; step < 200; ++step) log.add_scalar("thread" + std::to_string(t), step, step);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(records_of(only_file(folder.path)).size() == 801);
}

TEST_CASE("a killed process leaves all whole records", "[tensorboard][cpu]") {
  const char* const kills = std::getenv("REEL_TEST_KILLS");
  const Folder folder;
  for (int kill = 0, count = kills ? std::atoi(kills) : 20; kill < count; ++kill) {
    fs::remove_all(folder.path);
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      SummaryWriter log(folder.path);
      for (int step = 0;; ++step) {
        log.add_scalar("loss", step, step);
        if (::write(pipe_ends[1], &step, sizeof step) != sizeof step) ::_exit(1);  // this step is logged
      }
    }
    ::close(pipe_ends[1]);
    int last = -1, step = -1;
    for (int i = 0; i < 1 + kill % 50 && ::read(pipe_ends[0], &step, sizeof step) == sizeof step; ++i) last = step;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe_ends[0], &step, sizeof step) == sizeof step) last = step;
    ::close(pipe_ends[0]);
    const auto records = records_of(only_file(folder.path));
    REQUIRE(static_cast<int>(records.size()) >= last + 2);  // the version comes first
    for (size_t i = 1; i < records.size(); ++i) REQUIRE(Value(records[i]).step == static_cast<int64_t>(i) - 1);
  }
}

TEST_CASE("TensorBoard reads what is logged", "[tensorboard]") {
  const char* const python = std::getenv("PYTHON");
  const std::string command = (python ? "'"s + python : "'python3"s) + "' ";
  if (std::system((command + "-c 'import tensorboard' 2>/dev/null").c_str()) != 0) return;
  const Folder folder;
  SummaryWriter log(folder.path);
  log.add_scalar("loss", 0.25, 3);
  log.add_histogram("weights", tensor({1., 2., -4.}), 3);
  log.add_histogram("none", full({2}, std::nan("")), 3);
  log.add_image("picture", rand({3, 5, 4}), 3);
  log.add_text("notes", "naïve", 3);
  log.add_hparams({{"lr", 0.1}, {"optimizer", "adam"}}, {{"accuracy", 92.}}, 3);
  log.add_embedding(ones({2, 3}), {"a", "b"}, "some/\"words\"\n", 3);
  struct Net : nn::Layer<Net> {
    nn::Linear fc{*this, "fc", 4, 8};
    Tensor forward(const Tensor& x) const { return relu(fc(x)); }
  } net;
  log.add_graph(net, {ones({1, 4})});
  CHECK(std::system((command + "test/tensorboard/read.py '" + folder.path.string() + "'").c_str()) == 0);
}
