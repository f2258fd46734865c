#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "lib/ops/op_info.h"
#include "reel/io.h"
#include "reel/onnx.h"
#include "reel/ops.h"
#include "test/support/folder.h"
#include "test/support/op_table.h"
#include "test/support/pch.h"

// Every row of the op table as a model of one op. The table of ops (lib/ops/op_info.h) says which ops are not exported,
// and test/onnx.txt which rows of the others are not.
using namespace reel;
using namespace std::string_literals;

namespace {

Tensors inputs_of(const Row& row) {
  Tensors inputs;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    inputs.push_back(make_input(row.inputs[i], row.reference.pointwise() ? Shape{3, 4} : row.inputs[i].shape, kFloat32,
                                static_cast<int>(i)));
  return inputs;
}

std::string without_parentheses(const std::string& name) { return name.substr(0, name.find('(')); }

/// The names of test/onnx.txt: rows or, with a *, ops with all of their rows.
std::map<std::string, std::string> listed_ops() {
  std::map<std::string, std::string> listed;
  std::ifstream file("test/onnx.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    REQUIRE(colon != std::string::npos);
    listed[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return listed;
}

/// Returns true if the error gives the reason for which the table of ops says that an op is not exported.
bool is_reason(const std::string& error) {
  return std::any_of(kOps.begin(), kOps.end(), [&](const OpInfo& op) {
    return op.not_exported && error == "onnx::save: "s + op.name + ": " + op.not_exported;
  });
}

}  // namespace

TEST_CASE("every op is exported to ONNX, or the table of ops or a list says why not", "[onnx][cpu]") {
  const auto listed = listed_ops();
  const Folder folder;
  const char* const python = std::getenv("PYTHON");
  std::set<std::string> names, used;
  std::ofstream rows(folder / "rows.txt");
  size_t number = 0;
  for (const Row& row : op_table()) {
    const std::string name = row.name;
    const Tensors inputs = inputs_of(row);
    const std::filesystem::path file = folder.path / (std::to_string(number) + ".onnx");
    std::string error;
    try {
      onnx::save([&](const Tensors& x) { return row.call(x); }, inputs, file);
    } catch (const Error& refused) {
      error = refused.what();
    }
    const std::string base = without_parentheses(name);
    const std::string entry = listed.contains(name) ? name : listed.contains(base + "*") ? base + "*" : "";
    INFO(name << ": " << error);
    if (!error.empty()) {
      CHECK(error.starts_with("onnx::save: "));
      if (is_reason(error)) {
        CHECK(entry.empty());
        continue;
      }
      CHECK(!entry.empty());
      used.insert(entry);
      continue;
    }
    CHECK(entry.empty());
    names.insert(base);
    StateDict values;
    for (size_t i = 0; i < inputs.size(); ++i)
      values.emplace_back("input_" + std::to_string(i), inputs[i].contiguous());
    const Tensor expected = row.call(inputs_of(row)).contiguous();
    values.emplace_back("output_0", expected);
    try {
      onnx::Model model = onnx::load(file);
      Tensors given;  // a model has no inputs that it does not need
      for (size_t i = 0; i < inputs.size(); ++i) given.push_back(inputs[i]);
      const Tensor got = model(given)[0];
      CHECK(got.dtype() == expected.dtype());
      CHECK(got.shape() == expected.shape());
      CHECK(allclose(got, expected, 1e-5, 1e-5, true));
    } catch (const Error& refused) {
      FAIL_CHECK(refused.what());
    }
    io::save(values, folder.path / (std::to_string(number) + ".safetensors"));
    rows << number++ << ' ' << name << '\n';
  }
  rows.close();
  for (const auto& [name, why] : listed) {
    INFO(name << " is listed: " << why);
    CHECK(used.contains(name));
  }
  CHECK(names.size() >= 200);
  const std::string command = (python ? "'"s + python : "'python3"s) + "' ";
  if (std::system((command + "-c 'import onnxruntime, safetensors' 2>/dev/null").c_str()) != 0) return;
  CHECK(std::system((command + "test/onnx/export_rows.py '" + folder.path.string() + "'").c_str()) == 0);
}
