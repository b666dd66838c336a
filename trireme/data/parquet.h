// Reads the text column of Parquet files with Arrow's C++ library. The code is in a library of its own
// (libtrireme_parquet.so), which is opened with the first Parquet file. All else works without this library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme::data {

class ParquetColumn {
 public:
  virtual ~ParquetColumn() = default;

  virtual int64_t num_row_groups() const = 0;
  virtual int64_t num_rows(int64_t row_group) const = 0;

  using Take = std::function<void(std::optional<std::string_view>)>;
  /// Calls `take` for the rows of a row group in order, without a text where a row has no value (null).
  virtual void read(int64_t row_group, const Take& take) const = 0;
};

/// Checks a file of `file_bytes` before Arrow reads it: its last 8 bytes (`tail`) are right, and the footer lies
/// inside.
/// Errors    UsageError naming `name`
void check_parquet_frame(std::span<const std::byte> tail, int64_t file_bytes, const std::string& name);

/// Opens column `column` of the file at `path`. Several threads may read one ParquetColumn each.
///
/// Errors    UsageError: libtrireme_parquet.so is missing (and how to get it), the file is damaged or has no such
///           column, the column holds no strings
std::unique_ptr<ParquetColumn> open_parquet(const std::filesystem::path& path, const std::string& column);

/// What libtrireme_parquet.so exports, under the name kOpenParquet.
using OpenParquet = std::unique_ptr<ParquetColumn>(const std::filesystem::path& path, const std::string& column);
inline constexpr const char* kOpenParquet = "trireme_open_parquet";

}  // namespace trireme::data
