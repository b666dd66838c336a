#include "trireme/model/adapter_parameters.h"

#include <cmath>

#include "trireme/model/dropout.h"

namespace trireme::model {

void divide(ParameterSpec& p, int dim, const std::vector<Piece>& pieces) {
  p.full_shape = p.shape;
  p.split_dim = dim;
  p.pieces = pieces;
  p.shape[static_cast<size_t>(dim)] = 0;
  for (const Piece& piece : pieces) p.shape[static_cast<size_t>(dim)] += piece.size();
}

PartAdapter add_adapter(std::vector<ParameterSpec>& specs, int weight, bool in_out, const std::string& module,
                        const AdapterSpec& spec, int64_t begin) {
  using Kind = Initializer::Kind;
  const ParameterSpec w = specs[static_cast<size_t>(weight)];
  const size_t in = in_out ? 0 : 1, out = 1 - in;
  const bool splits_in = w.split_dim == static_cast<int>(in), splits_out = w.split_dim == static_cast<int>(out);
  // On one rank, the rows of a matrix may only lie in another order than in its file.
  const bool divided = w.numel() != c10::multiply_integers(w.whole_shape());
  const auto next = static_cast<int>(specs.size());
  const PartAdapter part{.weight = weight,
                         .a = next,
                         .b = next + 1,
                         .bias = spec.bias ? next + 2 : -1,
                         .magnitude = spec.dora ? next + 2 + spec.bias : -1,
                         .rank = spec.rank,
                         .scale = spec.scale,
                         .dropout = spec.dropout,
                         .begin = begin,
                         .size = w.shape[out],
                         .module = dropout_module_key(module),
                         .first_input = splits_in ? w.pieces.front().begin : 0,
                         .sums_a = splits_out && divided,
                         .sums_b = splits_in && divided};
  const int64_t inputs = w.whole_shape()[in], outputs = w.whole_shape()[out];
  const Initializer zeros{Kind::zeros, 0}, ones{Kind::ones, 0};
  specs.push_back({.name = module + kLoraA,
                   .shape = {spec.rank, inputs},
                   .init = spec.init == AdapterInit::gaussian
                               ? Initializer{Kind::normal, 1 / double(spec.rank)}
                               : Initializer{Kind::uniform, 1 / std::sqrt(double(inputs))}});
  if (splits_in) divide(specs.back(), 1, w.pieces);
  specs.push_back(
      {.name = module + kLoraB,
       .shape = {outputs, spec.rank},
       .init = spec.init == AdapterInit::random ? Initializer{Kind::uniform, 1 / std::sqrt(double(spec.rank))} : zeros,
       .rate = spec.rate_of_b});
  if (splits_out) divide(specs.back(), 0, w.pieces);
  // As with LoRA+ in PEFT, vectors learn at the rate of B.
  const auto add_vector = [&](const char* name, const Initializer& first) {
    specs.push_back({.name = module + name, .shape = {outputs}, .init = first, .decay = false, .rate = spec.rate_of_b});
    if (splits_out) divide(specs.back(), 0, w.pieces);
  };
  if (spec.bias) add_vector(kLoraBiasB, zeros);
  if (spec.dora) add_vector(kLoraMagnitude, ones);
  return part;
}

std::vector<int> parameters_of(const PartAdapter& adapter) {
  std::vector<int> all;
  for (const int index : {adapter.a, adapter.b, adapter.bias, adapter.magnitude})
    if (index >= 0) all.push_back(index);
  return all;
}

}  // namespace trireme::model
