#include "reel/io/safetensors.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "reel/autograd.h"
#include "reel/data/csv.h"
#include "reel/io/npy.h"
#include "reel/nn.h"
#include "reel/random.h"
#include "test/support/folder.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// A file with this header and these data.
std::string container(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// Written by safetensors 0.8 for Python.
const std::string kFromPython =
    "\x40\x01\x00\x00\x00\x00\x00\x00"s
    R"({"__metadata__":{"made by":"Python"},"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
    R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
    R"("h":{"dtype":"F16","shape":[1],"data_offsets":[24,26]},)"
    R"("e":{"dtype":"U8","shape":[0,3],"data_offsets":[26,26]},)"
    R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[26,29]}})"
    "       "
    "\xfb\xff\xff\xff\xff\xff\xff\xff\x00\x00\xc0\x3f\x00\x00\x00\xc0\x00\x00\x40\x40"
    "\x00\x00\x80\x40\x00\x38\x01\x00\x01"s;

}  // namespace

TEST_CASE("what is saved is loaded: every dtype, empty, 0-d, strided, with odd names", "[cpu]") {
  const Folder folder;
  const Tensor x = tensor({{1.5, -2.}, {3., 1e30}});
  StateDict dict;
  for (const DType type : {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    dict.emplace_back(name_of(type), tensor({{0, 1, 1}, {1, 0, 1}}).to(type));
  dict.emplace_back("scalar", full({}, 7.0, {.dtype = kFloat64}));
  dict.emplace_back("empty", empty({3, 0, 2}));
  dict.emplace_back("transposed", x.t());
  dict.emplace_back("needs \"quotes\" \\ \n und Umlaute: ä", x.clone().requires_grad_());
  dict.emplace_back("", x[1]);
  io::Metadata metadata;
  io::save(dict, folder / "all.safetensors", {{"epoch", "3"}, {"ä", "\""}});
  const StateDict loaded = io::load(folder / "all.safetensors", &metadata);
  REQUIRE(loaded.size() == dict.size());
  for (size_t i = 0; i < dict.size(); ++i) {
    CHECK(loaded[i].first == dict[i].first);
    CHECK(loaded[i].second.dtype() == dict[i].second.dtype());
    CHECK(equal(loaded[i].second, dict[i].second));
    CHECK_FALSE(loaded[i].second.requires_grad());
  }
  CHECK(metadata == io::Metadata{{"epoch", "3"}, {"ä", "\""}});
  // All data are aligned to their elements, header included.
  CHECK(static_cast<unsigned char>(contents(folder / "all.safetensors")[0]) % 8 == 0);

  io::save({{"x", x}}, folder / "quoted", {{"a\"reel.crc32", "0000000000000000"}, {"b", "\"reel.crc32\":\"00000000"}});
  CHECK(equal(io::load(folder / "quoted")[0].second.to(x.device()), x));

  io::save(StateDict{}, folder / "none.safetensors");
  CHECK(io::load(folder / "none.safetensors").empty());
  CHECK(io::load(folder / "none.safetensors").empty());
}

TEST_CASE("a file that Python wrote is read") {
  const Folder folder;
  write(folder / "python.safetensors", kFromPython);
  io::Metadata metadata;
  const StateDict dict = io::load(folder / "python.safetensors", &metadata);
  CHECK(metadata == io::Metadata{{"made by", "Python"}});
  CHECK(find(dict, "n")->to_vector<int64_t>() == std::vector<int64_t>{-5});
  CHECK(find(dict, "a")->shape() == Shape{2, 2});
  CHECK(find(dict, "a")->to_vector<float>() == std::vector<float>{1.5, -2, 3, 4});
  CHECK(find(dict, "h")->to_vector<float>() == std::vector<float>{0.5});
  CHECK(find(dict, "e")->shape() == Shape{0, 3});
  CHECK(find(dict, "b")->to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(find(dict, "z") == nullptr);
}

TEST_CASE("integers of 8, 16 and 32 bits that no tensor has become wider ones") {
  const Folder folder;
  const auto read = [&](const std::string& type, const std::string& data) {
    const std::string end = std::to_string(data.size());
    write(folder / "x",
          container(R"({"x":{"dtype":")" + type + R"(","shape":[3],"data_offsets":[0,)" + end + "]}}", data));
    return io::load(folder / "x")[0].second;
  };
  const auto check = [](const Tensor& x, DType dtype, const std::vector<int64_t>& values) {
    CHECK(x.dtype() == dtype);
    CHECK(x.to(kInt64).to_vector<int64_t>() == values);
  };
  check(read("I8", "\x01\x80\xff"), kInt32, {1, -128, -1});
  check(read("I16", "\x01\x00\x00\x80\xff\xff"s), kInt32, {1, -32768, -1});
  check(read("U16", "\x01\x00\x00\x80\xff\xff"s), kInt32, {1, 32768, 65535});
  check(read("U32", "\x01\0\0\0\0\0\0\x80\xff\xff\xff\xff"s), kInt64, {1, 2147483648, 4294967295});
  CHECK_THROWS_WITH(read("U64", std::string(24, '\0')), Contains("no dtype 'U64'"));
  CHECK_THROWS_WITH(read("I16", "abc"), Contains("has 6 bytes, data_offsets give 3"));
}

TEST_CASE("a tensor of a foreign type does not keep the others from being loaded") {
  const Folder folder;
  write(folder / "x", container(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                R"("c":{"dtype":"C64","shape":[1],"data_offsets":[4,12]},)"
                                R"("b.w":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}})",
                                "\0\0\x80\x3f\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0"s));
  CHECK_THROWS_WITH(io::load(folder / "x"), Contains("'c': reel has no dtype 'C64'"));
  io::Metadata metadata{{"old", ""}};
  const StateDict some = io::load(folder / "x", {.keep = [](std::string_view name) { return name != "c"; }}, &metadata);
  REQUIRE(some.size() == 2);
  CHECK(some["a"].item<float>() == 1);
  CHECK(some["b.w"].item<int64_t>() == 7);
  CHECK(metadata.empty());
  CHECK(io::load(folder / "x", {.keep = [](std::string_view name) { return name.starts_with("b."); }}).size() == 1);
}

TEST_CASE("the bytes of a file are those that the format prescribes") {
  const Folder folder;
  io::save({{"n", tensor({-5})}, {"x", tensor({1.5})}}, folder / "x");
  const auto file = [](const std::string& checksums) {
    std::string header = R"({"__metadata__":{"reel.crc32":")" + checksums +
                         R"("},"n":{"data_offsets":[0,8],"dtype":"I64","shape":[1]},)"
                         R"("x":{"data_offsets":[8,12],"dtype":"F32","shape":[1]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return container(header, "\xfb\xff\xff\xff\xff\xff\xff\xff\x00\x00\xc0\x3f"s);
  };
  // Python's zlib.crc32(b"\xfb" + 7 * b"\xff") and of b"\0\0\xc0\x3f", and of the rest with zeros for digits.
  const std::string blank = file(std::string(24, '0'));
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(blank.data()), static_cast<uInt>(blank.size() - 12));
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08lx", crc);
  CHECK(contents(folder / "x") == file(digits + "a50ed1e6"s + "5cd8256f"));
}

