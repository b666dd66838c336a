// A TensorSource and a TensorSink of tensors in memory, for tests of formats and of maps between them.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

class MemorySource : public TensorSource {
 public:
  void add(const TensorSpec& tensor, std::string bytes) {
    tensors_.push_back(tensor);
    bytes_.push_back(std::move(bytes));
  }

  /// Floats with a value of their own in every place: tensor number, then element number.
  void add_counted(const std::string& name, const std::vector<int64_t>& shape) {
    std::vector<float> values(static_cast<size_t>(num_elements(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(1000 * tensors_.size() + i);
    add({.name = name, .shape = shape},
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }

  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    const Dtype from = tensors_.at(tensor).dtype;
    convert(bytes_.at(tensor).data() + begin * size_of(from), from, data, dtype, end - begin);
  }

  const std::string& bytes(size_t tensor) const { return bytes_.at(tensor); }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<std::string> bytes_;
};

/// All of a tensor in its own dtype, read in pieces of `piece` elements.
inline std::string read_whole(const TensorSource& source, size_t tensor, int64_t piece = 1000) {
  const TensorSpec& spec = source.tensors().at(tensor);
  const int64_t count = num_elements(spec.shape), size = size_of(spec.dtype);
  std::string bytes(static_cast<size_t>(count * size), '\0');
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t end = std::min(count, begin + piece);
    source.read(tensor, begin, end, bytes.data() + begin * size, spec.dtype);
  }
  return bytes;
}

}  // namespace trireme::checkpoint
