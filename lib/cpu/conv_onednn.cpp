#include <algorithm>
#include <atomic>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/per_thread.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/onednn.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/scratch.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/packed.h"
#include "reel/threads.h"

// Convolution by oneDNN. Data are in plain layouts, with channels second or last; oneDNN computes in the layouts that
// are fastest for a shape, with reorders before and after, and the primitives it has prepared for a shape are cached.
namespace reel::cpu {
namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

Type type_of(DType dtype) { return dtype == kBFloat16 ? Type::bf16 : Type::f32; }

// ---- the problem as oneDNN states it --------------------------------------------------------------------------------

/// A Result says what a call computes.
struct Result {
  ConvPart part;
  int64_t y_channels;  // an image has as many; y may be some of them
  DType weight_dtype;  // float32 where several gradients are added, whatever the data are
};

struct Problem {
  Type type, weight_type;
  Dims sizes[3];    // by ConvPart
  Dims strides[3];  // of the user's data
  Dims stride, dilation, before, after;
  int64_t in, out, groups, kernel_volume;
  bool with_bias, channels_last, packed;
  int spatial() const { return static_cast<int>(stride.size()); }
};

/// A convolution of one channel whose windows are as wide as x (words along the height, their vectors along the width)
/// is one dimension less of a convolution whose channels lie last.
bool spans_width(const Convolution& c) {
  return c.dims > 1 && c.in == 1 && c.x_size[2] > 1 && c.kernel[2] == c.x_size[2] && c.y_size[2] == 1 &&
         c.before[2] == 0;
}

Problem state(const Convolution& c, const Result& result) {
  const bool wide = spans_width(c);
  const int first = 3 - c.dims, last = wide ? 2 : 3;
  Problem p;
  p.type = type_of(c.dtype), p.weight_type = type_of(result.weight_dtype);
  p.in = wide ? c.x_size[2] : c.in / c.groups, p.out = c.out / c.groups;
  p.groups = c.groups, p.kernel_volume = 1, p.with_bias = c.bias != nullptr;
  p.channels_last = c.channels_last[kConvX], p.packed = c.packed;
  Dims &x = p.sizes[kConvX], &weight = p.sizes[kConvWeight], &y = p.sizes[kConvY];
  x = {c.n, p.in * c.groups};
  weight = {p.out, p.in};
  if (c.groups > 1) weight.insert(weight.begin(), c.groups);
  y = {c.n, c.out};
  for (int d = first; d < last; ++d) {
    x.push_back(c.x_size[d]), weight.push_back(c.kernel[d]), y.push_back(c.y_size[d]);
    p.stride.push_back(c.stride[d]), p.dilation.push_back(c.dilation[d] - 1), p.before.push_back(c.before[d]);
    p.after.push_back((c.y_size[d] - 1) * c.stride[d] + (c.kernel[d] - 1) * c.dilation[d] + 1 - c.x_size[d] -
                      c.before[d]);
    p.kernel_volume *= c.kernel[d];
  }
  for (const ConvPart part : {kConvX, kConvWeight, kConvY}) {
    Dims sizes = p.sizes[part];
    if (part == kConvY) sizes[1] = result.y_channels;
    p.strides[part] = dense_strides(sizes, c.channels_last[part] || (wide && part != kConvY));
  }
  return p;
}

// ---- layouts --------------------------------------------------------------------------------------------------------

enum class Layout { kPlain, kChannelsLast, kAny };

/// The layout that measured fastest on AVX-512 and AVX2 machines, reorders from and to plain layouts included. oneDNN's
/// own choice (kAny), blocks of 16 channels, computes with padding where channels do not fill the blocks. Kernels of
/// one pixel, and the gradient of x with few input channels, are fastest as plain matrix products, but not with strides
/// and packed weights. Data whose channels lie last stay so, but for few channels. Groups in bfloat16 take up to 40 %
/// less time forward in oneDNN's choice.
Layout layout_of(ConvPart wanted, const Problem& p) {
  const bool strided = std::any_of(p.stride.begin(), p.stride.end(), [](int64_t stride) { return stride > 1; });
  if (p.kernel_volume == 1 && (p.channels_last || !p.packed || !strided || p.in < 16 || p.out < 16))
    return p.channels_last ? Layout::kChannelsLast : Layout::kPlain;
  if (p.groups == 1 && p.in <= 4) return wanted == kConvX ? Layout::kPlain : Layout::kAny;
  if (p.channels_last) return Layout::kChannelsLast;
  const bool each_channel = p.in == 1 && p.out == 1;
  if (wanted == kConvY && p.type == Type::bf16 && p.groups > 1 && !each_channel) return Layout::kAny;
  const int64_t in = each_channel ? p.groups : p.in, out = each_channel ? p.groups : p.out;
  return in % 16 == 0 && out % 16 == 0 ? Layout::kAny : Layout::kChannelsLast;
}

dnnl::memory::desc describe(ConvPart part, const Problem& p, Layout layout) {
  constexpr Tag plain[] = {Tag::ncw, Tag::nchw, Tag::ncdhw}, last[] = {Tag::nwc, Tag::nhwc, Tag::ndhwc},
                weights[] = {Tag::oiw, Tag::oihw, Tag::oidhw}, grouped[] = {Tag::goiw, Tag::goihw, Tag::goidhw};
  const int i = p.spatial() - 1;
  Tag tag = Tag::any;
  if (part == kConvWeight)
    tag = layout != Layout::kPlain ? Tag::any : p.groups > 1 ? grouped[i] : weights[i];
  else if (layout != Layout::kAny)
    tag = layout == Layout::kPlain ? plain[i] : last[i];
  return {p.sizes[part], p.type, tag};
}

// ---- plans ----------------------------------------------------------------------------------------------------------

/// The primitive, reorders and memory objects of a problem: all that does not depend on the data, whose pointers are
/// set for each run.
class Plan {
 public:
  Plan(const Result& result, const Convolution& c) {
    try {
      prepare(result.part, state(c, result));
    } catch (const dnnl::error&) {
      primitive_ = {};
    }
  }
  explicit operator bool() const { return static_cast<bool>(primitive_); }

