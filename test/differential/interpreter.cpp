// Runs programs of reel ops, which differential.py writes, and says what they computed.
//
// A program is a line per statement, RESULTS OP ARGUMENT…, and ends with the line "run":
//
//   0 tensor kFloat32 [2] 0000803f00000040      the elements' bytes
//   - requires_grad_ %0 true                    no result is kept
//   1,2 no_grad:max %0 0 false                  without recording
//
// The answer is a line per statement that failed and per value, and ends with the line "end":
//
//   error 2 max: …              statement number 2, counted from 0; "skipped 2" if an operand is missing for an error
//   value 1 float32 [] 1 00000040      the number, dtype, shape, whether it requires grad, bytes; "undefined 1"
//   leaked 3                           nodes of the tape that are alive when all values are dropped
#include <iostream>
#include <sstream>
#include <unordered_map>

#include "test/differential/arguments.h"

namespace reel {
namespace {

template <class F>
auto with_type(DType type, F f) {
  switch (type) {
    case kBool: return f(bool());
    case kUInt8: return f(uint8_t());
    case kInt32: return f(int32_t());
    case kInt64: return f(int64_t());
    case kFloat16: return f(Float16());
    case kBFloat16: return f(BFloat16());
    case kFloat32: return f(float());
    default: return f(double());
  }
}

std::string bytes_of(const Tensor& x) {
  const NoGrad guard;
  const Tensor dense = x.detach().contiguous();
  const auto* data = static_cast<const unsigned char*>(
      with_type(x.dtype(), [&](auto t) -> const void* { return dense.data<decltype(t)>(); }));
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (int64_t i = 0; i < x.numel() * size_of(x.dtype()); ++i) text += {digits[data[i] >> 4], digits[data[i] & 15]};
  return text;
}

Tensor tensor_of(DType type, const Shape& shape, const std::string& bytes) {
  const Tensor x = empty(shape, {.dtype = type});
  auto* data = static_cast<unsigned char*>(with_type(type, [&](auto t) -> void* { return x.data<decltype(t)>(); }));
  for (int64_t i = 0; i < x.numel() * size_of(type); ++i)
    data[i] = static_cast<unsigned char>(std::stoi(bytes.substr(2 * i, 2), nullptr, 16));
  return x;
}

struct Statement {
  std::vector<int> results;
  std::string op;
  std::vector<std::string> arguments;
};

Statement parse(const std::string& line) {
  std::istringstream in(line);
  Statement statement;
  std::string results, word;
  in >> results >> statement.op;
  if (results != "-") {
    std::istringstream list(results);
    while (std::getline(list, word, ',')) statement.results.push_back(std::stoi(word));
  }
  while (in >> word) statement.arguments.push_back(word);
  return statement;
}

void execute(const Statement& statement, Values& values) {
  static const std::unordered_map<std::string_view, const Call*> calls = [] {
    std::unordered_map<std::string_view, const Call*> all;
    for (const Op& op : ops()) all[op.name] = &op.call;
    return all;
  }();
  std::vector<Word> words;
  for (const std::string& text : statement.arguments) words.emplace_back(text, values);
  if (statement.op == "tensor") {
    words.emplace_back("", values);  // an empty tensor has no bytes
    values[statement.results.at(0)] = tensor_of(read<DType>(words[0]), read<Shape>(words[1]), words[2].text());
    return;
  }
  std::string_view name = statement.op;
  const bool record = !name.starts_with("no_grad:");
  if (!record) name.remove_prefix(8);
  const GradMode guard(record);
  const Tensors results = (*calls.at(name))(words)();
  REEL_CHECK(statement.results.empty() || results.size() >= statement.results.size(), "differential: ", results.size(),
             " results");
  for (size_t i = 0; i < statement.results.size(); ++i) values[statement.results[i]] = results[i];
}

void run(const std::vector<Statement>& program) {
  const int64_t nodes = live_nodes();
  Values values;
  for (size_t i = 0; i < program.size(); ++i) {
    std::string message;
    try {
      execute(program[i], values);
      continue;
    } catch (const Word::Missing&) {
      std::cout << "skipped " << i << '\n';
      continue;
    } catch (const Error& error) {
      message = error.what();
    } catch (const std::exception& error) {
      message = std::string("not a reel::Error: ") + error.what();
    }
    for (char& letter : message)
      if (letter == '\n') letter = ' ';
    std::cout << "error " << i << ' ' << message << '\n';
  }
  for (const auto& [number, x] : values) {
    if (!x.defined())
      std::cout << "undefined " << number << '\n';
    else
      std::cout << "value " << number << ' ' << x.dtype() << ' ' << x.shape() << " | " << x.requires_grad() << ' '
                << bytes_of(x) << '\n';
  }
  values.clear();
  if (live_nodes() != nodes) std::cout << "leaked " << live_nodes() - nodes << '\n';
  std::cout << "end" << std::endl;  // what is said before a crash counts
}

}  // namespace
}  // namespace reel

int main(int argc, char**) {
  if (argc > 1) {  // the names of all ops
    for (const reel::Op& op : reel::ops()) std::cout << op.name << '\n';
    return 0;
  }
  std::vector<reel::Statement> program;
  for (std::string line; std::getline(std::cin, line);) {
    if (line != "run") {
      program.push_back(reel::parse(line));
    } else {
      reel::run(program);
      program.clear();
    }
  }
}
