// What `trireme convert` writes: a plan of tensors under the format's names, and the files around them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/convert_source.h"
#include "trireme/checkpoint/tensor_map.h"

namespace trireme::checkpoint {

struct ConvertOptions {
  std::string format;
  bool single_file = false;  ///< the place asked for is a file's, by its name
  std::string dtype;  ///< empty: as they are
  int64_t max_shard_bytes = 0;
};

/// What is known before the first byte is written.
struct ConvertPlan {
  std::vector<std::unique_ptr<TensorSource>> extra;  ///< tensors that the input does not have
  std::unique_ptr<TensorSource> tensors;             ///< in the order, shape and dtype in which they are handed over
  std::vector<std::string> files;  ///< what appears in place of `out`; one and no folder: a single file
  bool single_file = false;
  int64_t bytes = 0;  ///< of all files, about
  /// Makes the sink in an empty folder and writes the small files.
  std::function<std::unique_ptr<TensorSink>(const std::filesystem::path& folder)> open;
  std::vector<std::string> notes;
};

/// Formats that can be written, as --to names them.
std::vector<std::string> convert_formats();

/// Errors    UsageError: an unknown format or dtype, something that the format cannot express
ConvertPlan plan_convert(const ConvertInput& input, const ConvertOptions& options);

}  // namespace trireme::checkpoint
