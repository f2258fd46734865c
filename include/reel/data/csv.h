#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// A reader of CSV files.
namespace reel::data {

/// Of read_csv.
struct CsvOptions {
  char separator = ',';             ///< Between two fields.
  std::optional<char> quote = '"';  ///< std::nullopt: there is no quoting, and a quote is a character like any other.
  bool header = true;               ///< The first row names the columns; without one they are "0", "1", ….
  bool skip_initial_space = false;  ///< Skip spaces at the beginning of a field, so that a quote may follow them.
};

/// How text becomes numbers.
struct ColumnOptions {
  DType dtype = kFloat32;  ///< Of the tensor.
  /// The value of a field that is missing; an Error if not given. Only floating-point tensors hold NAN.
  std::optional<double> missing = {};
  /// What a missing field holds, spaces apart: {"", "NA", "?"}.
  std::vector<std::string> missing_text = {""};
};

/// A table of text, by columns. Fields are kept as they were written, but for their quotes.
class CsvTable {
 public:
  /// Without the header.
  int64_t num_rows() const { return static_cast<int64_t>(lines_.size()); }
  /// Fields in each row.
  int64_t num_columns() const { return static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }  ///< Of the columns, from the header.
  /// A column's number. A name that no column has, or several, is an Error.
  int64_t index_of(std::string_view name) const;
  std::string_view at(int64_t row, int64_t column) const;         ///< One field, as long as the table lives.
  std::vector<std::string> strings(std::string_view name) const;  ///< A column as text.

  /// The numbers of a column, [rows]; spaces around them are skipped. Text that is not a number of the dtype, or is
  /// out of its range, is an Error that names the line and the column. bool takes 0, 1, true and false.
  Tensor column(std::string_view name, const ColumnOptions& options = {}) const;
  ///@{
  /// Of several columns, [rows, columns], or of all.
  Tensor columns(const std::vector<std::string>& names, const ColumnOptions& options = {}) const;
  Tensor tensor(const ColumnOptions& options = {}) const;
  ///@}

 private:
  friend class CsvReader;
  friend CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options);
  std::string_view field(size_t i) const { return std::string_view(text_).substr(ends_[i], ends_[i + 1] - ends_[i]); }
  Tensor numbers(const std::vector<int64_t>& columns, const ColumnOptions& options) const;
  template <class T>
  void parse(const std::vector<int64_t>& columns, const ColumnOptions& options, T* to) const;

  std::string file_, text_;
  std::vector<size_t> ends_ = {0};  // field i is text_[ends_[i] … ends_[i + 1])
  std::vector<int64_t> lines_;      // on which each row begins
  std::vector<std::string> names_;
};

/// Reads comma-separated values as RFC 4180 has them: quoted fields may hold separators, line ends (CR LF is read as
/// LF) and doubled quotes. For tab-separated text, which seldom has quoting, set `separator`
/// to a tab and `quote` to std::nullopt. Rows end with LF or CR LF and have as many fields as the first; empty lines
/// are skipped, but where there is one column, of which they are a row. An Error reads "file:line: what is wrong".
CsvTable read_csv(const std::filesystem::path& path, const CsvOptions& options = {});

}  // namespace reel::data
#pragma GCC visibility pop
