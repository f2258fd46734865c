#include <cmath>
#include <cstring>
#include <random>

#include "lib/io/zip.h"
#include "reel/io/safetensors.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const fs::path kTorch = "test/reference/torch";  // written by PyTorch, see test/reference/torch_files.py

struct Net : nn::Module {
  nn::Linear fc{*this, "fc", 3, 2};
  nn::BatchNorm1d norm{*this, "norm", 2};
};

// The parameters and statistics of `net` are 0, 1, 2, … in this order.
void check_numbered(const std::vector<Tensor>& tensors) {
  int64_t first = 0;
  for (const Tensor& x : tensors) {
    CHECK(equal(x.detach().flatten(), arange(first, first + x.numel()).to(x.dtype())));
    first += x.numel();
  }
}

// A zip file as torch.save writes it, with this pickle and storages "0", "1", ….
fs::path archive(const Folder& folder, const std::string& pickle, const std::vector<std::string>& storages = {},
                 const std::string& order = "little", bool deflate = false) {
  const fs::path path = folder / "x.pt";
  io::AtomicFile file(path);
  io::ZipWriter zip(file, deflate);
  const auto add = [&](const std::string& name, const std::string& bytes) {
    zip.add("x/" + name, {std::span<const char>(bytes)});
  };
  add("data.pkl", pickle), add("byteorder", order);
  for (size_t i = 0; i < storages.size(); ++i) add("data/" + std::to_string(i), storages[i]);
  zip.finish(), file.commit();
  return path;
}

// Pickles, as text.
std::string text(const std::string& s) {
  const auto length = static_cast<uint32_t>(s.size());
  return "X" + std::string(reinterpret_cast<const char*>(&length), 4) + s;
}
std::string number(int32_t n) { return "J" + std::string(reinterpret_cast<const char*>(&n), 4); }
std::string numbers(const std::vector<int32_t>& list) {
  std::string all = "(";
  for (const int32_t n : list) all += number(n);
  return all + "t";
}
std::string storage(int32_t elements, const std::string& type = "FloatStorage", const std::string& key = "0") {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") + number(elements) + "tQ";
}
std::string tensor_of(const std::string& storage, int32_t offset, const std::vector<int32_t>& sizes,
                      const std::vector<int32_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(sizes) + numbers(strides) +
         "\x89)tR";
}
std::string call(const std::string& module, const std::string& name, const std::vector<std::string>& arguments) {
  std::string all = "c" + module + "\n" + name + "\n(";
  for (const std::string& argument : arguments) all += argument;
  return all + "tR";
}
std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }
std::string dict(const std::string& items) { return "}(" + items + "u"; }

}  // namespace

TEST_CASE("a state_dict that torch.save has written is loaded into a module", "[cpu]") {
  for (const char* name : {"state_dict.pt", "protocol4.pt", "script.pt"}) {
    INFO(name);
    nn::Sequential net(nn::Linear(3, 2), nn::BatchNorm1d(2));
    io::load(net, kTorch / name);
    std::vector<Tensor> all;
    for (const auto& [path, tensor] : net.state_dict()) all.push_back(tensor);
    REQUIRE(all.size() == 7);
    check_numbered(all);
  }
}

TEST_CASE("a module that libtorch has saved is loaded", "[cpu]") {
  Net net;
  io::load(net, kTorch / "libtorch.pt");
  check_numbered(net.parameters());
  CHECK(equal(net.norm.running_var, ones({2})));
}