TEST_CASE("a module is saved and loaded, and a file that does not fit leaves it alone") {
  const Folder folder;
  manual_seed(1);
  nn::Sequential a{std::make_unique<nn::Linear>(3, 2)}, b{std::make_unique<nn::Linear>(3, 2)},
      wider{std::make_unique<nn::Linear>(4, 2)};
  io::save(a, folder / "net.safetensors", {{"by", "reel"}});
  io::load(b, folder / "net.safetensors");
  const Tensor x = ones({1, 3});
  CHECK(equal(a(x), b(x)));
  CHECK(b.parameters()[0].requires_grad());
  CHECK_THROWS_WITH(io::load(wider, folder / "net.safetensors"),
                    Contains("net.safetensors") && Contains("shape of 0.weight"));
  nn::Dropout none;
  CHECK(io::load(none, folder / "net.safetensors", {.strict = false}).unexpected.size() == 2);
}

TEST_CASE("saving replaces a file in one step and leaves nothing else behind") {
  const Folder folder;
  const fs::path path = folder / "x.safetensors";
  io::save({{"x", ones({2})}}, path);
  io::save({{"x", zeros({3})}}, path);
  CHECK(io::load(path)[0].second.shape() == Shape{3});
  CHECK(folder.count() == 1);
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  CHECK((status.st_mode & 0777) == (0666 & ~mask));

  fs::create_directories(folder / "taken" / "inside");
  CHECK_THROWS_WITH(io::save({{"x", ones({2})}}, folder / "taken"), Contains("taken"));
  CHECK_THROWS_WITH(io::save({{"x", ones({2})}}, folder / "no" / "x"), Contains("No such file"));
  CHECK_THROWS_WITH(io::save({{"x", Tensor()}}, path), Contains("'x' is undefined"));
  CHECK_THROWS_WITH(io::save({{"x", ones({2})}, {"x", ones({2})}}, path), Contains("'x' is given twice"));
  CHECK_THROWS_AS(io::save({{"__metadata__", ones({2})}}, path), Error);
  CHECK_THROWS_WITH(io::save({{"\xff", ones({2})}}, path), Contains("not UTF-8"));
  CHECK(io::load(path)[0].second.shape() == Shape{3});
  CHECK(folder.count() == 2);
}

