#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace reel::io {

/// A picture in SVG on white, made of lines and words.
class Svg {
 public:
  Svg(double width, double height) {
    write(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
          R"(font-family="system-ui, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="12">)",
          width, height);
    write(R"(<rect width="100%" height="100%" rx="6" fill="#ffffff"/>)");
  }
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width) {
    write(R"(<line x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}" stroke="{}" stroke-width="{}"/>)", x1, x2, y1, y2,
          colour, width);
  }
  /// `anchor` is start, middle or end, `more` other attributes.
  void text(double x, double y, std::string_view anchor, std::string_view colour, std::string_view words,
            std::string_view more = {}) {
    write(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="{}"{}{}>{}</text>)", x, y, anchor, colour,
          more.empty() ? "" : " ", more, escaped(words));
  }
  /// An element, in fmt's format.
  template <class... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  /// All of it.
  std::string finished() && {
    write("</svg>");
    return std::move(text_);
  }

 private:
  // XML has no control characters.
  static std::string escaped(std::string_view words) {
    std::string safe;
    for (const char c : words) {
      if (c == '&')
        safe += "&amp;";
      else if (c == '<')
        safe += "&lt;";
      else if (c == '>')
        safe += "&gt;";
      else
        safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return safe;
  }

  std::string text_;
};

}  // namespace reel::io
