// The text column of Parquet files, through Arrow's C++ library. That is a component of its own
// (libtrireme_parquet.so): it is opened when the first Parquet file is, so that everything else works without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::data {

class ParquetColumn {
 public:
  virtual ~ParquetColumn() = default;

  virtual int64_t num_row_groups() const = 0;
  virtual int64_t num_rows(int64_t row_group) const = 0;

  /// Hands out the texts of a row group in order; rows without a value (null) are left out.
  virtual void read(int64_t row_group, const std::function<void(std::string_view)>& take) const = 0;
};

/// Checks what can be checked before Arrow sees the file of `file_bytes`: its last 8 bytes, and that the footer lies
/// inside. Errors    UsageError naming `name`
void check_parquet_frame(std::span<const std::byte> tail, int64_t file_bytes, const std::string& name);

/// Opens column `column` of the file at `path`. Several threads may read one ParquetColumn each.
///
/// Errors    UsageError: the component is missing (and how to get it), the file is damaged, it has no such column,
///           the column holds no strings
std::unique_ptr<ParquetColumn> open_parquet(const std::filesystem::path& path, const std::string& column);

}  // namespace trireme::data
