// Finds other copies of the library in the process by a note in their ELF files.
#include "lib/base/copies.h"

#include <elf.h>
#include <errno.h>
#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

// This is a note of the ELF file that contains this copy of the library. The loader knows the notes of all that a
// process has loaded, also of a program that exports no symbols. It says where the flag below is, relative to itself.
extern "C" {
[[gnu::used, gnu::visibility("hidden")]] constinit std::atomic<bool> reel_copies_are_reported = false;
}
static_assert(sizeof reel_copies_are_reported == 1);
asm(R"(
.pushsection .note.reel,"a",%note
.balign 4
.long 5, 4, 0x7265656c
.asciz "reel"
.balign 4
.long reel_copies_are_reported - .
.popsection
)");

namespace reel {
namespace {

// These are the name and the type of the note above.
constexpr char kNoteName[] = "reel";
constexpr uint32_t kNoteType = 0x7265656c;

struct Copies {
  int count = 0;
  std::atomic<bool>* reported = nullptr;  // of the first
  const char *first = nullptr, *last = nullptr;
};

const char* name_of(const dl_phdr_info& file) { return *file.dlpi_name ? file.dlpi_name : program_invocation_name; }

// Returns the offset of the description of reel's note in a segment of notes, 0 if there is none.
size_t find_note(const char* notes, size_t bytes, size_t alignment) {
  const auto padded = [&](size_t size) { return (size + alignment - 1) / alignment * alignment; };
  ElfW(Nhdr) note;
  for (size_t at = 0; at + sizeof note <= bytes;) {
    std::memcpy(&note, notes + at, sizeof note);
    const size_t name = at + sizeof note, description = at + padded(sizeof note + note.n_namesz);
    if (note.n_type == kNoteType && note.n_namesz == sizeof kNoteName && note.n_descsz == sizeof(int32_t) &&
        std::memcmp(notes + name, kNoteName, sizeof kNoteName) == 0)
      return description;
    at = padded(description + note.n_descsz);
  }
  return 0;
}

int count_copy(dl_phdr_info* file, size_t, void* found) {
  auto& copies = *static_cast<Copies*>(found);
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = file->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const char*>(file->dlpi_addr + segment.p_vaddr);
    const size_t at = find_note(notes, segment.p_memsz, segment.p_align == 8 ? 8 : 4);
    if (!at) continue;
    if (!copies.count++) {
      int32_t offset;
      std::memcpy(&offset, notes + at, sizeof offset);
      copies.first = name_of(*file);
      copies.reported = reinterpret_cast<std::atomic<bool>*>(const_cast<char*>(notes) + at + offset);
    }
    copies.last = name_of(*file);
    break;
  }
  return 0;
}

}  // namespace

bool report_copies() {
  Copies copies;
  dl_iterate_phdr(count_copy, &copies);
  if (copies.count < 2 || copies.reported->exchange(true)) return copies.count < 2;
  std::fprintf(stderr,
               "reel: this process has two copies of the library, in %s and in %s. What one of them is told (no_grad, "
               "seeds, threads, the default device) the other does not know. Programs and their plug-ins need the "
               "shared library: build reel with -DBUILD_SHARED_LIBS=ON.\n",
               copies.first, copies.last);
  return false;
}

}  // namespace reel