  /// The weights as the primitive reads them, for several runs.
  struct Weights {
    dnnl::memory::desc layout;
    void* data;
  };
  size_t weights_bytes() const {
    const Operand* const o = reordered_weights();
    return o ? o->inner.get_desc().get_size() : 0;
  }
  Weights reorder_weights(const Convolution& c, void* to) {
    Operand& o = *reordered_weights();
    o.outer.set_data_handle(c.data[kConvWeight]);
    o.inner.set_data_handle(to);
    o.reorder.execute(onednn_stream(), {{DNNL_ARG_FROM, o.outer}, {DNNL_ARG_TO, o.inner}});
    onednn_stream().wait();
    return {o.inner.get_desc(), to};
  }

  void run(const Convolution& c, const Weights* weights) {
    dnnl::stream& stream = onednn_stream();
    const Scratch scratch(scratch_bytes_ - (c.packed ? round_up(weights_bytes()) : 0));
    char* free = scratch.data<char>();
    scratchpad_.set_data_handle(free);
    free += round_up(scratchpad_.get_desc().get_size());
    for (Operand& o : operands_) {
      o.outer.set_data_handle(o.part < 0 ? const_cast<void*>(c.bias) : c.data[static_cast<size_t>(o.part)]);
      if (!o.reorder) continue;
      if (c.packed && o.part == kConvWeight && !o.result) {
        o.inner.set_data_handle(packed_weights(o, *c.packed));
        continue;
      }
      if (weights && o.part == kConvWeight && o.inner.get_desc() == weights->layout) {
        o.inner.set_data_handle(weights->data);
        continue;
      }
      o.inner.set_data_handle(free);
      free += round_up(o.inner.get_desc().get_size());
      if (!o.result) o.reorder.execute(stream, {{DNNL_ARG_FROM, o.outer}, {DNNL_ARG_TO, o.inner}});
    }
    primitive_.execute(stream, arguments_);
    for (Operand& o : operands_)
      if (o.result && o.reorder) o.reorder.execute(stream, {{DNNL_ARG_FROM, o.inner}, {DNNL_ARG_TO, o.outer}});
    stream.wait();
  }

 private:
  struct Operand {
    int part;  // a ConvPart, or -1 for the bias
    bool result;
    dnnl::memory outer, inner;  // one and the same without a reorder
    dnnl::reorder reorder;
  };

