#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

/// The readers, for libFuzzer (fuzz.cpp) and for a test that feeds them the seeds (replay.cpp).
struct FuzzTarget {
  const char* name;
  void (*read)(const std::filesystem::path& file);
};
std::span<const FuzzTarget> fuzz_targets();
/// The one of that name, which there must be.
const FuzzTarget& fuzz_target(std::string_view name);

/// Gives the reader a file of these bytes. True if it was read, false if it was refused as reel refuses files; any
/// other exception passes.
bool feed(const FuzzTarget& target, std::span<const uint8_t> bytes);
