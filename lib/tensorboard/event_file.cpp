#include "lib/tensorboard/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "reel/error.h"

namespace reel::tensorboard {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

template <class T>
void put(std::string& record, size_t at, T value) {
  std::memcpy(record.data() + at, &value, sizeof value);
}

// Unique among processes by their numbers, and within this one by the counter: O_EXCL finds what is left, such as the
// same number in another container.
std::string new_name(const std::string& suffix) {
  static std::atomic<int> counter = 0;
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "events.out.tfevents." + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count()) + "." +
         host + "." + std::to_string(::getpid()) + "." + std::to_string(counter++) + suffix;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = crc_table[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ crc >> 8;
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

EventFile::EventFile(const std::filesystem::path& folder, const std::string& suffix) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  REEL_CHECK(!error, "SummaryWriter: cannot make the folder ", folder, ": ", error.message());
  do {
    path_ = folder / new_name(suffix);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  REEL_CHECK(fd_ >= 0, "SummaryWriter: cannot make ", path_, ": ", std::strerror(errno));
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::append(std::string& record) {
  const uint64_t length = record.size() - kHeader;
  REEL_CHECK(length < 1u << 31, "cannot write to ", path_, ": a record of ", length, " bytes; a reader takes 2 GiB");
  put(record, 0, length);
  put(record, sizeof length, masked_crc32c({record.data(), sizeof length}));
  const uint32_t crc = masked_crc32c(std::string_view(record).substr(kHeader));
  record.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  const std::lock_guard lock(mutex_);
  // More than one call only where a signal or the end of the disk cuts the first one short.
  for (size_t done = 0; done < record.size();) {
    const ssize_t written =
        ::pwrite(fd_, record.data() + done, record.size() - done, end_ + static_cast<int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = written < 0 ? errno : ENOSPC;
      const bool cut = ::ftruncate(fd_, end_) == 0;
      reel::detail::fail("cannot write to ", path_, ": ", std::strerror(reason), "; it ends ",
                         cut ? "with the last whole record" : "within a record, which could not be cut off");
    }
    done += static_cast<size_t>(written);
  }
  end_ += static_cast<int64_t>(record.size());
}

void EventFile::sync() {
  REEL_CHECK(::fdatasync(fd_) == 0, "cannot write ", path_, " to the disk: ", std::strerror(errno));
}

}  // namespace reel::tensorboard
