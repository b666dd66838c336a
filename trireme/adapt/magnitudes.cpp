#include "trireme/adapt/magnitudes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "trireme/model/initialize.h"

namespace trireme::adapt {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Dtype;

constexpr int64_t kNormElements = 1 << 20;

at::ScalarType type_of(Dtype dtype) { return dtype == Dtype::f64 ? at::kDouble : at::kFloat; }

/// The first values of a whole parameter.
at::Tensor first_values(model::ParameterSpec spec, uint64_t seed, Dtype dtype) {
  spec.shape = spec.whole_shape();
  spec.pieces.clear();
  spec.split_dim = -1;
  const at::Tensor values = at::empty(spec.shape, type_of(dtype));
  if (dtype == Dtype::f64)
    model::initialize_held(values.data_ptr<double>(), spec, seed, 0, spec.numel());
  else
    model::initialize_held(values.data_ptr<float>(), spec, seed, 0, spec.numel());
  return values;
}

class Magnitudes : public checkpoint::PieceChange {
 public:
  struct Source {
    std::string weight;
    Module module;
    double scale = 1;
    model::ParameterSpec a, b;
  };
  Magnitudes(Checkpoint base, std::map<std::string, Source> sources, uint64_t seed)
      : base_(std::move(base)), sources_(std::move(sources)), seed_(seed) {}

  bool changes(const std::string& tensor) const override { return sources_.contains(tensor); }

  void apply(const std::string& tensor, int64_t begin, int64_t end, void* values, Dtype dtype) const override {
    const Source& source = sources_.at(tensor);
    LowRank change;
    if (source.b.init.kind != model::Initializer::Kind::zeros) {
      const at::Tensor a = first_values(source.a, seed_, dtype), b = first_values(source.b, seed_, dtype);
      change = source.module.transposed() ? LowRank{a.t(), b.t(), source.scale} : LowRank{b, a, source.scale};
    }
    at::from_blob(values, {end - begin}, type_of(dtype))
        .copy_(output_norms(base_, source.weight, source.module, change, begin, end, dtype));
  }

 private:
  Checkpoint base_;
  std::map<std::string, Source> sources_;
  uint64_t seed_;
};

}  // namespace

void LowRank::add_to(const at::Tensor& piece, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
  if (left.defined()) piece.add_(at::mm(left.narrow(0, row, rows), right.narrow(1, column, columns)).mul_(scale));
}

at::Tensor output_norms(const Checkpoint& base, const std::string& tensor, const Module& module, const LowRank& change,
                        int64_t begin, int64_t end, Dtype dtype) {
  const bool by_column = module.transposed();
  const int64_t columns = by_column ? module.out : module.in, step = std::max<int64_t>(1, kNormElements / columns);
  const int64_t first = by_column ? 0 : begin, last = by_column ? module.in : end;
  at::Tensor squares = at::zeros({end - begin}, at::kDouble);
  for (int64_t row = first; row < last; row += step) {
    const int64_t count = std::min(step, last - row);
    const at::Tensor piece = at::empty({count, columns}, type_of(dtype));
    checkpoint::read_piece(base, {tensor, row * columns, (row + count) * columns, piece.data_ptr(), dtype});
    change.add_to(piece, row, count, 0, columns);
    const at::Tensor sums = piece.to(at::kDouble).square_().sum(by_column ? 0 : 1);
    if (by_column)
      squares.add_(sums.narrow(0, begin, end - begin));
    else
      squares.narrow(0, row - begin, count).copy_(sums);
  }
  squares.masked_fill_(squares.eq(0), 1);
  return squares.sqrt_().to(type_of(dtype));
}

Checkpoint with_magnitudes(Checkpoint base, const model::Model& model, const checkpoint::Naming& naming,
                           uint64_t seed) {
  std::map<std::string, const model::ParameterSpec*> parameters;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters) parameters[p.name] = &p;
  std::map<std::string, Magnitudes::Source> sources;
  const Checkpoint plain = base;
  for (const Module& module : modules_of(model.config)) {
    const auto spec = model.adapters.modules.find(module.name);
    if (spec == model.adapters.modules.end() || !spec->second.dora) continue;
    const std::string name = naming.name_of(module.name + model::kLoraMagnitude);
    Magnitudes::Source source{naming.name_of(module.weight), module, spec->second.scale,
                              *parameters.at(module.name + model::kLoraA), *parameters.at(module.name + model::kLoraB)};
    // Its place in the file is not read for its values.
    checkpoint::StoredTensor stored = plain.tensor(source.weight);
    stored.shape = {module.out};
    stored.elements = module.out;
    base.tensors.insert_or_assign(name, stored);
    sources[name] = std::move(source);
  }
  if (!sources.empty()) base.change = std::make_shared<const Magnitudes>(plain, std::move(sources), seed);
  return base;
}

}  // namespace trireme::adapt