TEST_CASE("tensors of nested dicts and lists have paths", "[cpu]") {
  const StateDict all = io::load(kTorch / "checkpoint.pt");
  CHECK(all["model.0.weight"].shape() == Shape{2, 3});
  CHECK(all["optimizer.state.0.exp_avg"].shape() == Shape{2, 3});
  CHECK(all["list.0"].item<float>() == 1);
  CHECK(all["list.1.0"].item<float>() == 0);
  CHECK_FALSE(all.contains("epoch"));
  nn::Sequential net(nn::Linear(3, 2), nn::BatchNorm1d(2));
  CHECK_THROWS_WITH(io::load(net, kTorch / "checkpoint.pt"), Contains("unexpected: model.0.weight"));
  io::load(net, kTorch / "checkpoint.pt", {.prefix = "model."});
  check_numbered({net.get_parameter("0.weight"), net.get_parameter("0.bias")});

  const StateDict one = io::load(kTorch / "tensor.pt");
  REQUIRE(one.size() == 1);
  CHECK(one[0].first == "0");
  CHECK(equal(one[0].second, arange(6).to(kFloat32).view({2, 3})));
}

TEST_CASE("tensors of every type and layout that torch.save writes are read", "[cpu]") {
  const StateDict all = io::load(kTorch / "kinds.pt");
  const Tensor grid = arange(12).to(kFloat32).view({3, 4});
  CHECK(equal(all["grid"], grid));
  CHECK(equal(all["transposed"], grid.t()));
  CHECK(equal(all["row"], grid[1]));
  CHECK(equal(all["columns"], grid.index({Slice(), Slice(1, {}, 2)})));
  CHECK(all["empty"].shape() == Shape{0, 3});
  CHECK(all["scalar"].shape() == Shape{});
  CHECK(all["scalar"].item<float>() == 2.5f);
  CHECK(equal(all["expanded"], ones({4})));
  CHECK(equal(all["bool"], tensor({true, false})));
  for (const char* name : {"int8", "int16", "int32"}) {
    INFO(name);
    CHECK(all[name].dtype() == kInt32);
    CHECK(all[name].item<int32_t>() == -3);
  }
  CHECK(all["int64"].item<int64_t>() == -(int64_t{1} << 40));
  CHECK(all["uint8"].item<uint8_t>() == 250);
  CHECK(all["bfloat16"].dtype() == kBFloat16);
  CHECK(all["float16"].dtype() == kFloat16);
  CHECK(equal(all["float16"].to(kFloat32), full({2}, 1.5)));
  CHECK(all["float64"].to_vector<double>() == std::vector{0.1, 0.1});
  CHECK(equal(all["parameter"], ones({2})));
  Tensor(all["row"]).fill_(7);  // memory is shared as it was
  CHECK(equal(all["grid"][1], full({4}, 7.0)));

  const auto good = [](std::string_view name) { return name == "good"; };
  CHECK(io::load(kTorch / "odd.pt", {.keep = good}).size() == 1);
  const Tensor odd = io::load(kTorch / "odd.pt", {.prefix = "odd"})[0].second;
  CHECK(odd.dtype() == kInt32);  // of uint16
  CHECK(equal(odd, ones({2}).to(kInt32)));
  CHECK_THROWS_WITH(io::load(kTorch / "odd.pt"), Contains("'complex': reel has no dtype"));
  CHECK_THROWS_WITH(io::load(kTorch / "odd.pt", {.prefix = "complex"}),
                    Contains("'complex': reel has no dtype for a torch.ComplexFloatStorage"));
}

TEST_CASE("pickles that would run code, and files of other kinds, are refused by name", "[cpu]") {
  const Folder folder;
  CHECK_THROWS_WITH(io::load(kTorch / "module.pt"),
                    Contains("the file wants to run torch.nn.modules.container.Sequential, which is refused"));
  CHECK_THROWS_WITH(io::load(kTorch / "legacy.pt"), Contains("the old format of torch.save"));
  CHECK_THROWS_WITH(io::load(archive(folder, pickle("cos\nsystem\n(" + text("true") + "tR"))),
                    Contains("x/data.pkl': byte 2: the file wants to run os.system, which is refused"));
  CHECK_THROWS_WITH(io::load(archive(folder, "\x80\x04" + text("os") + text("system") + "\x93.")),
                    Contains("os.system"));
  CHECK_THROWS_WITH(io::load("test/reference/numpy/stored.npz"), Contains("load_npz reads those of NumPy"));
  CHECK_THROWS_WITH(io::load(archive(folder, pickle("N"), {}, "big")), Contains("files of big-endian machines"));
  CHECK_THROWS_WITH(io::load(archive(folder, pickle("N"), {}, "little", true)), Contains("is compressed"));
  CHECK_THROWS_WITH(io::load(archive(folder, "\x80\x01N.")), Contains("protocol 1 of pickle is not read"));
  CHECK(io::load(archive(folder, pickle("N"))).empty());
  const fs::path twice = folder / "twice.pt";
  {
    io::AtomicFile file(twice);
    io::ZipWriter zip(file, false);
    const std::string none = pickle("N");
    zip.add("x/data.pkl", {std::span<const char>(none)}), zip.add("x/data.pkl", {std::span<const char>(none)});
    zip.finish(), file.commit();
  }
  CHECK_THROWS_WITH(io::load(twice), Contains("'x/data.pkl' appears twice"));
}

