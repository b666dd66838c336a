// From any format of weights to any other: what `trireme convert` does.
//
// Between two formats stands Hugging Face's convention of names and layouts. Tensors stream through one buffer of 16
// MiB in pieces of whole rows, so that memory does not grow with the model; the only things read whole are config.json
// and the tokenizer's files. What is written grows in a `.tmp-` folder beside its place and appears there by one rename
// after everything is flushed: a failure or a signal leaves nothing, or the older file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/checkpoint/layout.h"

namespace trireme::checkpoint {

struct ConvertProgress {
  int64_t done_bytes = 0;  ///< of the tensors as they are written
  int64_t total_bytes = 0;
};

struct ConvertRequest {
  std::filesystem::path source;
  std::filesystem::path out;
  std::string to;  ///< "safetensors", "gguf", "pth", "dcp", "litgpt"; empty: by the name of `out`
  std::string dtype;  ///< "float32", "bfloat16", "float16", "q8_0" (gguf only); empty: as they are
  bool force = false;  ///< replace what is there
  int64_t max_shard_bytes = kDefaultShardBytes;
  /// Called after each piece; what it throws ends the conversion and leaves nothing behind.
  std::function<void(const ConvertProgress&)> progress;
  /// Called with each fact worth a line, before the work starts.
  std::function<void(const std::string&)> note;
};

struct ConvertResult {
  std::string from, to;
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;  ///< of the weights as written
  std::chrono::duration<double> seconds{};
};

/// Errors    UsageError: nothing to read, something in the way, what the format cannot express, not enough space;
///           CheckpointError: damage, values that do not fit the dtype
ConvertResult convert_checkpoint(const ConvertRequest& request);

}  // namespace trireme::checkpoint