  /// A Packed is a copy of weights in a layout of oneDNN's.
  struct Packed final : PackedCopy {
    Packed(const void* from, const dnnl::memory::desc& as) : source(from), layout(as), memory(as.get_size()) {}
    const void* const source;
    const dnnl::memory::desc layout;
    const Scratch memory;
  };
  /// Returns the weights in the layout of the primitive; they are reordered for the first call alone.
  static void* packed_weights(Operand& o, PackedCopies& copies) {
    const void* const source = o.outer.get_data_handle();
    const dnnl::memory::desc layout = o.inner.get_desc();
    const auto matches = [&](const PackedCopy& copy) {
      const auto& packed = static_cast<const Packed&>(copy);
      return packed.source == source && packed.layout == layout;
    };
    const PackedCopy& copy = copies.get(matches, [&] {
      auto made = std::make_unique<Packed>(source, layout);
      o.inner.set_data_handle(made->memory.data());
      o.reorder.execute(onednn_stream(), {{DNNL_ARG_FROM, o.outer}, {DNNL_ARG_TO, o.inner}});
      onednn_stream().wait();
      return made;
    });
    return static_cast<const Packed&>(copy).memory.data();
  }

  Operand* reordered_weights() {
    for (Operand& o : operands_)
      if (o.part == kConvWeight && !o.result && o.reorder) return &o;
    return nullptr;
  }
  const Operand* reordered_weights() const { return const_cast<Plan*>(this)->reordered_weights(); }

  static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }
  static dnnl::memory without_data(const dnnl::memory::desc& desc) { return {desc, onednn_engine(), nullptr}; }

  void prepare(ConvPart wanted, const Problem& p) {
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::engine& engine = onednn_engine();
    const Layout layout = layout_of(wanted, p);
    const auto x = describe(kConvX, p, layout), weight = describe(kConvWeight, p, layout),
               y = describe(kConvY, p, layout), bias = dnnl::memory::desc({p.sizes[kConvY][1]}, p.type, Tag::x);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);

    using Forward = dnnl::convolution_forward;
    // The kernels for inference alone take up to 20 % less time where there are many channels, but weights, and data
    // whose channels do not lie last, are reordered more slowly for them.
    const int64_t channels = p.groups > 1 ? 0 : std::min(p.in, p.out);
    const bool many = p.channels_last ? channels >= 32 || p.kernel_volume == 1 : channels >= 128 && p.kernel_volume > 1;
    const bool by_inference = p.packed && wanted == kConvY && many;
    const auto kind = by_inference ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    const Forward::desc desc =
        p.with_bias ? Forward::desc(kind, direct, x, weight, bias, y, p.stride, p.dilation, p.before, p.after)
                    : Forward::desc(kind, direct, x, weight, y, p.stride, p.dilation, p.before, p.after);
    const Forward::primitive_desc forward(desc, attributes, engine);
    if (wanted == kConvY) {
      add(p, kConvX, DNNL_ARG_SRC, forward.src_desc(), false);
      add(p, kConvWeight, DNNL_ARG_WEIGHTS, forward.weights_desc(), false);
      if (p.with_bias) add_bias(bias);
      add(p, kConvY, DNNL_ARG_DST, forward.dst_desc(), true);
      finish<Forward>(p, forward);
    } else if (wanted == kConvX) {
      using Backward = dnnl::convolution_backward_data;
      const Backward::primitive_desc backward({direct, x, weight, y, p.stride, p.dilation, p.before, p.after},
                                              attributes, engine, forward);
      add(p, kConvX, DNNL_ARG_DIFF_SRC, backward.diff_src_desc(), true);
      add(p, kConvWeight, DNNL_ARG_WEIGHTS, backward.weights_desc(), false);
      add(p, kConvY, DNNL_ARG_DIFF_DST, backward.diff_dst_desc(), false);
      finish<Backward>(p, backward);
    } else {
      using Backward = dnnl::convolution_backward_weights;
      dnnl::memory::desc sums = weight;
      sums.data.data_type = dnnl_f32;
      const Backward::primitive_desc backward({direct, x, sums, y, p.stride, p.dilation, p.before, p.after}, attributes,
                                              engine, forward);
      add(p, kConvX, DNNL_ARG_SRC, backward.src_desc(), false);
      add(p, kConvWeight, DNNL_ARG_DIFF_WEIGHTS, backward.diff_weights_desc(), true);
      add(p, kConvY, DNNL_ARG_DIFF_DST, backward.diff_dst_desc(), false);
      finish<Backward>(p, backward);
    }
  }

  void add(const Problem& p, ConvPart part, int argument, const dnnl::memory::desc& inside, bool result) {
    const dnnl::memory::desc outside(p.sizes[part], part == kConvWeight && result ? p.weight_type : p.type,
                                     p.strides[part]);
    Operand o{part, result, without_data(outside), {}, {}};
    o.inner = o.outer;
    if (inside != outside) {
      o.inner = without_data(inside);
      o.reorder = result ? dnnl::reorder(o.inner, o.outer) : dnnl::reorder(o.outer, o.inner);
      scratch_bytes_ += round_up(inside.get_size());
    }
    arguments_.emplace(argument, o.inner);
    operands_.push_back(std::move(o));
  }
  void add_bias(const dnnl::memory::desc& desc) {
    const dnnl::memory memory = without_data(desc);
    arguments_.emplace(DNNL_ARG_BIAS, memory);
    operands_.push_back({-1, false, memory, memory, {}});
  }
  template <class Primitive>
  void finish(const Problem& p, const typename Primitive::primitive_desc& desc) {
    // A convolution in float32 is faster than the reference code.
    if (p.type == Type::bf16 && std::string_view(desc.impl_info_str()).starts_with("ref")) return;
    scratchpad_ = without_data(desc.scratchpad_desc());
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
    scratch_bytes_ += round_up(desc.scratchpad_desc().get_size());
    primitive_ = Primitive(desc);
  }

  dnnl::primitive primitive_;
  std::vector<Operand> operands_;
  dnnl::memory scratchpad_;
  std::unordered_map<int, dnnl::memory> arguments_;
  size_t scratch_bytes_ = 0;
};

