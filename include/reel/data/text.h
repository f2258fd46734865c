#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// Lines of text files, and their words and characters.
namespace reel::data {

/// The lines of a text file, without their ends (LF or CR LF); bytes are passed through as they are.
std::vector<std::string> read_lines(const std::filesystem::path& path);
/// The same, one at a time: calls f(line) for each; the view is valid during the call. Files may be of any size.
void for_each_line(const std::filesystem::path& path, const std::function<void(std::string_view line)>& f);

/// The words between the separators; several in a row count as one. Unlike with Unicode-aware splitting, a no-break
/// space is part of a word.
std::vector<std::string> split_words(std::string_view text, std::string_view separators = " \t\r\n");
/// The characters of a text in UTF-8, a byte that is not UTF-8 as one by itself: together they are the text. The views
/// are of its memory.
std::vector<std::string_view> split_characters(std::string_view text);
/// A-Z to a-z; other bytes stay.
std::string lower_ascii(std::string_view text);

}  // namespace reel::data
#pragma GCC visibility pop
