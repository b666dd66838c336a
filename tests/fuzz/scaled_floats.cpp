#include <cstring>
#include <vector>

#include "targets.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/formats/scaled_floats.h"

namespace trireme::fuzz {
namespace {

using namespace trireme::checkpoint;

/// The tensors of a safetensors file in memory.
class FileInMemory : public TensorSource {
 public:
  explicit FileInMemory(std::string_view bytes) : bytes_(bytes) {
    const auto read = [&](int64_t offset, std::span<std::byte> target) {
      std::memcpy(target.data(), bytes.data() + offset, target.size());
    };
    for (const auto& [name, entry] : read_header(static_cast<int64_t>(bytes.size()), read, "x.safetensors").tensors) {
      tensors_.push_back({.name = name, .shape = entry.shape, .dtype = entry.dtype});
      begins_.push_back(entry.begin);
    }
  }
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override {
    const int64_t elements = num_elements(tensors_[tensor].shape), size = size_of(tensors_[tensor].dtype);
    require(0 <= begin && begin <= end && end <= elements, "only elements of the tensor are read");
    convert(bytes_.data() + begins_[tensor] + begin * size, tensors_[tensor].dtype, data, dtype, end - begin);
  }

 private:
  std::string_view bytes_;
  std::vector<TensorSpec> tensors_;
  std::vector<int64_t> begins_;
};

}  // namespace

/// A config.json, a zero byte, and a safetensors file with 8-bit floats and their scales: the first and last values are
/// read.
void fuzz_scaled_floats(std::string_view bytes) {
  const std::string config(bytes.substr(0, bytes.find('\0')));
  const FileInMemory file(bytes.substr(std::min(bytes.size(), config.size() + 1)));
  const formats::ScaledFloatSource source(file, config, "x");
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const int64_t elements = num_elements(source.tensors()[i].shape), some = std::min<int64_t>(elements, 100);
    std::vector<char> values(static_cast<size_t>(some * size_of(source.tensors()[i].dtype)));
    source.read(i, 0, some, values.data(), source.tensors()[i].dtype);
    source.read(i, elements - some, elements, values.data(), source.tensors()[i].dtype);
  }
}

}  // namespace trireme::fuzz
