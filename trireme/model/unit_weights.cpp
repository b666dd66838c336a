#include "trireme/model/unit_weights.h"

#include <ATen/ATen.h>

#include <map>
#include <string>

namespace trireme::model {

std::vector<std::vector<at::Tensor>> unit_weights(const Model& model, int first, int last, at::ScalarType dtype,
                                                  const FillWeights& fill) {
  const auto options = at::TensorOptions().dtype(dtype);
  std::vector<std::vector<at::Tensor>> weights(model.units.size());
  std::map<std::string, at::Tensor> shared;  // a tied matrix of embedding and head
  for (int u = first; u < last; ++u) {
    const std::vector<ParameterSpec>& specs = model.units[u]->parameters();
    for (size_t i = 0; i < specs.size();) {
      if (const auto found = shared.find(specs[i].name); found != shared.end()) {
        weights[u].push_back(found->second);
        ++i;
        continue;
      }
      if (specs[i].is_quantized()) {
        weights[u].push_back(at::empty({specs[i].quantized.record_bytes()}, options.dtype(at::kByte)));
        fill(specs[i], weights[u].back());
        ++i;
        continue;
      }
      // Joined parameters are one matrix: their parts are views of one tensor.
      size_t end = i + 1;
      std::vector<int64_t> shape = specs[i].shape;
      while (end < specs.size() && specs[end].joined) shape[0] += specs[end++].shape[0];
      const at::Tensor whole = at::zeros(shape, options);
      for (int64_t row = 0; i < end; row += specs[i].shape[0], ++i) {
        weights[u].push_back(whole.narrow(0, row, specs[i].shape[0]));
        fill(specs[i], weights[u].back());
        shared[specs[i].name] = weights[u].back();
      }
    }
  }
  return weights;
}

}  // namespace trireme::model
