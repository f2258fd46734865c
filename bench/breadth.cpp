// Reel's side of the breadth benchmark: a server that makes, checks and times the calls and models that
// bench/breadth.py asks for. A request is a line of words between tabs, and so is the answer; it begins with "ok", or
// is "error" and why:
//
//   op | forward | sum | kFloat32 -2..2 32,32 contiguous grad | %0 [1] false     its results
//   model | mlp | 256,512,3,64,infer                                             the results of its first step
//   time | 0.02                                 CPU time and wall clock of a step of the last request
//   clear                                       nothing is kept
//
// A result is its dtype, its shape and a sample of its elements. `backward` calls the op and returns the gradients of
// the operands that say `grad`.
#include "bench/breadth.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>
#include <unordered_map>

#include "bench/reel.h"
#include "reel/memory.h"

namespace bench {

using namespace reel;

Tensor noise(int64_t count, int64_t position) {
  constexpr int64_t kPeriod = 1048573, kApart = 7919;  // primes, so that rows differ; bench.py has them, too
  static const Tensor twice = [] {
    Random random(1);
    std::vector<int32_t> numbers(kPeriod);
    for (int32_t& number : numbers) number = static_cast<int32_t>(random.next() >> 40);
    return repeat(tensor(numbers), {2});
  }();
  const Tensor from = twice.narrow(0, kApart * position, std::min(count, kPeriod));
  return count <= kPeriod ? from.clone() : repeat(from, {(count + kPeriod - 1) / kPeriod}).narrow(0, 0, count);
}

Tensor uniform(double low, double high, const Shape& shape, int64_t position) {
  const Tensor x = noise(shape.numel(), position).to(kFloat32).mul_((high - low) / (1 << 24));
  return Tensor(x).add_(low).view(shape);
}

Tensor ids(int64_t limit, const Shape& shape, int64_t position) {
  return remainder(noise(shape.numel(), position), limit).to(kInt64).view(shape);
}

namespace {

std::vector<std::string> split(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, between);) parts.push_back(part);
  return parts;
}

// ---- operands -------------------------------------------------------------------------------------------------------

/// Returns elements as bench/breadth.txt describes them, of a shape.
Tensor elements(const std::string& values, const Shape& shape, DType dtype, int64_t position) {
  const int64_t n = shape.numel();
  const size_t dots = values.find("..");
  if (dots != std::string::npos) {
    const double low = std::stod(values.substr(0, dots)), high = std::stod(values.substr(dots + 2));
    if (is_floating_point(dtype)) return uniform(low, high, shape, position).to(dtype);
    const auto first = static_cast<int64_t>(std::ceil(low)), last = static_cast<int64_t>(std::floor(high));
    return ids(last - first + 1, shape, position).add_(first).to(dtype);
  }
  if (values.starts_with("ids<")) return ids(std::stoll(values.substr(4)), shape, position);
  if (values.starts_with("steps")) return arange(n).mul_(std::stoll(values.substr(5))).view(shape);
  if (values == "bool") return noise(n, position).view(shape) < (1 << 23);
  if (values == "permutation") return remainder(arange(n).mul_(7919), n).view(shape);
  if (values == "rising") return (arange(n).to(kFloat32) / static_cast<double>(n)).view(shape);
  REEL_CHECK(values == "positive", "breadth: there are no values '", values, "'");
  const Tensor a = uniform(-1, 1, shape, position);
  return matmul(a, a.transpose(-1, -2)) / static_cast<double>(shape.back()) + eye(shape.back());
}

