#include "trireme/adapt/base_fingerprint.h"

#include <algorithm>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/quantized_tensors.h"

namespace trireme::adapt {

std::string fingerprint_of(const checkpoint::Checkpoint& given) {
  constexpr int64_t kSampleBytes = 64 << 10;
  checkpoint::Checkpoint checkpoint = given;
  checkpoint.change = nullptr;  // what lies in the files
  if (checkpoint.quantized != nullptr && !checkpoint.quantized->is_stored()) checkpoint.quantized = nullptr;
  base::Checksum sum;
  const auto add = [&](std::string_view text) {
    sum.update(std::as_bytes(std::span(text)));
    sum.update(std::as_bytes(std::span("\n", 1)));
  };
  std::vector<std::byte> sample;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (checkpoint::is_optimizer_file(checkpoint.files[static_cast<size_t>(tensor.file)]->path())) continue;
    add(name);
    add(checkpoint::dtype_name(tensor.dtype));
    add(checkpoint::shape_text(tensor.shape));
    const int64_t size = checkpoint::size_of(tensor.dtype), most = kSampleBytes / size;
    const auto take = [&](int64_t begin, int64_t end) {
      sample.resize(static_cast<size_t>((end - begin) * size));
      checkpoint::read_piece(checkpoint, {name, begin, end, sample.data(), tensor.dtype});
      sum.update(sample);
    };
    if (tensor.elements <= 2 * most) {
      take(0, tensor.elements);
    } else {
      take(0, most);
      take(tensor.elements - most, tensor.elements);
    }
  }
  return base::checksum_text(sum.value());
}

std::string mark_of(const checkpoint::Checkpoint& checkpoint) {
  if (!checkpoint.has_manifest) return fingerprint_of(checkpoint);
  return base::checksum_text(base::hash_text(checkpoint::manifest_to_json(checkpoint.manifest)));
}

}  // namespace trireme::adapt
