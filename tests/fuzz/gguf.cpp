#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "targets.h"
#include "trireme/base/error.h"
#include "trireme/formats/gguf/config.h"
#include "trireme/formats/gguf/tokenizer.h"

namespace trireme::fuzz {
namespace {

using namespace trireme::checkpoint;

/// The tensors of a header, all zeros.
class Zeros : public TensorSource {
 public:
  explicit Zeros(const formats::GgufHeader& header) {
    for (const formats::GgufTensor& tensor : header.tensors)
      tensors_.push_back({.name = tensor.name, .shape = tensor.shape, .dtype = formats::info(tensor.type).dtype});
  }
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    std::memset(data, 0, static_cast<size_t>((end - begin) * size_of(dtype)));
  }

 private:
  std::vector<TensorSpec> tensors_;
};

template <class Work>
void may_refuse(const Work& work) {
  try {
    work();
  } catch (const trireme::CheckpointError&) {
  }
}

// The first and the last block of each tensor, as numbers.
void decode_ends(const formats::GgufHeader& header, std::string_view bytes) {
  for (const formats::GgufTensor& tensor : header.tensors) {
    const formats::GgufTypeInfo& type = formats::info(tensor.type);
    if (type.block_elements == 1 || tensor.elements == 0) continue;
    std::vector<float> values(static_cast<size_t>(type.block_elements));
    for (const int64_t begin : {tensor.begin, tensor.end - type.block_bytes}) {
      const std::string_view block = bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(type.block_bytes));
      require(static_cast<int64_t>(block.size()) == type.block_bytes, "a tensor's blocks lie within the file");
      const std::vector<char> copy(block.begin(), block.end());  // whose ends the sanitizer knows
      formats::dequantize(tensor.type, reinterpret_cast<const std::byte*>(copy.data()), values.data(), 1);
    }
  }
}

}  // namespace

/// Any bytes as a GGUF file: header, shape, names and tokenizer are read, and the ends of its tensors, or it is refused
/// with one CheckpointError.
void fuzz_gguf(std::string_view bytes) {
  may_refuse([&] {
    const formats::GgufHeader header = formats::parse_gguf(std::as_bytes(std::span(bytes)), "fuzz.gguf");
    decode_ends(header, bytes);
    const Zeros source(header);
    may_refuse([&] { formats::tokenizer_from_gguf(header); });
    const nlohmann::json config(formats::config_from_gguf(header, source));
    const formats::MappedSource mapped(
        source, formats::gguf_to_hugging_face(*header.text("general.architecture"), source.tensors(),
                                              formats::heads_of(config), "fuzz.gguf"));
  });
}

}  // namespace trireme::fuzz