/// Returns the operand of a description: dtype, values, shape and layout.
Tensor make_operand(const std::vector<std::string>& words, int64_t position) {
  const DType dtype = Names<DType>::all.at(words.at(0));
  Shape shape;
  for (const std::string& size : split(words.at(2), ',')) shape.push_back(std::stoll(size));
  const std::string& layout = words.at(3);
  Shape made = shape;
  const int last = shape.size() - 1;
  if (layout == "transposed") std::swap(made[last], made[last - 1]);
  if (layout == "strided") made[last] *= 2;
  if (layout == "row" || layout == "expanded") made[0] = 1;
  const Tensor x = elements(words.at(1), made, dtype, position);
  if (layout == "transposed") return x.transpose(-1, -2);
  if (layout == "strided") return x.slice(-1, 0, {}, 2);
  if (layout == "expanded") return x.expand(shape);
  return x;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

const Call& find_call(const std::string& op) {
  static const std::unordered_map<std::string_view, const Call*> calls = [] {
    std::unordered_map<std::string_view, const Call*> all;
    for (const auto* table : {&ops(), &more_ops()})
      for (const Op& one : *table) all[one.name] = &one.call;
    return all;
  }();
  const auto found = calls.find(op);
  REEL_CHECK(found != calls.end(), "breadth: there is no op '", op, "'");
  return *found->second;
}

Step forward_step(PreparedCall call) {
  return [call] {
    const NoGrad guard;
    return call();
  };
}

/// Returns a gradient for y that lies in memory as y does: so do gradients that pointwise ops make.
Tensor cotangent(const Tensor& y) {
  const Tensor g = ones_like(y).mul_(uniform(0.5, 1.5, y.shape(), 9).to(y.dtype()));
  const Strides strides = y.strides();
  if (std::count(strides.begin(), strides.end(), 0)) return g;
  Shape order = y.shape(), inverse = order;
  std::iota(order.begin(), order.end(), 0);
  const auto stride = [&](int64_t d) { return strides[static_cast<int>(d)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  for (int i = 0; i < order.size(); ++i) inverse[static_cast<int>(order[i])] = i;
  return g.permute(order).contiguous().permute(inverse);
}

Step backward_step(PreparedCall call, Tensors leaves) {
  return [call, leaves, cotangents = Tensors()]() mutable {
    Tensors results = call();
    std::erase_if(results, [](const Tensor& y) { return !y.defined() || !y.requires_grad(); });
    if (cotangents.empty())
      for (const Tensor& y : results) cotangents.push_back(cotangent(y.detach()));
    reel::backward(results, cotangents);
    results.clear();
    for (Tensor& leaf : leaves) {
      results.push_back(leaf.grad());
      leaf.set_grad({});
    }
    return results;
  };
}

// ---- answers --------------------------------------------------------------------------------------------------------

std::string describe(const Tensors& results) {
  constexpr int64_t kSample = 61;
  std::ostringstream text;
  text.precision(9);
  for (const Tensor& y : results) {
    if (!y.defined()) continue;
    const int64_t n = y.numel(), count = std::min(n, kSample);
    text << '\t' << y.dtype() << ' ' << y.shape() << " |";
    if (!n) continue;
    const Tensor at = floor_divide(arange(count).mul_(n), count);
    for (double value : index_select(y.detach().reshape({-1}), 0, at).to(kFloat64).to_vector<double>())
      text << ' ' << value;
  }
  return text.str();
}

/// Repeats a step for so many seconds, but once if it takes ten times as long. A measurement lasts 50 µs at least.
std::string timed(const Step& step, double secs) {
  Samples samples;
  const Time start = now();
  step();
  samples.add(start, now());
  const double once = samples.wall();
  const int repeats = once < 5e-5 ? static_cast<int>(5e-5 / std::max(once, 1e-8)) + 1 : 1;
  const auto repeat = [&] {
    for (int i = 0; i < repeats; ++i) step();
  };
  if (once < 10 * secs) samples = measure(repeat, secs, 0, once < secs ? 3 : 1);
  std::ostringstream text;
  text << '\t' << samples.cpu() / repeats << '\t' << samples.wall() / repeats;
  return text.str();
}

/// A Server answers requests. It holds the operands and the step of the last one.
class Server {
 public:
  std::string answer(const std::vector<std::string>& request) {
    const std::string& what = request.at(0);
    if (what == "time") return timed(step_, std::stod(request.at(1)));
    step_ = nullptr;
    if (what == "op") {
      step_ = op_step(request.at(1) == "backward", request.at(2), request.at(3), request.at(4));
    } else {
      operands_.clear();
      descriptions_.clear();
      empty_cache();
      if (what == "clear") return {};
      step_ = model_step(request.at(1), split(request.at(2), ','));
    }
    return describe(step_());
  }

 private:
  Step op_step(bool backward, const std::string& op, const std::string& descriptions, const std::string& arguments) {
    make_operands(descriptions, op.ends_with('_'));
    Values operands;
    Tensors leaves;
    for (const auto& [position, made] : operands_) {
      Tensor x = made.detach();
      if (backward && split(split(descriptions, ';')[position], ' ').at(4) == "grad")
        leaves.push_back(x.requires_grad_());
      operands[position] = x;
    }
    std::vector<Word> words;
    for (const std::string& word : split(arguments, ' ')) words.emplace_back(word, operands);
    PreparedCall call = find_call(op)(words);
    return backward ? backward_step(call, leaves) : forward_step(call);
  }

  /// Makes operands, unless the last ones are described alike and no op has changed them.
  void make_operands(const std::string& descriptions, bool changed) {
    if (descriptions != descriptions_) {
      operands_.clear();
      for (const std::string& description : split(descriptions, ';')) {
        const auto position = static_cast<int>(operands_.size());
        operands_[position] = make_operand(split(description, ' '), position);
      }
    }
    descriptions_ = changed ? "" : descriptions;
  }

  std::string descriptions_;
  Values operands_;
  Step step_;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  reel::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  reel::manual_seed(1);
  bench::Server server;
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer;
    try {
      answer = "ok" + server.answer(bench::split(line, '\t'));
    } catch (const std::exception& error) {
      answer = std::string("error\t") + error.what();
    }
    for (char& letter : answer)
      if (letter == '\n') letter = ' ';
    std::cout << answer << std::endl;
  }
}