TEST_CASE("saving leaves symbolic links, permissions and pipes as they are") {
  const Folder folder;
  const StateDict tensors{{"x", ones({2})}};
  fs::create_directories(folder / "store");
  fs::create_symlink("store/real", folder / "direct");
  fs::create_symlink(folder / "direct", folder / "latest");
  for (int i = 0; i < 2; ++i) {  // its target is not there at first
    io::save(tensors, folder / "latest");
    CHECK(fs::is_symlink(folder / "latest"));
    CHECK(fs::is_symlink(folder / "direct"));
    CHECK(fs::is_regular_file(fs::symlink_status(folder / "store" / "real")));
  }
  CHECK(folder.count() == 3);
  fs::create_symlink("loop", folder / "loop");
  CHECK_THROWS_WITH(io::save(tensors, folder / "loop"), Contains("too many symbolic links"));

  for (const fs::perms perms : {fs::perms(0600), fs::perms(0664), fs::perms(0400)}) {
    fs::permissions(folder / "store" / "real", perms);
    if (perms == fs::perms(0400) && ::geteuid() != 0)
      CHECK_THROWS_WITH(io::save(tensors, folder / "latest"), Contains("Permission denied"));
    else
      io::save(tensors, folder / "latest");
    CHECK(fs::status(folder / "store" / "real").permissions() == perms);
  }

  const fs::path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  fs::create_symlink("pipe", folder / "to pipe");
  for (const fs::path& path : {pipe, folder / "to pipe", folder / "store"})
    CHECK_THROWS_WITH(io::save(tensors, path), Contains("not a regular file"));
  CHECK(fs::is_fifo(fs::symlink_status(pipe)));
  CHECK(folder.count() == 6);
}

TEST_CASE("what a killed process has left is removed when the same file is saved, and nothing else") {
  const Folder folder;
  const Tensor x = ones({2}, {.device = kCPU});
  const StateDict tensors{{"x", x}};
  write(folder / ".x.tmp-0", "left"), write(folder / ".x.tmp-3", "left"), write(folder / ".y.tmp-0", "other");
  const fs::path busy = folder / ".x.tmp-1";
  write(busy, "being written");
  const int fd = ::open(busy.c_str(), O_WRONLY);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  io::save(tensors, folder / "x");
  CHECK(contents(busy) == "being written");
  CHECK(contents(folder / ".y.tmp-0") == "other");
  CHECK(folder.count() == 3);
  ::close(fd);
  io::save(tensors, folder / "x");
  CHECK(folder.count() == 2);

  std::string name(255, 'n');
  io::save(tensors, folder / name.c_str());
  std::string umlauts;
  while (umlauts.size() < 254) umlauts += "ä";
  io::save(tensors, folder / umlauts.c_str());
  CHECK(folder.count() == 4);
  CHECK_THROWS_WITH(io::save(tensors, ""), Contains("the path is empty"));

  // Many at once, each with a file of its own.
  std::vector<std::thread> savers;
  for (int i = 0; i < 4; ++i)
    savers.emplace_back([&] {
      for (int k = 0; k < 25; ++k) io::save(tensors, folder / "x");
    });
  for (std::thread& saver : savers) saver.join();
  CHECK(folder.count() == 4);
  CHECK(equal(io::load(folder / "x")[0].second, x));
}

