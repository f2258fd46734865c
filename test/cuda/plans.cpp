// Makes cuDNN plans for every kind of convolution, and of attention, on an H100, given by its properties only, and
// fails where cuDNN has no engine, or more than known come without tensor cores (of TF32 and half types) or do not add
// the bias: no GPU is needed. `plans -v` lists what it found, `plans --properties` prints those of the GPU that is
// here, as test/cuda/h100.json has an H100's. Convolutions are asked for with channels second and last; the latter must
// not be converted by cuDNN where there are tensor cores. Of recurrent layers it makes the descriptors; what cuDNN
// needs beyond them, it says to a GPU only.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cuda/dnn_attention.h"
#include "cuda/dnn_plan.h"
#include "cuda/dnn_recurrence.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/recurrence.h"

using namespace reel;
using namespace reel::cuda;

namespace {

// By whether channels lie last, with cuDNN 9.19:
/// Of the cases below mostly few or odd channels, and data that is not aligned, of which there are more (105) where
/// channels lie last.
constexpr int kWithoutTensorCores[] = {87, 130};
/// A few; with a driver also those of each channel, where an engine is compiled that adds no bias.
constexpr int kBiasApart[] = {2 + 10, 1 + 10};

struct Case {
  const char* name;
  Convolution conv;
};

Convolution convolution(int dims, int64_t n, int64_t in, int64_t out, int64_t size, int64_t kernel) {
  Convolution c{.dtype = kFloat32,
                .dims = dims,
                .n = n,
                .in = in,
                .out = out,
                .groups = 1,
                .x_size = {1, 1, 1},
                .kernel = {1, 1, 1},
                .y_size = {1, 1, 1},
                .stride = {1, 1, 1},
                .dilation = {1, 1, 1},
                .before = {0, 0, 0}};
  for (size_t d = 3 - static_cast<size_t>(dims); d < 3; ++d)
    c.x_size[d] = size, c.kernel[d] = kernel, c.before[d] = kernel / 2;
  return c;
}
/// As many windows as there is room for with `after` more pixels behind x than before it.
Convolution filled(Convolution c, int64_t after = 0) {
  for (size_t d = 3 - static_cast<size_t>(c.dims); d < 3; ++d) {
    const int64_t reach = (c.kernel[d] - 1) * c.dilation[d] + 1;
    c.y_size[d] = (c.x_size[d] + 2 * c.before[d] + after - reach) / c.stride[d] + 1;
  }
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"2d", filled(convolution(2, 8, 64, 128, 32, 3))});
  all.push_back({"2d of 256 channels", filled(convolution(2, 64, 256, 256, 56, 3))});
  all.push_back({"2d of one pixel", filled(convolution(2, 8, 64, 256, 14, 1))});
  all.push_back({"2d of an image", filled(convolution(2, 2, 3, 64, 224, 7))});
  all.push_back({"2d of odd sizes", filled(convolution(2, 3, 5, 7, 13, 3))});
  Convolution c = convolution(2, 8, 64, 64, 32, 3);
  c.stride = {1, 2, 2};
  all.push_back({"2d, stride 2", filled(c)});
  c = convolution(2, 8, 64, 64, 32, 3);
  c.dilation = {1, 2, 2}, c.before = {0, 2, 2};
  all.push_back({"2d, dilation 2", filled(c)});
  all.push_back({"2d, padded behind", filled(convolution(2, 8, 16, 16, 32, 4), -1)});
  c = convolution(2, 8, 64, 64, 32, 3);
  c.groups = 4;
  all.push_back({"2d, 4 groups", filled(c)});
  c.groups = 64;
  all.push_back({"2d, each channel", filled(c)});
  all.push_back({"1d", filled(convolution(1, 8, 64, 128, 100, 5))});
  c = convolution(1, 8, 64, 128, 100, 3);
  c.dilation = {1, 1, 4}, c.before = {0, 0, 8};
  all.push_back({"1d, causal", filled(c, -8)});
  all.push_back({"3d", filled(convolution(3, 2, 16, 32, 16, 3))});
  c = convolution(2, 32, 1, 100, 40, 5);  // words along the height, their vectors along the width
  c.x_size[2] = c.kernel[2] = 128, c.before = {0, 2, 0};
  c = filled(c);
  all.push_back({"2d over words", c});
  return all;
}

Descriptor properties(const char* file) {
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text.c_str(),
             static_cast<int64_t>(text.size() + 1));
  if (!device.finalize()) {
    std::printf("cuDNN does not take the properties in %s\n", file);
    std::exit(1);
  }
  return device;
}

