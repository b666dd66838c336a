#include <cstring>

#include "targets.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::fuzz {

/// A whole safetensors file.
void fuzz_safetensors(std::string_view bytes) {
  const auto read = [&](int64_t offset, std::span<std::byte> target) {
    require(offset >= 0 && offset + static_cast<int64_t>(target.size()) <= static_cast<int64_t>(bytes.size()),
            "only bytes of the file are read");
    std::memcpy(target.data(), bytes.data() + offset, target.size());
  };
  const auto header = checkpoint::read_header(static_cast<int64_t>(bytes.size()), read, "x.safetensors");
  for (const auto& [name, entry] : header.tensors) {
    require(
        entry.begin >= header.data_begin && entry.begin <= entry.end && entry.end <= static_cast<int64_t>(bytes.size()),
        "tensors lie in the file");
  }
}

}  // namespace trireme::fuzz
