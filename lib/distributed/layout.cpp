#include "lib/distributed/layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace reel::distributed {
namespace {

std::string listing(const nn::Module& module, const DistributedDataParallelOptions& options) {
  std::string text =
      detail::concat("bucket_bytes ", options.bucket_bytes, ", first_bucket_bytes ", options.first_bucket_bytes,
                     options.broadcast_buffers ? ", broadcast_buffers" : "",
                     options.static_graph ? ", static_graph" : "", options.divide_by_active ? ", divide_by_active" : "",
                     options.check_weights ? ", check_weights" : "", options.hook ? ", a hook" : "", '\n');
  for (const auto& [path, tensor] : module.named_parameters())
    text += detail::concat("parameter ", path, ", ", tensor.dtype(), " ", tensor.shape(),
                           tensor.is_cuda() ? " on cuda" : "", tensor.requires_grad() ? "" : ", frozen", '\n');
  for (const auto& [path, tensor] : module.named_buffers())
    text += detail::concat("buffer ", path, ", ", tensor.dtype(), " ", tensor.shape(),
                           tensor.is_cuda() ? " on cuda" : "", '\n');
  return text;
}

// FNV-1a.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

}  // namespace

void compare_layouts(ProcessGroup& group, const nn::Module& module, const DistributedDataParallelOptions& options) {
  const std::string own = listing(module, options);
  std::string hash(sizeof(uint64_t), '\0');
  const uint64_t number = hash_of(own);
  std::memcpy(hash.data(), &number, sizeof number);
  const std::vector<std::string> hashes = group.all_gather_object(hash);
  if (std::all_of(hashes.begin(), hashes.end(), [&](const std::string& h) { return h == hashes[0]; })) return;

  std::vector<std::vector<std::string>> lines;
  size_t most = 0;
  for (const std::string& text : group.all_gather_object(own)) {
    lines.push_back(lines_of(text));
    most = std::max(most, lines.back().size());
  }
  const auto line = [&](size_t r, size_t i) { return i < lines[r].size() ? lines[r][i] : std::string("nothing more"); };
  for (size_t i = 0; i < most; ++i) {
    std::vector<int> others;
    std::string message = detail::concat("DistributedDataParallel: rank ", group.ranks()[0], " has ", line(0, i));
    for (size_t r = 1; r < lines.size(); ++r) {
      if (line(r, i) == line(0, i)) continue;
      others.push_back(group.ranks()[r]);
      if (others.size() <= 4) message += detail::concat(", rank ", group.ranks()[r], " has ", line(r, i));
    }
    if (others.size() > 4) message += detail::concat(", and ", others.size() - 4, " more differ");
    std::sort(others.begin(), others.end());
    if (!others.empty()) throw Error(Error::kMismatch, message, others);
  }
  throw Error(Error::kMismatch, "DistributedDataParallel: modules differ between the ranks");
}

}  // namespace reel::distributed
