#include "reel/data/csv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "lib/data/parse.h"
#include "lib/io/source.h"

// CSV tables as in RFC 4180, with a choice of separator and quote. All fields lie in one string, one after the other,
// with the end of each, so that a table does not take an allocation for each field.
namespace reel::data {

// ---- reading --------------------------------------------------------------------------------------------------------

class CsvReader {
 public:
  CsvReader(const std::filesystem::path& path, const CsvOptions& options, CsvTable& table)
      : source_(path), options_(options), table_(table) {}

  void read() {
    while (source_.read_line(line_)) {
      if (line_.empty() && width_ != 1) continue;  // a column alone may be empty in a row
      const int64_t begun_on = source_.line_number();
      row();
      const size_t fields = table_.ends_.size() - 1 - table_.lines_.size() * width_;
      if (table_.lines_.empty()) width_ = fields;
      if (fields != width_)
        reel::detail::fail(source_.name(), ":", begun_on, ": ", fields, " fields, where the first row has ", width_);
      table_.lines_.push_back(begun_on);
    }
  }

 private:
  void row() {
    at_ = 0;
    while (true) {
      if (options_.skip_initial_space) at_ = std::min(line_.find_first_not_of(' ', at_), line_.size());
      if (at_ < line_.size() && line_[at_] == options_.quote)
        quoted();
      else
        plain();
      table_.ends_.push_back(table_.text_.size());
      if (at_ == line_.size()) return;
      if (line_[at_++] != options_.separator) source_.fail_line("text after a closing quote");
    }
  }

  void plain() {
    const size_t end = std::min(line_.find(options_.separator, at_), line_.size());
    const std::string_view field = std::string_view(line_).substr(at_, end - at_);
    if (options_.quote && field.find(*options_.quote) != std::string_view::npos)
      source_.fail_line("a quote inside an unquoted field");
    if (field.find('\r') != std::string_view::npos) source_.fail_line("a CR without a LF; rows end with LF or CR LF");
    table_.text_ += field;
    at_ = end;
  }

  void quoted() {
    const int64_t opened_on = source_.line_number();
    const char quote = *options_.quote;
    ++at_;
    while (true) {
      const size_t end = std::min(line_.find(quote, at_), line_.size());
      table_.text_.append(line_, at_, end - at_);
      if (end < line_.size()) {
        at_ = end + 1;
        if (at_ == line_.size() || line_[at_] != quote) return;
        table_.text_ += quote;
        ++at_;
      } else {  // the field goes on in the next line
        table_.text_ += '\n';
        at_ = 0;
        if (!source_.read_line(line_)) reel::detail::fail(source_.name(), ":", opened_on, ": a quote is not closed");
      }
    }
  }

  io::Source source_;
  const CsvOptions& options_;
  CsvTable& table_;
  std::string line_;
  size_t at_ = 0, width_ = 0;
};

CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options) {
  const char separator = options.separator, quote = options.quote.value_or('"');
  const auto is_line_end = [](char c) { return c == '\n' || c == '\r'; };
  REEL_CHECK(separator != options.quote && !is_line_end(separator) && !is_line_end(quote),
             "read_csv: the separator and the quote must differ, and be no line ends");
  REEL_CHECK(!options.skip_initial_space || (separator != ' ' && quote != ' '),
             "read_csv: skip_initial_space does not go with a separator or quote that is a space");
  CsvTable table;
  table.file_ = path.string();
  CsvReader(path, options, table).read();
  if (table.lines_.empty()) return table;
  const size_t width = (table.ends_.size() - 1) / table.lines_.size();
  for (size_t i = 0; i < width; ++i)
    table.names_.push_back(options.header ? std::string(table.field(i)) : std::to_string(i));
  if (options.header) {
    table.ends_.erase(table.ends_.begin(), table.ends_.begin() + static_cast<int64_t>(width));
    table.lines_.erase(table.lines_.begin());
  }
  return table;
}

// ---- columns --------------------------------------------------------------------------------------------------------

int64_t CsvTable::index_of(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    std::string all;
    for (const std::string& known : names_) all += (all.empty() ? ", but '" : ", '") + known + "'";
    reel::detail::fail(file_, ": there is no column '", name, "'", names_.empty() ? ": it is empty" : all);
  }
  const auto again = std::find(found + 1, names_.end(), name);
  REEL_CHECK(again == names_.end(), file_, ": columns ", found - names_.begin(), " and ", again - names_.begin(),
             " are both named '", name, "'");
  return found - names_.begin();
}

