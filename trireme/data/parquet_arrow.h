// What libtrireme_parquet.so exports.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/data/parquet.h"

namespace trireme::data {

using OpenParquet = std::unique_ptr<ParquetColumn>(const std::filesystem::path& path, const std::string& column);
inline constexpr const char* kOpenParquet = "trireme_open_parquet";

}  // namespace trireme::data
