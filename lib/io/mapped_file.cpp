// This file maps files, and advises the system on pages (Linux).
#include "lib/io/mapped_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "reel/error.h"

namespace reel::io {

MappedFile::MappedFile(const InputFile& file) : size_(file.size()) {
  if (size_ == 0) return;  // mmap refuses it
  // Without MAP_NORESERVE a file that is larger than the memory would be refused, since all of it could be changed.
  void* const memory = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                              file.descriptor(), 0);
  REEL_CHECK(memory != MAP_FAILED, "cannot map ", file.path(), ": ", std::strerror(errno));
  data_ = static_cast<char*>(memory);
  if (file.is_complete()) return;
  ::munmap(data_, static_cast<size_t>(size_));
  reel::detail::fail(file.path(), ": it has become shorter while it was read");
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, static_cast<size_t>(size_));
}

void prefer_huge_pages(std::vector<std::span<char>> memory) {
  constexpr uintptr_t kHugePage = 2 << 20, kGap = 2 << 12;
  std::sort(memory.begin(), memory.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  for (auto at = memory.begin(); at != memory.end();) {
    const auto address = [](const char* byte) { return reinterpret_cast<uintptr_t>(byte); };
    const uintptr_t first = address(at->data());
    uintptr_t last = first;
    for (; at != memory.end() && address(at->data()) <= last + kGap; ++at) last = address(at->data() + at->size());
    const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage, end = last / kHugePage * kHugePage;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
}

}  // namespace reel::io