int print_properties() {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t{0});
  std::string text(1 << 16, '\0');
  if (device.finalize())
    device.get(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text.data(),
               static_cast<int64_t>(text.size()));
  std::puts(text.c_str());
  return text[0] != '{';
}

/// How many problems there are of each kind.
struct Counts {
  int missing = 0, slow = 0, apart = 0, converting = 0;
};
void find(const Descriptor& device, const char* name, const DnnProblem& problem, bool verbose, Counts& counts) {
  static constexpr const char* kWanted[] = {"x", "weight", "y"};
  const Convolution& c = problem.conv;
  const std::vector<DnnPlan> plans = dnn_plans({nullptr, &device}, problem, 1);
  const bool low = problem.tf32 || is_half(c.dtype);
  counts.missing += plans.empty();
  counts.slow += !plans.empty() && !plans[0].tensor_cores && low;
  counts.apart += !plans.empty() && c.bias && !plans[0].adds_bias;
  // Small images may be converted, to fill channels up, say.
  const int64_t x_bytes = c.n * c.in * c.x_size[0] * c.x_size[1] * c.x_size[2] * size_of(c.dtype);
  const bool large = x_bytes >= int64_t{64} << 20 && problem.alignment[0] == 16;
  counts.converting += large && low && !plans.empty() && plans[0].workspace >= x_bytes;
  if (!verbose && !plans.empty()) return;
  std::printf("%-18s %-8s %-6s aligned to %2d%s%s%s: ", name, name_of(c.dtype), kWanted[problem.wanted],
              static_cast<int>(problem.alignment[0]), problem.tf32 ? ", TF32" : "", c.bias ? ", with a bias" : "",
              c.channels_last[kConvX] ? ", channels last" : "");
  if (plans.empty()) return void(std::puts("no plan"));
  const DnnPlan& plan = plans[0];
  std::printf("rank %d%s, workspace %lld%s%s\n", plan.rank, plan.mode == CUDNN_HEUR_MODE_A ? "" : " to fall back on",
              static_cast<long long>(plan.workspace), plan.tensor_cores ? ", tensor cores" : "",
              c.bias && !plan.adds_bias ? ", the bias apart" : "");
}

/// Attention's engines are compiled when they are planned. Without a driver, or with the toolkit's stub of one, that
/// ends where the driver would load them: what was refused before is a failure.
bool has_attention(const Descriptor& device, const RaggedAttention& attention, bool backward, bool verbose) {
  const void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  cudnnStatus_t failure = CUDNN_STATUS_SUCCESS;
  const DnnTarget target{nullptr, &device, &failure};
  size_t engines = 0, compiled = 0;
  if (const std::optional<Descriptor> graph = attention_graph(target, attention, backward))
    for (const Descriptor& config : dnn_configs(target, *graph, CUDNN_HEUR_MODE_A)) {
      ++engines;
      if (compiled) continue;
      failure = CUDNN_STATUS_SUCCESS;
      compiled += dnn_plan(target, config) || CUDNN_STATUS_CATEGORY(failure) == CUDNN_STATUS_EXECUTION_FAILED;
    }
  const bool good = driver ? compiled > 0 : true;
  if (verbose || !good)
    std::printf("attention%s%s%s %-8s of %d queries, %d keys, %d and %d heads of %d: %zu engines%s\n",
                backward ? ", gradients" : "", attention.causal ? ", causal" : "",
                attention.batch->key_lengths ? ", padded" : "", name_of(attention.dtype),
                static_cast<int>(attention.queries / attention.sequences),
                static_cast<int>(attention.keys / attention.sequences), static_cast<int>(attention.heads),
                static_cast<int>(attention.kv_heads), static_cast<int>(attention.width), engines,
                !driver    ? ", not compiled: there is no libcuda.so.1"
                : compiled ? ", the first compiles"
                           : ", none compiles");
  return good;
}
int missing_attention(const Descriptor& device, bool verbose) {
  struct Size {
    int64_t queries, keys, kv_heads, width;
  };
  int missing = 0;
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const auto& [causal, padded] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}})
      for (const auto [queries, keys, kv_heads, width] :
           {Size{512, 512, 8, 64}, {1000, 777, 8, 64}, {1000, 777, 2, 64}, {512, 777, 8, 256}, {1000, 777, 1, 160}}) {
        if ((width > 64 || kv_heads < 8) && (dtype == kFloat16 || causal == padded)) continue;  // they take long
        constexpr int64_t n = 4, heads = 8;
        RaggedAttention a{.dtype = dtype,
                          .sequences = n,
                          .queries = n * queries,
                          .keys = n * keys,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .width = width,
                          .value_width = width,
                          .causal = causal};
        // As MultiheadAttention has them: query, key and value are parts of one projection.
        const int64_t step = (heads + 2 * kv_heads) * width;
        const auto part = [&](int64_t length) { return RaggedAttention::Steps{length * step, width, step}; };
        const auto whole = [&](int64_t length, int64_t of) {
          return RaggedAttention::Steps{of * length * width, length * width, width};
        };
        const auto of_query = whole(queries, heads), of_key = whole(keys, kv_heads);
        RaggedAttention::Batch batch{part(queries), part(keys), part(keys), of_query, of_query,
                                     of_query,      of_key,     of_key,     nullptr};
        a.batch = &batch;
        const int32_t lengths = 0;  // not read
        if (padded) batch.query_lengths = batch.key_lengths = &lengths;
        missing += !has_attention(device, a, false, verbose) + !has_attention(device, a, true, verbose);
      }
  return missing;
}

