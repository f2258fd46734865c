#include "reel/io/npy.h"

#include <cstring>

#include "lib/io/zip.h"
#include "reel/io/safetensors.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
namespace fs = std::filesystem;

namespace {

const fs::path kNumPy = "test/reference/numpy";  // written by NumPy, see test/reference/numpy.py

// A version 1 file with this header.
std::string npy(const std::string& header, const std::string& data = "") {
  const auto length = static_cast<uint16_t>(header.size());
  return "\x93NUMPY\1\0"s + std::string(reinterpret_cast<const char*>(&length), 2) + header + data;
}

StateDict some_tensors() {
  manual_seed(1);
  return {{"weights", randn({7, 5})},
          {"nested/name", arange(40)},
          {"scalar", full({}, 2.5)},
          {"empty", zeros({0, 3})},
          {"mask", tensor({1, 0, 1}).to(kBool)}};
}

void check_equal(const StateDict& got, const StateDict& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].first == expected[i].first);
    CHECK(got[i].second.dtype() == expected[i].second.dtype());
    CHECK(equal(got[i].second, expected[i].second));
  }
}

}  // namespace

TEST_CASE("arrays of every type and layout that NumPy writes are read", "[cpu]") {
  const Tensor grid = arange(6).view({2, 3}) - 2;
  for (const auto& [name, dtype] : {std::pair{"i1", kInt32},
                                    {"i2", kInt32},
                                    {"i4", kInt32},
                                    {"i8", kInt64},
                                    {"f2", kFloat16},
                                    {"f4", kFloat32},
                                    {"f8", kFloat64},
                                    {"i4_big", kInt32},
                                    {"f8_big", kFloat64},
                                    {"i2_big", kInt32},
                                    {"f4_fortran", kFloat32}}) {
    INFO(name);
    const Tensor x = io::load_npy(kNumPy / (std::string(name) + ".npy"));
    CHECK(x.dtype() == dtype);
    CHECK(x.is_contiguous());
    CHECK(equal(x, grid.to(dtype)));
  }
  for (const auto& [name, dtype] : {std::pair{"u1", kUInt8}, {"u2", kInt32}, {"u4", kInt64}}) {
    INFO(name);
    const Tensor x = io::load_npy(kNumPy / (std::string(name) + ".npy"));
    CHECK(x.dtype() == dtype);
    CHECK(equal(x, (grid + 250).to(dtype)));
  }
  CHECK(equal(io::load_npy(kNumPy / "b1.npy"), grid > 0));
  CHECK(io::load_npy(kNumPy / "scalar.npy").shape() == Shape{});
  CHECK(io::load_npy(kNumPy / "empty.npy").shape() == Shape{0, 3});
  CHECK(io::load_npy(kNumPy / "version2.npy").to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3});
  CHECK_THROWS_WITH(io::load_npy(kNumPy / "complex.npy"), Contains("reel has no dtype for '<c16'"));
  CHECK_THROWS_WITH(io::load_npy(kNumPy / "u8.npy"), Contains("reel has no dtype for '<u8'"));
  CHECK_THROWS_WITH(io::load_npy(kNumPy / "text.npy"), Contains("reel has no dtype for '<U2'"));
  CHECK_THROWS_WITH(io::load_npy(kNumPy / "records.npy"), Contains("an array of records"));
}

TEST_CASE("npz files that NumPy writes are read", "[cpu]") {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const StateDict arrays = io::load_npz(kNumPy / name);
    REQUIRE(arrays.size() == 3);
    CHECK(arrays[0].first == "x");
    CHECK(equal(arrays[0].second, arange(1000).to(kFloat32).view({10, 100})));
    CHECK(equal(*find(arrays, "ünï"), tensor({1, 2})));
    CHECK(find(arrays, "none")->shape() == Shape{0});
  }
}