// ---- the plans of a thread ------------------------------------------------------------------------------------------

using Key = std::array<int64_t, 26>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 14695981039346656037u;  // FNV-1a, a word at a time
    for (const int64_t word : key) hash = (hash ^ static_cast<uint64_t>(word)) * 1099511628211u;
    return hash ^ hash >> 32;
  }
};

Key key_of(const Result& result, const Convolution& c) {
  const int64_t flags = (c.bias != nullptr) | c.channels_last[kConvX] << 1 | (c.dtype == kBFloat16) << 2 |
                        (result.weight_dtype == kBFloat16) << 3 | (c.packed != nullptr) << 4;
  Key key{result.part, flags, c.dims, c.n, c.in, c.out, c.groups, result.y_channels};
  auto at = key.begin() + 8;
  for (const auto* list : {&c.x_size, &c.kernel, &c.y_size, &c.stride, &c.dilation, &c.before})
    at = std::copy(list->begin(), list->end(), at);
  return key;
}

constexpr size_t kMaxPlans = 256;

struct FoundPlan {
  Plan& plan;
  bool is_new;
};
/// The plan for a shape, kept for as long as it is among the kMaxPlans that were used last.
FoundPlan plan_for(const Result& result, const Convolution& c) {
  struct Entry {
    Key key;
    Plan plan;
  };
  struct Plans {
    std::list<Entry> entries;  // most recently used first
    std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> places;
  };
  static constinit thread_local PerThread<OnednnState<Plans>> mine;
  auto& [entries, places] = *mine->state;
  const Key key = key_of(result, c);
  if (const auto found = places.find(key); found != places.end()) {
    entries.splice(entries.begin(), entries, found->second);
    return {entries.front().plan, false};
  }
  if (entries.size() == kMaxPlans) {
    places.erase(entries.back().key);
    entries.pop_back();
  }
  entries.push_front({key, Plan(result, c)});
  places.emplace(key, entries.begin());
  return {entries.front().plan, true};
}

// ---- division among threads -----------------------------------------------------------------------------------------

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

/// Into how many parts a convolution is divided by images, and each of those by y's channels. It depends on the problem
/// alone, since the parts of a weight gradient are rounded before they are added.
struct Division {
  int64_t images = 1, channels = 1;
  int64_t parts() const { return images * channels; }
};

Division division_of(ConvPart wanted, const Convolution& c) {
  constexpr int64_t kPartWork = int64_t{1} << 20, kMaxParts = 16;  // multiplications; 20 to 50 µs
  const int64_t places = volume(c.y_size), window = c.in / c.groups * volume(c.kernel), weights = c.out * window;
  const int64_t most = std::min(kMaxParts, c.n * places * weights / kPartWork);
  // A part of a weight gradient reorders and adds all of them, which 1024 places of y make 2 % of its work. A part of y
  // or x reads them, from the second-level cache if they fit.
  const int64_t least_places = wanted == kConvWeight ? 1024 : weights > (1 << 18) ? 2048 : 256;
  Division d;
  while (2 * d.images <= std::min(most, c.n) && c.n * places >= 2 * d.images * least_places) d.images *= 2;
  // Every part by channels reorders x anew.
  if (wanted == kConvX || c.groups > 1) return d;
  const int64_t min_channels = c.packed ? 128 : 16;  // parts of 32 channels take 20 % longer
  const auto fits = [&](int64_t parts) {
    return c.out % (min_channels * parts) == 0 && c.out / parts * volume(c.kernel) >= 256;
  };
  while (2 * d.parts() <= most && fits(2 * d.channels)) d.channels *= 2;
  return d;
}