std::string_view CsvTable::at(int64_t row, int64_t column) const {
  REEL_CHECK(row >= 0 && row < num_rows() && column >= 0 && column < num_columns(), file_, ": field ", row, ", ",
             column, " of a table of ", num_rows(), " rows and ", num_columns(), " columns");
  return field(static_cast<size_t>(row * num_columns() + column));
}

std::vector<std::string> CsvTable::strings(std::string_view name) const {
  const int64_t number = index_of(name);
  std::vector<std::string> strings;
  strings.reserve(lines_.size());
  for (int64_t row = 0; row < num_rows(); ++row) strings.emplace_back(at(row, number));
  return strings;
}

namespace {

template <class T>
bool parse_field(std::string_view text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = text == "1" || text == "true" || text == "True" || text == "TRUE";
    return value || text == "0" || text == "false" || text == "False" || text == "FALSE";
  } else if constexpr (std::is_integral_v<T>) {
    return parse_number(text, value);
  } else {  // parsed as a double and rounded: half types have no parser of their own
    double wide;
    if (!parse_number(text, wide)) return false;
    value = T(wide);
    return std::isfinite(static_cast<double>(value)) || !std::isfinite(wide);
  }
}

}  // namespace

template <class T>
void CsvTable::parse(const std::vector<int64_t>& columns, const ColumnOptions& options, T* to) const {
  if (const double missing = options.missing.value_or(0); std::is_integral_v<T>)
    REEL_CHECK(missing == std::floor(missing) && std::abs(missing) <= 0x1p53 &&
                   missing >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
                   missing <= static_cast<double>(std::numeric_limits<T>::max()),
               file_, ": a ", options.dtype, " tensor cannot hold ", missing);
  for (int64_t row = 0; row < num_rows(); ++row)
    for (const int64_t column : columns) {
      const std::string_view text = trim_spaces(at(row, column));
      const auto& gaps = options.missing_text;
      const bool is_missing = std::find(gaps.begin(), gaps.end(), text) != gaps.end();
      if (is_missing && options.missing)
        *to++ = T(*options.missing);
      else if (is_missing)
        reel::detail::fail(file_, ":", lines_[row], ": column '", names_[column], "': '", text,
                           "' is missing, and ColumnOptions::missing is not given");
      else if (!parse_field(text, *to++))
        reel::detail::fail(file_, ":", lines_[row], ": column '", names_[column], "': '", text.substr(0, 100),
                           "' is not a ", name_of(options.dtype),
                           "; what stands for a missing number belongs into ColumnOptions::missing_text");
    }
}

Tensor CsvTable::column(std::string_view name, const ColumnOptions& options) const {
  return columns(std::vector{std::string(name)}, options).select(1, 0);
}

Tensor CsvTable::columns(const std::vector<std::string>& names, const ColumnOptions& options) const {
  std::vector<int64_t> columns;
  for (const std::string& name : names) columns.push_back(index_of(name));
  return numbers(columns, options);
}

Tensor CsvTable::tensor(const ColumnOptions& options) const {
  std::vector<int64_t> all(names_.size());
  std::iota(all.begin(), all.end(), 0);
  return numbers(all, options);
}

Tensor CsvTable::numbers(const std::vector<int64_t>& columns, const ColumnOptions& options) const {
  const Tensor table =
      empty({num_rows(), static_cast<int64_t>(columns.size())}, {.dtype = options.dtype, .device = kCPU});
  switch (options.dtype) {
    case kBool: parse(columns, options, table.data<bool>()); break;
    case kUInt8: parse(columns, options, table.data<uint8_t>()); break;
    case kInt32: parse(columns, options, table.data<int32_t>()); break;
    case kInt64: parse(columns, options, table.data<int64_t>()); break;
    case kFloat16: parse(columns, options, table.data<Float16>()); break;
    case kBFloat16: parse(columns, options, table.data<BFloat16>()); break;
    case kFloat32: parse(columns, options, table.data<float>()); break;
    case kFloat64: parse(columns, options, table.data<double>()); break;
  }
  return table;
}

}  // namespace reel::data