TEST_CASE("another user's link in a folder for all is not followed", "[cpu]") {
  if (::geteuid() != 0) return;
  const Folder folder;
  const StateDict tensors{{"x", ones({2}, {.device = kCPU})}};
  fs::create_directories(folder / "shared");
  REQUIRE(::chmod((folder / "shared").c_str(), 01777) == 0);
  write(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", folder / "shared" / "model");
  REQUIRE(::lchown((folder / "shared" / "model").c_str(), 12345, 12345) == 0);
  CHECK_THROWS_WITH(io::save(tensors, folder / "shared" / "model"), Contains("a symbolic link of another user"));
  CHECK(contents(folder / "precious") == "precious");
  REQUIRE(::chmod((folder / "shared").c_str(), 0777) == 0);  // there the kernel follows it, too
  io::save(tensors, folder / "shared" / "model");
  CHECK(io::load(folder / "precious").size() == 1);
}

TEST_CASE("other hard links to a file keep what it was") {
  const Folder folder;
  write(folder / "x", "old");
  fs::create_hard_link(folder / "x", folder / "other");
  io::save({{"x", ones({2})}}, folder / "x");
  CHECK(contents(folder / "other") == "old");
}

TEST_CASE("root's saving leaves a file its owner") {
  if (::geteuid() != 0) return;
  const Folder folder;
  const TensorOptions on_host{.device = kCPU};
  const fs::path path = folder / "x";
  io::save({{"x", ones({2}, on_host)}}, path);
  REQUIRE(::chown(path.c_str(), 12345, 23456) == 0);
  fs::permissions(path, fs::perms(0640));
  io::save({{"x", zeros({2}, on_host)}}, path);
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK(status.st_uid == 12345);
  CHECK(status.st_gid == 23456);
  CHECK((status.st_mode & 0777) == 0640);
  CHECK(equal(io::load(path)[0].second, zeros({2}, on_host)));
}

TEST_CASE("malformed files are refused with the file, the byte and the reason") {
  const Folder folder;
  const fs::path path = folder / "bad.safetensors";
  const auto check = [&](const std::string& bytes, const std::string& reason) {
    INFO(reason);
    write(path, bytes);
    CHECK_THROWS_WITH(io::load(path), Contains("bad.safetensors") && Contains("byte ") && Contains(reason));
  };
  // A header with one tensor 'x' of these fields.
  const auto tensor = [](const std::string& fields, const std::string& data = "") {
    return container("{\"x\":{" + fields + "}}", data);
  };
  const std::string f32 = R"("dtype":"F32",)", four(4, '\0');

  check("", "too few");
  check("\x02\0\0"s, "too few");
  check("\xff\xff\xff\xff\xff\xff\xff\xff{}"s, "header would be 18446744073709551615 bytes");
  check("\xff\xff\xff\xff\xff\xff\xff\x7f{}"s, "header would be 9223372036854775807 bytes");
  check("\x03\0\0\0\0\0\0\0{}"s, "header would be 3 bytes");
  check("\0\0\0\0\0\0\0\0"s, "does not begin with '{'");
  check(container("[]"), "does not begin with '{'");
  check(container(" []"), "does not begin with '{'");
  check(container("\xef\xbb\xbf{}"), "does not begin with '{'");
  check(container("{}\0"s), "the header is not JSON: it has a NUL");
  check(container("{}\0{\"x\":1}"s), "the header is not JSON: it has a NUL");
  check(container("{"), "not JSON");
  check(container("{} x"), "not JSON");
  check(container("{\"x\":\xff}"), "not JSON");
  check(container("{\"\xff\":{}}"), "not JSON");
  std::string junk = "{";
  junk.append(100000, '\x01');
  check(container(junk), "not JSON");
  check(container(R"({"x":1})"), "a number is not expected");
  check(container(R"({"x":null})"), "null");
  check(container(R"({"x":true})"), "true and false");
  check(container(R"({"x":"y"})"), "a string is not expected");
  check(container(R"({"x":[]})"), "an array is not expected");
  check(container(R"({"__metadata__":{"a":1}})"), "a number is not expected");
  check(container(R"({"__metadata__":{"a":{}}})"), "an object is not expected");
  check(container(R"({"__metadata__":{"a":"b","a":"c"}})"), "'a' appears twice");
  check(container(R"({"__metadata__":{},"__metadata__":{}})"), "appears twice");
  std::string nested = "{\"x\":";
  for (int i = 0; i < 1000000; ++i) nested += "{\"x\":";
  check(container(nested), "not JSON");
  check(container("{\"x\":{\"shape\":" + nested), "an object is not expected");
  std::string brackets = "\"shape\":";
  brackets.append(1000000, '[');
  check(tensor(brackets), "an array is not expected");

  check(tensor(""), "'x': has no dtype");
  check(tensor(R"("dtype":"F32")"), "'x': has no shape");
  check(tensor(f32 + R"("shape":[1])"), "data_offsets are not two numbers");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[0])"), "data_offsets are not two numbers");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[0,4,4])", four), "data_offsets are not two numbers");
  check(tensor(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])", "a"), "no dtype 'F8_E4M3'");
  check(tensor(R"("dtype":32)"), "a number is not expected");
  check(tensor(f32 + f32), "dtype appears twice");
  check(tensor(R"("shape":[1],"shape":[1])"), "shape appears twice");
  check(tensor(R"("color":[1])"), "'x': has no dtype");
  check(tensor(R"("dtype":[1])"), "an array is not expected");
  check(tensor(R"("dtype":{})"), "an object is not expected");
  check(tensor(R"("shape":"1")"), "a string is not expected");
  check(tensor(R"("shape":null)"), "null");
  check(container(R"({"__metadata__":null,"__metadata__":{}})"), "appears twice");
  check(tensor(R"("shape":["1"])"), "a string is not expected");
  check(tensor(R"("shape":[-1])"), "a negative number, -1");
  check(tensor(R"("shape":[1.0])"), "not a whole number");
  check(tensor(R"("shape":[1e3])"), "not a whole number");
  check(tensor(R"("shape":[9223372036854775808])"), "too large");
  check(tensor(R"("shape":[99999999999999999999999])"), "not a whole number");
  check(tensor(R"("shape":[1,1,1,1,1,1,1,1,1])"), "more than 8 numbers");
  check(tensor(f32 + R"("shape":[4611686018427387904],"data_offsets":[0,4])", four), "too large");
  check(tensor(f32 + R"("shape":[4294967296,4294967296],"data_offsets":[0,0])"), "too large");
  check(tensor(f32 + R"("shape":[0,4611686018427387904,8],"data_offsets":[0,0])"), "too large");
  check(tensor(f32 + R"("shape":[1000000000],"data_offsets":[0,4000000000])", four), "outside of the 4 data bytes");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[0,9223372036854775807])", four), "outside");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[4,0])", four), "outside");
  check(tensor(f32 + R"("shape":[2],"data_offsets":[0,4])", four), "has 8 bytes, data_offsets give 4");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[4,8])", four + four), "after a gap");
  check(tensor(f32 + R"("shape":[1],"data_offsets":[0,4])", four + "x"), "1 bytes after the last tensor");
  check(container("{}", "x"), "1 bytes after the last tensor");
  check(tensor(R"("dtype":"BOOL","shape":[3],"data_offsets":[0,3])", "\0\1\2"s), "'x': a bool is 2");
  const std::string x = f32 + R"("shape":[1],"data_offsets":[0,4])";
  check(container("{\"x\":{" + x + "},\"x\":{" + x + "}}", four), "'x': appears twice");
  check(container("{\"x\":{" + x + "},\"y\":{" + x + "}}", four), "inside another tensor's");

  // Every beginning of a good file is a bad file.
  for (size_t length = 0; length < kFromPython.size(); ++length) {
    write(path, kFromPython.substr(0, length));
    CHECK_THROWS_AS(io::load(path), Error);
  }
  CHECK_THROWS_WITH(io::load(folder / "nowhere"), Contains("No such file"));
  CHECK_THROWS_WITH(io::load(folder.path), Contains("not a regular file"));
}

