#include "trireme/checkpoint/tied_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/checkpoint/naming.h"

namespace trireme::checkpoint {
namespace {

bool have_same_values(const TensorSource& source, size_t a, size_t b) {
  if (source.tensors()[a].shape != source.tensors()[b].shape) return false;
  constexpr int64_t kAtOnce = 1 << 18;
  const int64_t elements = num_elements(source.tensors()[a].shape);
  std::vector<double> x(static_cast<size_t>(std::min(kAtOnce, elements))), y = x;
  for (int64_t begin = 0; begin < elements; begin += kAtOnce) {
    const int64_t end = std::min(elements, begin + kAtOnce);
    source.read(a, begin, end, x.data(), Dtype::f64);
    source.read(b, begin, end, y.data(), Dtype::f64);
    if (!std::equal(x.begin(), x.begin() + (end - begin), y.begin())) return false;
  }
  return true;
}

}  // namespace

void check_tied_head(const TensorSource& source, const std::string& embedding, const std::string& path) {
  const auto& tensors = source.tensors();
  const auto shared = std::ranges::find(tensors, embedding, &TensorSpec::name);
  if (shared == tensors.end()) return;  // which others refuse
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    if (!is_head(name) || have_same_values(source, i, static_cast<size_t>(shared - tensors.begin()))) continue;
    throw CheckpointError(
        fmt::format("{0} holds {1} with other values than {2}, but tie_word_embeddings is true (in its config.json or "
                    "by model.tie_word_embeddings), so one would be lost: set it to false to use {1}, or remove {1}",
                    path, name, embedding),
        path, name);
  }
}

}  // namespace trireme::checkpoint