TEST_CASE("arrays are written as NumPy writes them", "[cpu]") {
  const Folder folder;
  const Tensor grid = arange(6).view({2, 3}) - 2;
  for (const char* name : {"i4", "i8", "f2", "f4", "f8", "u1", "b1", "scalar", "empty"}) {
    INFO(name);
    const fs::path path = kNumPy / (std::string(name) + ".npy");
    io::save_npy(io::load_npy(path), folder / "x.npy");
    CHECK(contents(folder / "x.npy") == contents(path));
  }
  io::save_npy(grid.t(), folder / "t.npy");
  CHECK(equal(io::load_npy(folder / "t.npy"), grid.t()));
  CHECK(equal(io::load_npy(write_gzip(folder / "t.npy.gz", contents(folder / "t.npy"))), grid.t()));
  CHECK_THROWS_WITH(io::save_npy(grid.to(kBFloat16), folder / "x.npy"), Contains("NumPy has no bfloat16"));
  CHECK_THROWS_WITH(io::save_npy(Tensor(), folder / "x.npy"), Contains("is undefined"));
  CHECK(folder.count() == 3);
}

TEST_CASE("npz files are written and read again", "[cpu]") {
  const Folder folder;
  const StateDict tensors = some_tensors();
  for (const bool compressed : {false, true}) {
    io::save_npz(tensors, folder / "x.npz", {.compressed = compressed});
    check_equal(io::load_npz(folder / "x.npz"), tensors);
  }
  io::save_npz({}, folder / "none.npz");
  CHECK(io::load_npz(folder / "none.npz").empty());
  CHECK_THROWS_WITH(io::save_npz({{"x", ones({1})}, {"x", ones({1})}}, folder / "y"), Contains("'x' is given twice"));
  CHECK_THROWS_WITH(io::save_npz({{"x", Tensor()}}, folder / "y"), Contains("'x' is undefined"));
  CHECK_THROWS_WITH(io::save_npz({{"x", ones({1}, {.dtype = kBFloat16})}}, folder / "y"),
                    Contains("'x': NumPy has no"));
  CHECK_FALSE(fs::exists(folder / "y"));
}

TEST_CASE("an array of text does not keep the others of an npz from being loaded") {
  const Folder folder;
  io::AtomicFile file(folder / "x.npz");
  io::ZipWriter zip(file, true);
  for (const char* name : {"i4", "text", "f8"}) {
    const std::string array = contents(kNumPy / (name + ".npy"s));
    zip.add(name + ".npy"s, {array});
  }
  zip.add("README", {"text"s});
  zip.finish();
  file.commit();
  CHECK_THROWS_WITH(io::load_npz(folder / "x.npz"), Contains("'text.npy'") && Contains("no dtype for '<U2'"));
  std::vector<std::string> names;
  const StateDict some = io::load_npz(folder / "x.npz", {.keep = [&](std::string_view name) {
                                        names.emplace_back(name);
                                        return name.size() == 2;
                                      }});
  CHECK(names == std::vector<std::string>{"i4", "text", "f8", "README"});
  REQUIRE(some.size() == 2);
  CHECK(some["i4"].dtype() == kInt32);
  CHECK(some["f8"].dtype() == kFloat64);
  CHECK_THROWS_WITH(io::load_npz(folder / "x.npz", {.keep = [](std::string_view name) { return name == "README"; }}),
                    Contains("'README' is not a .npy"));
}

TEST_CASE("zip files of any size are written with 64-bit fields where they need them") {
  const Folder folder;
  for (const int64_t from : {0, 200, 400}) {
    io::AtomicFile file(folder / "x.zip");
    io::ZipWriter zip(file, false, from);
    const std::string first(150, 'a'), second(300, 'b');
    zip.add("one", {first});
    zip.add("two", {second});
    zip.finish();
    file.commit();
    const io::InputFile back(folder / "x.zip");
    const auto entries = io::read_zip(back);
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].size == 150);
    CHECK(entries[1].end - entries[1].begin == 300);
    std::string bytes(300, ' ');
    back.read(bytes.data(), 300, entries[1].begin);
    CHECK(bytes == second);
  }
}