TEST_CASE("a file with any one byte changed is read or refused, never more") {
  const Folder folder;
  const fs::path path = folder / "changed.safetensors";
  for (size_t at = 0; at < kFromPython.size(); ++at)
    for (const char value : {'\0', '9', '"', '{', '\xff'}) {
      std::string bytes = kFromPython;
      bytes[at] = value;
      write(path, bytes);
      try {
        io::load(path);
      } catch (const Error&) {
      }
    }
  SUCCEED();
}

TEST_CASE("headers are taken as the reference takes them") {
  const Folder folder;
  const std::string four(4, '\0'), x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const auto load = [&](const std::string& header) { return io::load(write(folder / "x", container(header, four))); };
  for (const std::string& header :
       {"{" + x + "}}", "{\"__metadata__\":null," + x + "}}", "{" + x + "},\"__metadata__\":null}", " {" + x + "}}",
        "\t\r\n {" + x + "}}  ", "{" + x + ",\"note\":\"x\"}}",
        "{" + x +
            R"(,"a":1,"b":-1,"c":1.5,"d":null,"e":true,"f":[1,[2],{"dtype":"I8","g":{}}],"dtypes":{"shape":[7]}}})"}) {
    INFO(header);
    const StateDict dict = load(header);
    REQUIRE(dict.size() == 1);
    CHECK(dict[0].second.dtype() == kFloat32);
    CHECK(dict[0].second.shape() == Shape{1});
  }
}

