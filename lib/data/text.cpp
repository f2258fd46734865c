#include "reel/data/text.h"

#include <algorithm>

#include "lib/data/utf8.h"
#include "lib/io/source.h"

// Lines and words of text files.
namespace reel::data {

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  for_each_line(path, [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

void for_each_line(const std::filesystem::path& path, const std::function<void(std::string_view line)>& f) {
  io::Source source(path);
  std::string line;
  while (source.read_line(line)) f(line);
}

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (size_t begin = text.find_first_not_of(separators); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return words;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size(); at += characters.back().size())
    characters.push_back(text.substr(at, std::max<size_t>(first_character(text.substr(at)).bytes, 1)));
  return characters;
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace reel::data
