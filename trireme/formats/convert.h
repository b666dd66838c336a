// Converts weights from any format to any other: `trireme convert`.
//
// Every conversion goes through Hugging Face's names and layouts. Tensors stream through one buffer of 16 MiB in pieces
// of whole rows, so memory does not grow with the model. Only config.json and the tokenizer's files are read whole. The
// output is written to a `.tmp-` folder beside its final place. When all is flushed, one rename moves it there. A
// failure or a signal leaves nothing new behind, and an older result unchanged.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/checkpoint/layout.h"

namespace trireme::formats {

struct ConvertProgress {
  int64_t done_bytes = 0;  ///< of the tensors in their new dtype
  int64_t total_bytes = 0;
};

struct ConvertRequest {
  std::filesystem::path source;
  std::filesystem::path out;
  std::filesystem::path adapter = {};  ///< merged into the source; empty: none
  std::filesystem::path base = {};  ///< if the source is an adapter: where its base lies now; empty: where it lay
  std::string to;  ///< "safetensors", "gguf", "pth", "dcp", "litgpt"; empty: decided by the name of `out`
  std::string dtype;  ///< "float32", "bfloat16", "float16"; a format of blocks ("q8_0", "bnb.nf4"); empty: unchanged
  base::BlockFormat quantize = {};  ///< of the base that an adapter is merged into; none: as it lies in its folder
  bool force = false;  ///< replaces an existing result
  int64_t max_shard_bytes = checkpoint::kDefaultShardBytes;
  /// Called after each piece. If it throws, the conversion ends and leaves nothing behind.
  std::function<void(const ConvertProgress&)> progress;
  /// Called with each note for the user, before the work starts.
  std::function<void(const std::string&)> note;
};

struct ConvertResult {
  std::string from, to;
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;  ///< of the weights as written
  std::chrono::duration<double> seconds{};
};

/// Errors    UsageError: nothing to read, a result that exists, a model that the format cannot express, a full disk;
///           CheckpointError: a damaged source, values that do not fit the dtype
ConvertResult convert_checkpoint(const ConvertRequest& request);

}  // namespace trireme::formats