TEST_CASE("tensors that lie outside of their storage are refused", "[cpu]") {
  const Folder folder;
  const std::string six(24, '\0');
  const auto load = [&](const std::string& value, const std::vector<std::string>& storages) {
    return io::load(archive(folder, pickle(dict(text("w") + value)), storages));
  };
  CHECK(load(tensor_of(storage(6), 0, {2, 3}, {3, 1}), {six})["w"].shape() == Shape{2, 3});
  const std::string made_at_once = "(" + text("w") + tensor_of(storage(6), 0, {6}, {1}) + "d";
  CHECK(io::load(archive(folder, pickle(made_at_once), {six}))["w"].numel() == 6);
  for (const auto& [offset, sizes, strides] :
       std::vector<std::tuple<int32_t, std::vector<int32_t>, std::vector<int32_t>>>{{1, {2, 3}, {3, 1}},
                                                                                    {0, {2, 4}, {3, 1}},
                                                                                    {0, {2, 3}, {4, 1}},
                                                                                    {6, {1}, {1}},
                                                                                    {0, {2}, {INT32_MAX}},
                                                                                    {0, {4, 4}, {1, 1}}}) {
    INFO(Shape(std::vector<int64_t>(sizes.begin(), sizes.end())));
    CHECK_THROWS_WITH(load(tensor_of(storage(6), offset, sizes, strides), {six}),
                      Contains("lies outside of its storage of 6 elements"));
  }
  CHECK_THROWS_WITH(load(tensor_of(storage(6), -1, {1}, {1}), {six}), Contains("no whole number from 0 on"));
  CHECK_THROWS_WITH(load(tensor_of(storage(6), 0, {2}, {1, 1}), {six}), Contains("1 sizes and 2 strides"));
  CHECK_THROWS_WITH(load(tensor_of(storage(6), 0, std::vector<int32_t>(9, 1), std::vector<int32_t>(9, 1)), {six}),
                    Contains("at most 8"));
  CHECK_THROWS_WITH(load(tensor_of(storage(7), 0, {1}, {1}), {six}),
                    Contains("has 24 bytes in the file, not 7 elements"));
  CHECK_THROWS_WITH(load(tensor_of(storage(6, "FloatStorage", "../1"), 0, {1}, {1}), {six}),
                    Contains("data/../1, is not in the file"));
  CHECK_THROWS_WITH(load(tensor_of(storage(6, "QInt8Storage"), 0, {1}, {1}), {six}), Contains("torch.QInt8Storage"));
  CHECK_THROWS_WITH(load(tensor_of(storage(2, "BoolStorage"), 0, {2}, {1}), {"\1\2"}), Contains("a bool is 2"));
  CHECK_THROWS_WITH(load(storage(6), {six}), Contains("'w' is a bare storage"));
  // A small file with a large tensor takes no memory; as many copies as it likes to have do not pass.
  CHECK(load(tensor_of(storage(6), 0, {1 << 30, 6}, {0, 1}), {six})["w"].numel() == int64_t{6} << 30);
  std::string many;
  const std::string large(1 << 20, '\0');
  for (int i = 0; i < 100; ++i)
    many += text("w" + std::to_string(i)) + tensor_of(storage(1 << 18), 0, {1 << 9, 1 << 9}, {1, 1 << 9});
  CHECK_THROWS_WITH(io::load(archive(folder, pickle(dict(many)), {large})), Contains("far more memory than the file"));
}