bool run_plan(const Result& result, const Convolution& c, const Plan::Weights* weights = nullptr) {
  const OnednnCall call;
  if (!call) return false;
  try {
    auto [plan, is_new] = plan_for(result, c);
    if (plan) plan.run(c, weights);
    if (is_new) OnednnCall::outlive_what_it_made();
    return static_cast<bool>(plan);
  } catch (const dnnl::error&) {  // it is out of memory, say; the caller computes the whole result another way
    return false;
  }
}

/// Returns part `part` of c. The weight gradient of its images is the i-th of `sums` where there are any.
Convolution part_of(const Convolution& c, const Division& d, int64_t part, float* sums) {
  const int64_t i = part / d.channels, j = part % d.channels, unit = size_of(c.dtype);
  const int64_t first = c.n * i / d.images, channels = c.out / d.channels, places = volume(c.y_size);
  const int64_t window = c.in / c.groups * volume(c.kernel);
  const auto at = [](const void* data, int64_t bytes) { return static_cast<char*>(const_cast<void*>(data)) + bytes; };
  Convolution some = c;
  some.n = c.n * (i + 1) / d.images - first, some.out = channels;
  some.data[kConvX] = at(c.data[kConvX], first * c.in * volume(c.x_size) * unit);
  some.data[kConvY] =
      at(c.data[kConvY], (first * c.out * places + j * channels * (c.channels_last[kConvY] ? 1 : places)) * unit);
  some.data[kConvWeight] = at(c.data[kConvWeight], j * channels * window * unit);
  if (sums) some.data[kConvWeight] = sums + (i * c.out + j * channels) * window;
  if (c.bias) some.bias = at(c.bias, j * channels * unit);
  return some;
}

/// Adds the weight gradients of `count` parts, and rounds them to c's dtype.
void add_gradients(const Convolution& c, int64_t weights, float* sums, int64_t count) {
  parallel_for(weights, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < count; ++part)
      for (int64_t i = begin; i < end; ++i) sums[i] += sums[part * weights + i];
    const void* const gradients = static_cast<char*>(c.data[kConvWeight]) + begin * size_of(c.dtype);
    copy(flat_view(sums + begin, kFloat32, end - begin), flat_view(gradients, c.dtype, end - begin));
  });
}

}  // namespace

bool onednn_convolve(ConvPart wanted, const Convolution& c) {
  const Division d = division_of(wanted, c);
  Result result{wanted, c.out, c.dtype};
  if (d.parts() == 1) return run_plan(result, c);
  const int64_t weights = c.out * (c.in / c.groups) * volume(c.kernel);
  const bool adds = wanted == kConvWeight && d.images > 1;
  size_t bytes = 0;
  if (adds) result.weight_dtype = kFloat32, bytes = static_cast<size_t>(d.images * weights) * sizeof(float);
  // Parts by images share the weights that the first of them would reorder.
  const bool shares = wanted != kConvWeight && d.channels == 1 && !c.packed;
  Plan* first = nullptr;
  bool is_new = false;
  if (shares) {
    const OnednnCall call;
    if (!call) return false;
    const FoundPlan found = plan_for(result, part_of(c, d, 0, nullptr));
    first = &found.plan, is_new = found.is_new;
    if (!*first) return false;
    bytes = first->weights_bytes();
  }
  const Scratch scratch(bytes);
  Plan::Weights reordered;
  if (shares && bytes) {
    const OnednnCall call;
    if (!call) return false;
    try {
      reordered = first->reorder_weights(c, scratch.data());
    } catch (const dnnl::error&) {
      return false;
    }
  }
  float* const sums = adds ? scratch.data<float>() : nullptr;
  std::atomic<bool> done{true};
  parallel_for(d.parts(), 1, [&](int64_t part, int64_t) {
    if (!run_plan(result, part_of(c, d, part, sums), shares && bytes ? &reordered : nullptr)) done = false;
  });
  if (is_new)
    if (const OnednnCall call; call) OnednnCall::outlive_what_it_made();
  if (!done) return false;
  if (adds) add_gradients(c, weights, sums, d.images);
  return true;
}

}  // namespace reel::cpu
