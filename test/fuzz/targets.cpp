#include "test/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "lib/io/elements.h"
#include "reel/data.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/onnx.h"
#ifdef REEL_FUZZ_IMAGE
#include "reel/image.h"
#endif

using namespace reel;
using Path = std::filesystem::path;

namespace {

void must(bool good, const char* what) {
  if (!good) throw std::logic_error(what);
}

void read_trees(const Path& file) {
  for (const data::Tree& tree : data::read_trees(file))
    must(data::parse_tree(tree.to_string()).to_string() == tree.to_string(), "a tree printed is another tree");
}

void read_conllu(const Path& file) {
  for (const data::ConlluSentence& sentence : data::read_conllu(file)) {
    sentence.to_string();
    sentence.metadata("text");
  }
}

void read_csv(const Path& file) {
  const data::CsvTable table = data::read_csv(file);
  for (const std::string& name : table.names()) table.strings(name);
  for (const DType dtype : {kBool, kInt64, kFloat32}) try {
      table.tensor({.dtype = dtype, .missing = 0});
    } catch (const Error&) {
    }
}

void read_vocabulary(const Path& file) {
  const data::Vocabulary words = data::Vocabulary::load(file);
  for (int64_t id = 0; id < words.size(); ++id) must(words.id(words.token(id)) == id, "a token has two numbers");
}

template <data::WordVectorFormat format>
void read_vectors(const Path& file) {
  const data::WordVectors vectors = data::read_word_vectors(file, {.format = format});
  must(vectors.vectors.size(0) == vectors.words.size(), "a word without a vector");
}

bool same_bits(const Tensor& x, const Tensor& y) {
  const Tensor a = x.contiguous(), b = y.contiguous();
  return x.numel() == 0 || std::memcmp(io::bytes_of(a), io::bytes_of(b), static_cast<size_t>(io::byte_count(a))) == 0;
}

// A file that is mapped has the tensors that it has when it is read.
template <bool verify>
void load(const Path& file) {
  const StateDict read = io::load(file, {.verify = verify});
  const StateDict mapped = io::load(file, {.verify = verify, .mmap = true});
  must(read.size() == mapped.size(), "a mapped file has another number of tensors");
  for (size_t i = 0; i < read.size(); ++i) {
    const Tensor &x = read[i].second, &y = mapped[i].second;
    must(read[i].first == mapped[i].first && x.dtype() == y.dtype() && x.shape() == y.shape(), "a mapped tensor");
    if (x.numel() < 1 << 20) must(same_bits(x, y), "a mapped file has other values");
  }
}

void load_checkpoint(const Path& file) {
  nn::Linear linear(2, 1);
  data::SequentialSampler sampler(10);
  io::Checkpoint checkpoint;
  checkpoint.add("model", linear).add("sampler", sampler);
  try {
    checkpoint.load(file, {.verify = false});  // or it would refuse whatever is changed
  } catch (const Error&) {
    must(sampler.position() == 0, "a checkpoint that was refused changed something");
    throw;
  }
}

void read_word_piece(const Path& file) {
  const data::WordPiece words = data::WordPiece::load(file);
  const std::vector<std::string>& pieces = words.vocabulary().tokens();
  std::string text;
  for (const std::string& piece : pieces) text += piece + " ";
  const std::vector<int64_t> ids = words.pieces(text);
  for (const int64_t id : ids) must(id >= 0 && id < words.vocabulary().size(), "a piece that is not there");
  must(words.encode(text, 16).size() == std::min<size_t>(ids.size() + 2, 16), "a text is cut elsewhere");
  must(words.encode(text, text, 16).size() == std::min<size_t>(2 * ids.size() + 3, 16), "a pair is cut elsewhere");
}

void read_cifar(const Path& file) {
  const data::CifarFile all = data::read_cifar(file, std::array<int64_t, 1>{10});
  must(all.images.size(0) == all.labels.size(0), "an image without its label");
}

// It is not run: a model may ask for any amount of memory.
void load_onnx(const Path& file) {
  const onnx::Model model = onnx::load(file);
  must(!model.output_names().empty(), "a model that gives nothing");
  must(!model.to_string().empty(), "a model that is not printed");
}

#ifdef REEL_FUZZ_IMAGE
void read_image(const Path& file) {
  const Tensor image = image::read_image(file, {.max_pixels = 1 << 22});
  must(image.dim() == 3 && image.numel() > 0, "an image without pixels");
  image::read_image(file, {.mode = image::kGrayAlpha, .max_pixels = 1 << 22});
}
#endif

constexpr FuzzTarget kTargets[] = {
    {"bert_config", [](const Path& file) { nn::BertConfig::load(file); }},
    {"checkpoint", load_checkpoint},
    {"cifar", read_cifar},
    {"conll", [](const Path& file) { data::read_conll(file); }},
    {"conllu", read_conllu},
    {"csv", read_csv},
    {"gzip", [](const Path& file) { data::read_lines(file); }},
    {"idx", [](const Path& file) { data::read_idx(file); }},
#ifdef REEL_FUZZ_IMAGE
    {"jpeg", read_image},
    {"png", read_image},
#endif
    {"npy", [](const Path& file) { io::load_npy(file); }},
    {"npz", [](const Path& file) { io::load_npz(file); }},
    {"onnx", load_onnx},
    {"safetensors", load<true>},
    {"torch_file", load<false>},
    {"tokenizer_config", [](const Path& file) { data::WordPieceOptions().with_settings_of(file); }},
    {"tree", read_trees},
    {"vocabulary", read_vocabulary},
    {"word2vec", read_vectors<data::WordVectorFormat::kWord2VecBinary>},
    {"word_piece", read_word_piece},
    {"word_vectors", read_vectors<data::WordVectorFormat::kText>},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

const FuzzTarget& fuzz_target(std::string_view name) {
  return *std::find_if(std::begin(kTargets), std::end(kTargets), [&](const FuzzTarget& t) { return t.name == name; });
}

bool feed(const FuzzTarget& target, std::span<const uint8_t> bytes) {
  static const int file = ::memfd_create("fuzz", 0);  // a file that no disk sees
  static const Path path = "/proc/self/fd/" + std::to_string(file);
  must(::ftruncate(file, 0) == 0, "ftruncate");
  must(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "pwrite");
  try {
    target.read(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}