TEST_CASE("a pointer of Git LFS and a text are named as what they are") {
  const Folder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, '0') + "\nsize 1234567\n";
  const fs::path path = write(folder / "model.safetensors", pointer);
  const std::string message = "model.safetensors\": it is a pointer of Git LFS, not the file itself";
  CHECK_THROWS_WITH(io::load(path), Contains(message));
  CHECK_THROWS_WITH(io::load_npy(path), Contains(message));
  CHECK_THROWS_WITH(data::read_csv(path), Contains(message));
  CHECK_THROWS_WITH(io::load(write(folder / "x.pt", "<!DOCTYPE html><html></html>")),
                    Contains("it begins like a text"));
}

TEST_CASE("a model in several files is read by its index") {
  const Folder folder;
  manual_seed(1);
  nn::Linear saved(3, 2), loaded(3, 2);
  io::save({{"weight", saved.weight}}, folder / "model-1.safetensors", {{"format", "pt"}});
  io::save({{"bias", saved.bias}, {"other", ones({2})}}, folder / "model-2.safetensors");
  const fs::path path = folder / "model.safetensors.index.json";
  const auto index = [&](const std::string& map) {
    return write(path,
                 R"({"metadata":{"total_size":32,"list":[1,{"weight_map":{"a":1}}]},"weight_map":{)" + map + "}}");
  };
  index(R"("weight":"model-1.safetensors","bias":"model-2.safetensors")");
  io::load(loaded, path);
  CHECK(equal(loaded.weight, saved.weight));
  CHECK(equal(loaded.bias, saved.bias));
  io::Metadata metadata;
  CHECK(io::load(path, &metadata).size() == 2);
  CHECK(metadata == io::Metadata{{"format", "pt"}});
  CHECK(io::load(path, {.keep = [](std::string_view name) { return name == "bias"; }})[0].first == "bias");
  const StateDict part = io::load(path, {.prefix = "wei"});
  REQUIRE(part.size() == 1);
  CHECK(part[0].first == "ght");

  const auto error = [&](const std::string& map, const std::string& reason) {
    INFO(map);
    index(map);
    CHECK_THROWS_WITH(io::load(path), Contains(reason));
  };
  error(R"("weight":"model-2.safetensors")", "'weight' is not in model-2.safetensors");
  error(R"("weight":"model-3.safetensors")", "No such file");
  error(R"("weight":"../model-1.safetensors")", "not a file beside it");
  error(R"("weight":"/etc/passwd")", "not a file beside it");
  error(R"("weight":"..")", "not a file beside it");
  error(R"("weight":"model.safetensors.index.json")", "a shard that is an index itself");
  error(R"("weight":1)", "the shard of 'weight' is no text");
  error(R"("weight":["model-1.safetensors"])", "the shard of 'weight' is no text");
  error(R"("weight":{"a":"model-1.safetensors"})", "the shard of 'weight' is no text");
  error(R"("weight":"model-1.safetensors","weight":"model-2.safetensors")", "'weight' appears twice");
  error("", "without a \"weight_map\"");
  error("\"", "not JSON");
  write(path, R"({"hidden_size": 7})");
  CHECK_THROWS_WITH(io::load(path), Contains("a JSON file without a \"weight_map\" is no index"));
}
