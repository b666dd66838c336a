#include "trireme/model/autograd_leaves.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <unordered_set>

namespace trireme::model {

std::vector<at::Tensor> leaves_of(const at::Tensor& output) {
  using torch::autograd::Node;
  std::vector<at::Tensor> leaves;
  if (!output.requires_grad()) return leaves;
  const auto root = torch::autograd::impl::gradient_edge(output).function;  // of a leaf too
  std::vector<Node*> open{root.get()};
  std::unordered_set<const Node*> seen{root.get()};
  while (!open.empty()) {
    Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  }
  return leaves;
}

}  // namespace trireme::model
