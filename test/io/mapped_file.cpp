// Tests of files that are mapped, of checksums, and of reading on several threads.
#include "lib/io/mapped_file.h"

#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "lib/io/checksum.h"
#include "lib/io/elements.h"
#include "lib/io/tensor_file.h"
#include "reel/autograd.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

constexpr TensorOptions on_host{.device = kCPU};

// Returns how many mappings of a file this process has.
int mappings_of(const fs::path& path) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(path.string()) != std::string::npos;
  return count;
}

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

bool same(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || a[i].second.dtype() != b[i].second.dtype() || !equal(a[i].second, b[i].second))
      return false;
  return true;
}

}  // namespace

TEST_CASE("a mapped file has the tensors of one that is read", "[cpu]") {
  const Folder folder;
  StateDict dict;
  for (const DType type : {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    dict.emplace_back(name_of(type), tensor({{0, 1, 1}, {1, 0, 1}}).to(type));
  dict.emplace_back("scalar", full({}, 7.0, {.dtype = kFloat64}));
  dict.emplace_back("empty", empty({3, 0, 2}));
  const fs::path path = folder / "all.safetensors";
  io::save(dict, path);
  CHECK(same(io::load(path, {.mmap = true}), dict));
  CHECK(same(io::load(path, {.verify = false, .mmap = true}), dict));
  CHECK(same(io::load(path, {.prefix = "float", .mmap = true}), io::load(path, {.prefix = "float"})));

  // Data at odd addresses, and integers of types that are converted.
  const std::string header = R"({"i":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},)"
                             R"("x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  for (const size_t padding : {0, 1, 2, 3}) {
    const std::string padded = header + std::string(padding, ' ');
    const uint64_t length = padded.size();
    write(path, std::string(reinterpret_cast<const char*>(&length), 8) + padded + "\x01\0\xff\xff\0\0\x80\x3f"s);
    const StateDict mapped = io::load(path, {.mmap = true});
    CHECK(equal(mapped["i"], tensor({1, -1}, {.dtype = kInt32, .device = kCPU})));
    CHECK(mapped["x"].item<float>() == 1);
  }
}

TEST_CASE("a mapped tensor that is changed in place leaves the file and its other mappings alone", "[cpu]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({1000}, on_host)}, {"y", zeros({1000}, on_host)}}, path);
  const std::string before = contents(path);
  const StateDict first = io::load(path, {.mmap = true}), second = io::load(path, {.mmap = true});
  Tensor(first["x"]).fill_(7);
  CHECK(equal(first["x"], full({1000}, 7., on_host)));
  CHECK(equal(first["y"], zeros({1000}, on_host)));
  CHECK(equal(second["x"], ones({1000}, on_host)));
  CHECK(contents(path) == before);

  // Other tensors of the file do not count as changed: each has a version of its own.
  Tensor x = first["x"], y = Tensor(first["y"]).requires_grad_();
  const Tensor loss = sum(y * y);
  x.fill_(1);
  loss.backward();
}

TEST_CASE("a file that is replaced while it is mapped stays as it was in the mapping", "[cpu]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({10000}, on_host)}}, path);
  const StateDict old = io::load(path, {.verify = false, .mmap = true});
  io::save({{"x", zeros({5}, on_host)}}, path);
  CHECK(equal(old["x"], ones({10000}, on_host)));
  const StateDict mapped = io::load(path, {.mmap = true});
  CHECK(equal(mapped["x"], zeros({5}, on_host)));
  io::save({{"copy", mapped["x"]}, {"old", old["x"]}}, path);  // what is written lies in the file that is replaced
  CHECK(equal(io::load(path)["copy"], zeros({5}, on_host)));
  CHECK(equal(io::load(path)["old"], ones({10000}, on_host)));
}

TEST_CASE("a mapping lasts as long as one of its tensors", "[cpu]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({3}, on_host)}, {"y", ones({4}, on_host)}}, path);
  {
    Tensor row = io::load(path, {.mmap = true})["y"][1];
    CHECK(mappings_of(path) == 1);
    CHECK(row.item<float>() == 1);
  }
  CHECK(mappings_of(path) == 0);
  nn::Linear net(3, 2), other(3, 2);
  io::save(net, path);
  io::load(other, path, {.mmap = true});
  CHECK(equal(net.weight, other.weight));
  CHECK(mappings_of(path) == 0);  // a module has copies
}

TEST_CASE("damage of a mapped file is noticed", "[cpu]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({10}, on_host)}, {"b", zeros({3}, {.dtype = kBool, .device = kCPU})}}, path);
  const std::string whole = contents(path);
  std::string bytes = whole;
  bytes[bytes.size() - 10] ^= 1;  // of x
  write(path, bytes);
  CHECK_THROWS_WITH(io::load(path, {.mmap = true}), Contains("'x': the data are damaged"));
  CHECK(io::load(path, {.verify = false, .mmap = true}).size() == 2);
  bytes = whole;
  bytes.back() = 2;
  write(path, bytes);
  CHECK_THROWS_WITH(io::load(path, {.verify = false, .mmap = true}), Contains("a bool is 2"));
  for (const size_t length : {whole.size() - 1, whole.size() / 2, size_t{9}}) {
    write(path, whole.substr(0, length));
    CHECK_THROWS_AS(io::load(path, {.mmap = true}), Error);
  }
}

TEST_CASE("a file that becomes shorter before it is mapped or read is an Error", "[cpu]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({1 << 20}, on_host)}}, path);
  const io::TensorFile file(path);
  REQUIRE(::truncate(path.c_str(), 1000) == 0);
  CHECK_THROWS_WITH(file.load({.mmap = true}), Contains("it has become shorter"));
  CHECK_THROWS_WITH(file.load(), Contains("where more was expected"));
  CHECK_THROWS_WITH(file.verify(), Contains("where more was expected"));
}

TEST_CASE("checksums are those of zlib, whatever the size, the alignment and the number of threads", "[threads]") {
  const std::string bytes = random_bytes(3 * io::kPiece + 12345);
  const auto zlib = [&](size_t begin, size_t size) {
    return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + begin), size));
  };
  for (size_t size = 0; size < 600; ++size)
    for (const size_t begin : {0, 1, 7, 64}) REQUIRE(io::crc_of(bytes.data() + begin, size) == zlib(begin, size));
  CHECK(io::crc_of(bytes.data() + 100, bytes.size() - 100, zlib(0, 100)) == zlib(0, bytes.size()));
  CHECK(io::crc_of(nullptr, 0, 5) == 5);
  const int threads = num_threads();
  for (const int number : {1, 2, 3}) {
    set_num_threads(number);
    for (const auto size : {int64_t{0}, int64_t{1}, io::kPiece, io::kPiece + 1, static_cast<int64_t>(bytes.size())})
      CHECK(io::crc_of_pieces(size, [&](int64_t begin, int64_t part) {
              return io::crc_of(bytes.data() + begin, static_cast<size_t>(part));
            }) == zlib(0, static_cast<size_t>(size)));
  }
  set_num_threads(threads);
}

