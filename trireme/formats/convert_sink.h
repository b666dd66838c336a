// What `trireme convert` writes: tensors under the new format's names, and the small files beside them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/formats/convert.h"
#include "trireme/formats/convert_source.h"
#include "trireme/formats/tensor_map.h"

namespace trireme::formats {

/// All that is decided before the first byte is written.
struct ConvertPlan {
  std::vector<std::unique_ptr<TensorSource>> extra;  ///< sources that add tensors which the input lacks
  std::unique_ptr<TensorSource> tensors;  ///< in the order, shape and dtype in which the sink gets them
  std::string single_file;  ///< the file's name if the result is one file, else empty
  int64_t bytes = 0;  ///< of all files, approximately
  int64_t elements = 0;  ///< of the model, where `tensors` are bytes of blocks and their scales; 0: those of `tensors`
  /// Makes the sink in an empty folder and writes the small files.
  std::function<std::unique_ptr<TensorSink>(const std::filesystem::path& folder)> open;
  std::vector<std::string> notes;
};

/// True if the result's name is that of a single PyTorch file.
bool named_as_torch_file(const std::filesystem::path& out);

/// `request.to` names the format. Errors    UsageError: an unknown format or dtype, something that the format cannot
/// express
ConvertPlan plan_convert(const ConvertInput& input, const ConvertRequest& request);

/// The plan of a GGUF file; of an adapter, llama.cpp's form of adapters (plan_gguf_adapter). Matrices get the requested
/// dtype; instead of Q8_0 and Q4_0 they get float16 if their rows do not divide into blocks of 32. Vectors and norms
/// are float32, as GGUF's readers expect.
ConvertPlan plan_gguf(const ConvertInput& input, const ConvertRequest& request);

/// llama.cpp's form of an adapter: "blk.0.attn_q.weight.lora_a" and ".lora_b" in float32, and one alpha for all. Where
/// a module's scale is another than alpha / rank, its B is multiplied by the difference. Errors    UsageError naming
/// what this form cannot express: DoRA, biases, whole modules, embeddings
ConvertPlan plan_gguf_adapter(const ConvertInput& input, const ConvertRequest& request);

}  // namespace trireme::formats