/// How many kinds of recurrent layers cuDNN does not take.
int missing_layers(bool verbose) {
  static constexpr double kSomeBias = 0;                  // not read
  static constexpr int64_t kSizes[] = {32, 32, 9, 9, 1};  // of steps
  int missing = 0;
  for (const Recurrence::Kind kind : {Recurrence::kLstm, Recurrence::kGru, Recurrence::kTanh, Recurrence::kRelu})
    for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
      for (const bool tf32 : {false, true})
        for (const bool with_bias : {false, true})
          for (const int directions : {1, 2}) {
            RnnLayer layer{};
            layer.kind = kind, layer.dtype = dtype, layer.directions = directions;
            layer.steps = 5, layer.rows = 32, layer.in = 300, layer.hidden = 1000;
            if (with_bias) layer.parameters[0][RnnLayer::kBiasIh] = &kSomeBias;
            RnnDescriptors described;
            cudnnStatus_t status = described.set_cell(layer, tf32 && dtype == kFloat32);
            for (const int64_t* const sizes : {static_cast<const int64_t*>(nullptr), kSizes}) {
              layer.sizes = sizes;
              if (status == CUDNN_STATUS_SUCCESS && described.set_lengths(layer))
                status = described.set_sequences(layer);
            }
            missing += status != CUDNN_STATUS_SUCCESS;
            if (verbose || status != CUDNN_STATUS_SUCCESS)
              std::printf("recurrent layer %d of %s%s%s, %d directions: %s\n", static_cast<int>(kind), name_of(dtype),
                          tf32 ? ", TF32" : "", with_bias ? ", with biases" : "", directions,
                          cudnnGetErrorString(status));
          }
  return missing;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && !std::strcmp(argv[1], "--properties")) return print_properties();
  const bool verbose = argc > 1 && !std::strcmp(argv[1], "-v");
  const Descriptor device = properties("test/cuda/h100.json");
  static constexpr double kSomeBias = 0;  // not read
  Counts counts[2];
  for (const Case& c : cases())
    for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
      for (const ConvPart wanted : {kConvY, kConvX, kConvWeight})
        for (const int64_t alignment : {int64_t{16}, size_of(dtype)})
          for (const bool tf32 : {false, true}) {
            if (tf32 && dtype != kFloat32) continue;
            Convolution conv = c.conv;
            conv.dtype = dtype;
            for (const bool with_bias : {false, true}) {
              if (with_bias && wanted != kConvY) continue;
              conv.bias = with_bias ? &kSomeBias : nullptr;
              for (const bool last : {false, true}) {
                conv.channels_last = {last, last, last};
                find(device, c.name, {wanted, conv, tf32, {alignment, alignment, alignment, alignment}}, verbose,
                     counts[last]);
              }
            }
          }
  bool good = counts[true].converting == 0;
  for (const bool last : {false, true}) {
    const auto [missing, slow, apart, converting] = counts[last];
    std::printf(
        "of convolutions%s %d are without a plan, %d of TF32 or half types without tensor cores, %d with a bias that "
        "is added apart, %d with a workspace as large as a large x\n",
        last ? ", channels last," : "", missing, slow, apart, converting);
    good = good && missing == 0 && slow <= kWithoutTensorCores[last] && apart <= kBiasApart[last];
  }
  const int attention = missing_attention(device, verbose);
  std::printf("%d kinds of attention without a plan\n", attention);
  const int layers = missing_layers(verbose);
  std::printf("%d kinds of recurrent layers that cuDNN does not take\n", layers);
  return !good || attention || layers;
}
