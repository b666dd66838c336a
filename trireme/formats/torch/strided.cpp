#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/formats/torch/archive.h"

namespace trireme::formats {
namespace {

/// `count` elements that lie `stride` apart.
void read_run(const std::byte* source, int64_t stride, Dtype from, std::byte* target, Dtype to, int64_t count) {
  const int64_t size = size_of(from);
  if (stride == 1) return checkpoint::convert(source, from, target, to, count);
  std::array<std::byte, 4096> packed;
  const int64_t block = std::ssize(packed) / size;
  for (int64_t done = 0; done < count; done += block) {
    const int64_t part = std::min(block, count - done);
    for (int64_t i = 0; i < part; ++i)
      std::memcpy(packed.data() + i * size, source + (done + i) * stride * size, static_cast<size_t>(size));
    checkpoint::convert(packed.data(), from, target + done * size_of(to), to, part);
  }
}

/// The same elements, with neighbouring dimensions joined if there is no gap between them: a contiguous tensor becomes
/// one run.
StridedView joined(const StridedView& view) {
  StridedView result{.data = view.data, .dtype = view.dtype, .shape = {}, .stride = {}};
  for (size_t dim = 0; dim < view.shape.size(); ++dim) {
    if (view.shape[dim] == 1) continue;
    if (!result.shape.empty() && result.stride.back() == view.stride[dim] * view.shape[dim]) {
      result.shape.back() *= view.shape[dim];
      result.stride.back() = view.stride[dim];
    } else {
      result.shape.push_back(view.shape[dim]);
      result.stride.push_back(view.stride[dim]);
    }
  }
  if (result.shape.empty()) {
    result.shape = {1};
    result.stride = {1};
  }
  return result;
}

}  // namespace

void read_strided(const StridedView& given, int64_t begin, int64_t end, void* data, Dtype dtype) {
  const StridedView view = joined(given);
  auto* target = static_cast<std::byte*>(data);
  const int64_t row = view.shape.back();
  while (begin < end) {
    int64_t rest = begin / row, offset = begin % row * view.stride.back();
    for (size_t dim = view.shape.size() - 1; dim-- > 0;) {
      offset += rest % view.shape[dim] * view.stride[dim];
      rest /= view.shape[dim];
    }
    const int64_t count = std::min(end - begin, row - begin % row);
    read_run(view.data + offset * size_of(view.dtype), view.stride.back(), view.dtype, target, dtype, count);
    target += count * size_of(dtype);
    begin += count;
  }
}

}  // namespace trireme::formats