TEST_CASE("large tensors are saved and loaded on several threads, and a changed bit anywhere is noticed", "[threads]") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  const int threads = num_threads();
  set_num_threads(3);
  const StateDict dict = {{"x", randn({1 << 20, 9}, on_host)}, {"y", randn({100}, on_host)}};  // 36 MiB and a little
  io::save(dict, path);
  for (const bool mmap : {false, true}) CHECK(same(io::load(path, {.mmap = mmap}), dict));
  const auto size = static_cast<int64_t>(fs::file_size(path));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const int64_t at : {size - 1, size - 500, size - (1 << 20), size - (20 << 20), int64_t{2000}}) {
    INFO(at);
    file.seekg(at);
    const auto old = static_cast<char>(file.get());
    const auto put = [&](char byte) { file.seekp(at).put(byte).flush(); };
    put(static_cast<char>(old ^ 16));
    for (const bool mmap : {false, true}) CHECK_THROWS_WITH(io::load(path, {.mmap = mmap}), Contains("are damaged"));
    CHECK_THROWS_WITH(io::TensorFile(path).verify(), Contains("are damaged"));
    put(old);
  }
  io::TensorFile(path).verify();
  set_num_threads(threads);
}

TEST_CASE("a mapped .pt file has the tensors of one that is read, and their shared memory", "[cpu]") {
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("test/reference/torch")) {
    INFO(entry.path());
    StateDict read;
    try {
      read = io::load(entry.path());
    } catch (const Error&) {
      continue;
    }
    const std::string before = contents(entry.path());
    const StateDict mapped = io::load(entry.path(), {.mmap = true});
    CHECK(same(mapped, read));
    const auto sharing = [](const StateDict& dict) {
      std::vector<bool> shared;
      for (const auto& [name, a] : dict)
        for (const auto& [other, b] : dict) shared.push_back(a.numel() && io::bytes_of(a) == io::bytes_of(b));
      return shared;
    };
    CHECK(sharing(mapped) == sharing(read));
    ++files;
  }
  CHECK(files > 3);
}

TEST_CASE("damaged weights in a mapped .pt file are noticed, and changed ones stay out of it", "[cpu]") {
  const Folder folder;
  std::string bytes = contents("test/reference/torch/tensor.pt");
  const float five = 5;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&five), 4));
  REQUIRE(at != std::string::npos);
  write(folder / "x.pt", bytes);
  for (auto& [name, x] : io::load(folder / "x.pt", {.mmap = true})) Tensor(x).zero_();
  CHECK(contents(folder / "x.pt") == bytes);
  bytes[at] ^= 1;
  write(folder / "x.pt", bytes);
  CHECK_THROWS_WITH(io::load(folder / "x.pt", {.mmap = true}), Contains("its data are damaged"));
  CHECK(io::load(folder / "x.pt", {.verify = false, .mmap = true}).size() == 1);
}