TEST_CASE("a strided view in a .pt file has the elements that its strides say", "[cpu]") {
  const Folder folder;
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  const int64_t size = 40;
  std::string bytes;
  for (int64_t i = 0; i < size; ++i) {
    const auto value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string all;
  std::vector<std::vector<float>> expected;
  std::vector<Shape> shapes;
  for (int trial = 0; trial < 300; ++trial) {  // windows that overlap, repeated rows, transposed ones, gaps, empty ones
    std::vector<int32_t> sizes, strides;
    int64_t room = size - 1;
    for (int64_t rank = below(4); rank > 0; --rank) {
      strides.push_back(static_cast<int32_t>(below(7)));
      sizes.push_back(
          static_cast<int32_t>(below(std::min<int64_t>(5, strides.back() ? room / strides.back() + 2 : 5))));
      room -= std::max(sizes.back() - 1, 0) * strides.back();
    }
    if (room < 0) continue;
    const auto offset = static_cast<int32_t>(below(room + 1));
    const bool negative = below(2) == 1;
    std::vector<float> values{static_cast<float>(offset)};
    for (size_t d = 0; d < sizes.size(); ++d) {
      std::vector<float> more;
      for (const float before : values)
        for (int32_t i = 0; i < sizes[d]; ++i) more.push_back(before + static_cast<float>(i * strides[d]));
      values = more;
    }
    if (negative)
      for (float& value : values) value = -value;
    const std::string metadata = negative ? dict(text("neg") + "\x88") : dict(text("neg") + "\x89");
    all += text(std::to_string(expected.size())) +
           call("torch._utils", "_rebuild_tensor_v2",
                {storage(size), number(offset), numbers(sizes), numbers(strides), "\x89", "N", metadata});
    expected.push_back(values);
    shapes.emplace_back(sizes);
  }
  const StateDict loaded = io::load(archive(folder, pickle(dict(all)), {bytes}));
  REQUIRE(loaded.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(loaded[i].second.shape() == shapes[i]);
    CHECK(loaded[i].second.to_vector<float>() == expected[i]);
  }
}

TEST_CASE("a tensor with PyTorch's negative bit is read with the right sign", "[cpu]") {
  const StateDict all = io::load(kTorch / "layouts.pt");
  CHECK(all["conj_imag"].to_vector<float>() == std::vector<float>{-2, 4});
  CHECK(all["conj_real"].to_vector<float>() == std::vector<float>{1, 3});
  CHECK(all["imag"].to_vector<float>() == std::vector<float>{2, -4});
  const std::vector<float> fft = all["fft"].to_vector<float>();
  CHECK(fft == std::vector<float>{-0.f, -6, -0.f});
  CHECK(std::signbit(fft[0]));
}

TEST_CASE("every argument of what rebuilds a tensor is looked at", "[cpu]") {
  const Folder folder;
  const std::string six(24, '\0');
  const auto load = [&](const std::string& name, const std::vector<std::string>& arguments) {
    const std::string module = name.starts_with("_rebuild_from") ? "torch._tensor" : "torch._utils";
    return io::load(archive(folder, pickle(dict(text("w") + call(module, name, arguments))), {six}));
  };
  const std::string tensor = tensor_of(storage(6), 0, {6}, {1}), none = "ccollections\nOrderedDict\n)R";
  const std::vector<std::string> v1{storage(6), number(0), numbers({6}), numbers({1})};
  const auto with = [](std::vector<std::string> list, const std::vector<std::string>& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  const std::string bytes =
      "(" + text("storage") + "ctorch.storage\nUntypedStorage\n" + text("0") + text("cpu") + number(24) + "tQ";
  const std::vector<std::string> v3{bytes, number(0), numbers({6}), numbers({1})};
  struct Form {
    std::string name;
    std::vector<std::string> arguments;
    size_t optional = 0, free = 0;  // how many of the last arguments may be missing, and may be anything
  };
  const std::vector<Form> forms{
      {"_rebuild_tensor", v1},
      {"_rebuild_tensor_v2", with(v1, {"\x88", none, dict(text("neg") + "\x89")}), 1},
      {"_rebuild_tensor_v3", with(v3, {"\x89", none, "ctorch\nuint32\n", "}"}), 1},
      {"_rebuild_parameter", {tensor, "\x88", none}, 0, 2},
      {"_rebuild_parameter_with_state", {tensor, "\x88", none, "}"}, 0, 3},
      {"_rebuild_from_type_v2",
       {"ctorch._utils\n_rebuild_tensor_v2\n", "ctorch\nTensor\n",
        "(" + v1[0] + v1[1] + v1[2] + v1[3] + "\x89" + none + "t", dict(text("note") + text("x"))},
       0,
       1}};
  for (const Form& form : forms) {
    INFO(form.name);
    const size_t count = form.arguments.size();
    CHECK(load(form.name, form.arguments)["w"].numel() == 6);
    for (size_t n = 0; n < count - form.optional; ++n) {
      INFO(n << " arguments");
      CHECK_THROWS_AS(load(form.name, {form.arguments.begin(), form.arguments.begin() + static_cast<int64_t>(n)}),
                      Error);
    }
    CHECK_THROWS_WITH(load(form.name, with(form.arguments, {"N"})), Contains("arguments"));
    for (size_t i = 0; i < count - form.free; ++i)
      for (const std::string& nonsense :
           {text("x"), dict(text("banana") + "\x88"), dict(text("conj") + "\x88"), numbers({-1}), "cos\nsystem\n"s}) {
        INFO("argument " << i << ": " << nonsense);
        std::vector<std::string> changed = form.arguments;
        changed[i] = nonsense;
        if (form.name == "_rebuild_parameter" && i == 0) continue;  // a tensor, or what has none
        if (form.name == "_rebuild_parameter_with_state" && i == 0) continue;
        CHECK_THROWS_AS(load(form.name, changed), Error);
      }
  }
  CHECK_THROWS_WITH(load("_rebuild_tensor_v2", with(v1, {"\x88", none, dict(text("conj") + "\x88")})),
                    Contains("'w' has metadata that reel does not know: 'conj'"));
  CHECK_THROWS_WITH(load("_rebuild_tensor_v2", with(v1, {"\x88", dict(text("hook") + "N")})),
                    Contains("backward hooks"));
  CHECK_THROWS_WITH(load("_rebuild_tensor_v3", with(v3, {"\x89", none, "ctorch\nuint64\n"})),
                    Contains("reel has no dtype for a torch.uint64"));
  CHECK_THROWS_WITH(
      load("_rebuild_tensor_v3", with(v3, {"\x89", none, "ctorch\nuint32\n", dict(text("neg") + "\x88")})),
      Contains("negative bit, which reel reads for floating-point tensors only"));
  // A tensor that is given a state, or items, afterwards.
  CHECK_THROWS_WITH(io::load(archive(folder, pickle(dict(text("w") + tensor + "}b")), {six})),
                    Contains("changed afterwards"));
}

TEST_CASE("what torch.save writes beside tensors does not keep them from being loaded", "[cpu]") {
  const StateDict all = io::load(kTorch / "layouts.pt");
  CHECK(equal(all["attributes"], ones({3})));
  CHECK(equal(all["parameter_attributes"], ones({3})));
  CHECK(all["uint16"].to_vector<int32_t>() == std::vector<int32_t>{1, 65535});
  CHECK(all["uint32"].to_vector<int64_t>() == std::vector<int64_t>{4294967295});
  CHECK(equal(all["by_tuple.(0, a)"], full({2}, 5.0)));
  CHECK_FALSE(all["parameter_attributes"].requires_grad());

  const Folder folder;
  const std::string six(24, '\0'), tensor = tensor_of(storage(6), 0, {6}, {1});
  const std::string items = text("args") + "cargparse\nNamespace\n)\x81" + dict(text("lr") + number(1)) + "b" +
                            text("model") + dict(text("w") + tensor) + number(7) + "ctorch\nSize\n" + "N" + number(3);
  const fs::path path = archive(folder, pickle(dict(items)), {six});
  CHECK_THROWS_WITH(io::load(path), Contains("wants to run argparse.Namespace, which is refused"));
  CHECK(io::load(path, {.prefix = "model."})["w"].numel() == 6);
  CHECK(io::load(path, {.keep = [](std::string_view name) { return name != "args"; }})["model.w"].numel() == 6);
  CHECK_THROWS_WITH(io::load(path, {.prefix = "args"}), Contains("wants to run argparse.Namespace, which is refused"));
}

TEST_CASE("paths of tensors in a .pt file cannot take up far more memory than the file", "[cpu]") {
  const Folder folder;
  const std::string six(24, '\0'), tensor = tensor_of(storage(6), 0, {6}, {1});
  const auto nested = [&](size_t key, int depth, const std::string& inside) {
    std::string open, close;
    for (int i = 0; i < depth; ++i) open += "}h\0"s, close += "s";
    return text(std::string(key, 'k')) + "q\0"s + "0" + open + inside + close;
  };
  CHECK(io::load(archive(folder, pickle(nested(100, 90, tensor)), {six}))[0].first.size() == 90 * 101 - 1);
  for (const auto& [key, depth] : std::vector<std::pair<size_t, int>>{{1 << 20, 99}, {10'000, 20}, {70'000, 1}}) {
    INFO(key << " bytes, " << depth << " levels");
    CHECK_THROWS_WITH(io::load(archive(folder, pickle(nested(key, depth, tensor)), {six})), Contains("bytes"));
    CHECK(io::load(archive(folder, pickle(nested(key, depth, "N")))).empty());
  }
  std::string many;  // of one long path each
  for (int i = 0; i < 2000; ++i) many += text(std::to_string(i)) + tensor;
  CHECK_THROWS_WITH(io::load(archive(folder, pickle(nested(60'000, 1, dict(many))), {six})),
                    Contains("paths of its tensors take more than"));
  CHECK_THROWS_WITH(io::load(archive(folder, pickle("(" + std::string(5'000'000, ']') + "t"))), Contains("values"));
  CHECK_THROWS_WITH(io::load(archive(folder, pickle("c" + std::string(2000, 'm') + "\nn\n"))),
                    Contains("a global whose name"));
}

TEST_CASE("malformed pickles end with an error", "[cpu]") {
  const Folder folder;
  const auto error = [&](const std::string& bytes, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(io::load(archive(folder, bytes)), Contains(message));
  };
  error("", "ends inside an opcode");
  error("\x80\x02N", "ends inside an opcode");
  error(pickle("X\xff\xff\xff\xff"), "ends inside an opcode");
  error(pickle(""), "ends with 0 values");
  error(pickle("NN"), "ends with 2 values");
  error(pickle("N") + "N", "bytes after the end");
  error(pickle("t"), "no mark on the stack");
  error(pickle("\x86"), "fewer values on the stack");
  error(pickle("(N\x86"), "fewer values on the stack");  // what stands below a mark is out of reach
  error(pickle("N(a"), "fewer values on the stack");
  error(pickle("h\7"), "memo 7 has not been written");
  error(pickle("NNa"), "items for what is no list");
  error(pickle(")Na"), "items for what is no list");
  error(pickle("N(NNu"), "items for what is no dict");
  error(pickle("}(Nu"), "a key without a value");
  error(pickle("N)R"), "a call of what is no function");
  error(pickle("ctorch\nSize\nNR"), "without a tuple of arguments");
  error(pickle("NNb"), "a state for what is no object");
  error(pickle("ctorch"), "ends inside a name");
  error(pickle("I1\n"), "opcode 73 is not one of a state_dict's pickle");
  const std::string none = tensor_of(storage(0), 0, {0}, {1});
  error(pickle(dict("N" + none)), "a key that is neither text nor a whole number");
  error(pickle(dict("(N" + number(1) + "t" + none)), "a key that is neither text nor a whole number");
  error(pickle("ctorch._utils\n_rebuild_tensor_v2\n)R"), "with 0 arguments");
  error(pickle("]q\0h\0a"s), "levels of dicts and lists");  // a list in itself
  std::string deep = ")";
  for (int i = 0; i < 1000; ++i) deep += "\x85";
  error(pickle(deep), "levels of dicts and lists");
  std::string doubling = "N";  // 2^60 paths to one value
  for (int i = 0; i < 60; ++i) doubling += "q"s + static_cast<char>(i) + "h" + static_cast<char>(i) + "\x86";
  error(pickle(doubling), "refers to its own parts over and over");
  error(pickle(dict(text("a") + tensor_of(storage(0), 0, {0}, {1}) + text("a") + tensor_of(storage(0), 0, {0}, {1}))),
        "is not in the file");
}

TEST_CASE("damaged weights in a .pt file are noticed", "[cpu]") {
  const Folder folder;
  std::string bytes = contents(kTorch / "tensor.pt");
  const float five = 5;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&five), 4));
  REQUIRE(at != std::string::npos);
  bytes[at] ^= 1;
  write(folder / "x.pt", bytes);
  CHECK_THROWS_WITH(io::load(folder / "x.pt"), Contains("its data are damaged"));
  CHECK(io::load(folder / "x.pt", {.verify = false}).size() == 1);
}

TEST_CASE("a model takes what fits of a file, under other names", "[cpu]") {
  const Folder folder;
  manual_seed(1);
  Net pretrained, net;
  io::save(pretrained, folder / "x");
  StateDict renamed;
  for (const auto& [name, tensor] : pretrained.state_dict()) renamed.emplace_back("body." + name, tensor);
  io::save(renamed, folder / "body");

  CHECK_THROWS_WITH(io::load(net, folder / "body"), Contains("unexpected: body.fc.weight"));
  io::load(net, folder / "body", {.prefix = "body."});
  CHECK(equal(net.fc.weight, pretrained.fc.weight));

  struct Other : nn::Module {
    nn::Linear dense{*this, "dense", 3, 2};
    nn::BatchNorm1d norm{*this, "norm", 4};
  } other;
  const auto as_dense = [](std::string_view name) {
    return name.starts_with("fc.") ? "dense." + std::string(name.substr(3)) : std::string(name);
  };
  CHECK_THROWS_WITH(io::load(other, folder / "x", {.rename = as_dense}),
                    Contains("shape of norm.weight: the module has [4], given is [2]"));
  const nn::LoadResult result = io::load(other, folder / "x", {.ignore_mismatched_sizes = true, .rename = as_dense});
  CHECK(equal(other.dense.weight, pretrained.fc.weight));
  CHECK(result.mismatched ==
        std::vector<std::string>{"norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"});
  CHECK(result.missing.empty());
  CHECK_THROWS_WITH(other.load_state_dict(pretrained.state_dict(), {.strict = false, .prefix = "nothing."}),
                    Contains("missing: dense.weight"));
  const auto two = [](std::string_view name) { return name == "fc.bias" || name == "norm.num_batches_tracked"; };
  CHECK(other.load_state_dict(pretrained.state_dict(), {.strict = false, .keep = two}).unexpected ==
        std::vector<std::string>{"fc.bias"});
  const auto same = [](std::string_view) { return std::string("same"); };
  CHECK_THROWS_WITH(io::load(folder / "x", {.rename = same}), Contains("'same' is given twice"));
  CHECK_THROWS_WITH(other.load_state_dict(pretrained.state_dict(), {.rename = same}),
                    Contains("'same' is given twice"));
}