TEST_CASE("malformed arrays are refused with the byte and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(io::load_npy(write(folder / "x.npy", bytes)), Contains("x.npy: byte ") && Contains(message));
  };
  const auto shaped = [](const std::string& shape, const std::string& data = "") {
    return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}", data);
  };
  check("", "0: ends where 8 more bytes");
  check("\x93NUMPX\1\0\0\0"s, "0: not a .npy file");
  check("\x93NUMPY\4\0\0\0"s, "6: version 4 of the format");
  check("\x93NUMPY\2\0\xff\xff\xff\xff"s, "12: a header of 4294967295 bytes, where at most 0 can follow");
  check("\x93NUMPY\1\0\x09\0{}"s, "10: a header of 9 bytes, where at most 2");
  check(npy(""), "10: expected '{'");
  check(npy("{}"), "12: the header lacks");
  check(npy("{'descr': '<f4'"), "25: expected ',' or '}'");
  check(npy("{descr: 1}"), "11: expected a string");
  check(npy("{'descr"), "12: a string without an end");
  check(npy("{'descr': '<f4', 'descr': '<f4'}"), "35: the key 'descr' is unknown or comes twice");
  check(npy("{'color': '<f4'}"), "19: the key 'color'");
  check(npy("{'descr': '<f16'}"), "26: reel has no dtype for '<f16'");
  check(npy("{'descr': '|O'}"), "24: reel has no dtype for '|O'");
  check(npy("{'fortran_order': 1}"), "28: expected True or False");
  check(shaped("(1,)", "abcd") + "x", "69: there are bytes after the end");
  check(shaped("(-1,)"), "61: expected a size");
  check(shaped("(1 2)"), "63: expected ',' or ')'");
  check(shaped("(99999999999999999999,)"), "79: a size that is too large");
  check(shaped("(1,1,1,1,1,1,1,1,1)"), "77: more than 8 dimensions");
  check(shaped("(1000,)", "abcd"), "has 4000 bytes, where at most 4 can follow");
  check(shaped("(4611686018427387904,)"), "is too large");
  check(shaped("(0,4611686018427387904,4)"), "is too large");
  check(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\1\2"s), "66: the array: a bool is 2");
}

TEST_CASE("malformed zip files are refused with the reason") {
  const Folder folder;
  const fs::path path = folder / "x.npz";
  io::save_npz({{"a", ones({2})}, {"b", ones({3})}}, path);
  const std::string good = contents(path);
  const auto check = [&](const std::string& bytes, const std::string& reason) {
    INFO(reason);
    CHECK_THROWS_WITH(io::load_npz(write(path, bytes)), Contains("x.npz: ") && Contains(reason));
  };
  const auto patched = [&](size_t at, const std::string& with) {
    std::string bytes = good;
    return bytes.replace(at, with.size(), with);
  };
  const size_t end = good.size() - 22, central = good.find("PK\1\2"), second = good.find("PK\1\2", central + 1);
  check("", "not a zip file");
  check(good.substr(0, good.size() - 1), "not a zip file");
  check(patched(end + 10, "\3"), "the directory has 2 entries, not 3");
  check(patched(end + 16, "\1"), "does not end at");
  check(patched(end + 16, "\xff\xff\xff\xff"), "does not end at");
  check(patched(end + 4, "\1"), "several disks");
  check(patched(central, "XX"), "no entry of a zip directory");
  check(patched(central + 8, "\1"), "'a.npy': it is encrypted");
  check(patched(central + 10, "\x0c"), "'a.npy': its compression, 12, is neither");
  check(patched(central + 10, "\x08"), "'a.npy': byte 6: bytes after the compressed data");
  check(patched(central + 20, "\1"), "sizes");
  check(patched(central + 16, "\1"), "'a.npy': its size or checksum");
  check(patched(central + 42, "\xff\xff"), "lies outside of the file");
  check(patched(central + 42, "\1"), "no header of a member");
  check(patched(second + 42, "\0\0\0\0"s), "overlaps another member");
  check(patched(central + 46, "b"), "'b.npy' appears twice");
  check(patched(central + 46, "a.txt"), "'a.txt' is not a .npy");
  check(patched(central + 28, "\xff\xff"), "ends inside a field");
  check(patched(30 + 5 + 0, "X"), "'a.npy': byte 0: not a .npy file");

  // Every beginning, and every file with a byte changed, is read or refused.
  for (const bool compressed : {false, true}) {
    io::save_npz({{"a", ones({2})}, {"b", ones({3})}}, path, {.compressed = compressed});
    const std::string whole = contents(path);
    for (size_t length = 0; length < whole.size(); ++length)
      CHECK_THROWS_AS(io::load_npz(write(path, whole.substr(0, length))), Error);
    for (size_t at = 0; at < whole.size(); ++at)
      for (const char value : {'\0', '\xff', 'P'}) {
        std::string changed = whole;
        changed[at] = value;
        try {
          io::load_npz(write(path, changed));
        } catch (const Error&) {
        }
      }
  }
}
