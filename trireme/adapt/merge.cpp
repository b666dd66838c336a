#include "trireme/adapt/merge.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "trireme/adapt/base_fingerprint.h"
#include "trireme/adapt/magnitudes.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/model/embedding.h"

namespace trireme::adapt {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Dtype;

constexpr int64_t kPieceElements = 1 << 20;

/// What happens to one tensor of the base.
struct Change {
  enum class Kind { low_rank, bias, replaced } kind = Kind::low_rank;
  Module module;
  model::AdapterSpec spec;
  std::string tensor;  ///< the adapter's file name of the bias or the replacement
  std::string a, b, magnitude;
  int64_t columns() const { return module.transposed() ? module.out : module.in; }
};

at::Tensor read_whole(const Checkpoint& c, const std::string& name, Dtype dtype) {
  const checkpoint::StoredTensor& stored = c.tensor(name);
  const at::Tensor tensor = at::empty(stored.shape, dtype == Dtype::f64 ? at::kDouble : at::kFloat);
  checkpoint::read_piece(c, {name, 0, stored.elements, tensor.data_ptr(), dtype});
  return tensor;
}

/// Rows [row, row + rows) and columns [column, column + columns) of a matrix; contiguous in it, so either whole rows or
/// part of one.
struct Block {
  int64_t row, rows, column, columns;
};

/// Divides the row-major elements [begin, end) of a matrix.
template <typename Visit>
void for_each_block(int64_t begin, int64_t end, int64_t width, Visit visit) {
  while (begin < end) {
    const int64_t row = begin / width, column = begin % width;
    Block block{row, 1, column, std::min(width - column, end - begin)};
    if (column == 0 && end - begin >= width) block = {row, (end - begin) / width, 0, width};
    visit(block);
    begin += block.rows * block.columns;
  }
}

class Merged : public checkpoint::PieceChange {
 public:
  Merged(Checkpoint base, Checkpoint adapter, std::map<std::string, Change> changes)
      : base_(std::move(base)), adapter_(std::move(adapter)), changes_(std::move(changes)) {}

  bool changes(const std::string& tensor) const override { return changes_.contains(tensor); }

  void apply(const std::string& tensor, int64_t begin, int64_t end, void* values, Dtype dtype) const override {
    const Change& change = changes_.at(tensor);
    if (change.kind == Change::Kind::replaced)
      return checkpoint::read_piece(adapter_, {change.tensor, begin, end, values, dtype});
    const at::ScalarType type = dtype == Dtype::f64 ? at::kDouble : at::kFloat;
    if (change.kind == Change::Kind::bias) {
      const at::Tensor bias = at::empty({end - begin}, type);
      checkpoint::read_piece(adapter_, {change.tensor, begin, end, bias.data_ptr(), dtype});
      at::from_blob(values, {end - begin}, type).add_(bias, change.spec.scale);
      return;
    }
    const std::lock_guard lock(mutex_);
    const Factors& factors = factors_of(tensor, change, dtype);
    auto* at = static_cast<std::byte*>(values);
    for_each_block(begin, end, change.columns(), [&](const Block& block) {
      const at::Tensor piece = at::from_blob(at, {block.rows, block.columns}, type);
      factors.product.add_to(piece, block.row, block.rows, block.column, block.columns);
      if (factors.magnitude.defined()) {
        const at::Tensor m = change.module.transposed()
                                 ? factors.magnitude.narrow(0, block.column, block.columns)
                                 : factors.magnitude.narrow(0, block.row, block.rows).unsqueeze(1);
        piece.mul_(m);
      }
      at += block.rows * block.columns * checkpoint::size_of(dtype);
    });
  }

 private:
  /// The change of a matrix is `product`, and then each output times `magnitude`, if there is one.
  struct Factors {
    std::string tensor;
    Dtype dtype = Dtype::f32;
    LowRank product;
    at::Tensor magnitude;
  };

  /// Those of the tensor that was read last are kept: readers go through a tensor in small steps.
  const Factors& factors_of(const std::string& tensor, const Change& change, Dtype dtype) const {
    if (kept_.tensor == tensor && kept_.dtype == dtype) return kept_;
    kept_ = {};
    const at::Tensor a = read_whole(adapter_, change.a, dtype), b = read_whole(adapter_, change.b, dtype);
    kept_.product = change.module.transposed() ? LowRank{a.t().contiguous(), b.t().contiguous(), change.spec.scale}
                                               : LowRank{b, a, change.spec.scale};
    if (change.spec.dora)
      kept_.magnitude = read_whole(adapter_, change.magnitude, dtype) /
                        output_norms(base_, tensor, change.module, kept_.product, 0, change.module.out, dtype);
    kept_.tensor = tensor;
    kept_.dtype = dtype;
    return kept_;
  }

  Checkpoint base_;  ///< with the values of the files
  Checkpoint adapter_;
  std::map<std::string, Change> changes_;
  mutable std::mutex mutex_;
  mutable Factors kept_;
};

}  // namespace

void check_base(const Checkpoint& base, const AdapterFolder& adapter) {
  if (adapter.base_fingerprint.empty() || fingerprint_of(base) == adapter.base_fingerprint) return;
  throw CheckpointError(
      fmt::format(
          "the base {} is not the one that the adapter {} was trained on: its weights have changed since, or it "
          "is another model; name the right one: --base PATH, or for finetune_lora the folder that stands first",
          base.path.string(), adapter.path.string()),
      base.path.string());
}

void check_copies(const Checkpoint& base, const AdapterFolder& adapter, const FittedAdapter& fitted,
                  const checkpoint::Naming& naming) {
  std::vector<std::byte> ours, copy;
  for (const auto& [file_name, tensor] : fitted.base_copies) {
    const std::string name = naming.name_of(tensor);
    const checkpoint::StoredTensor& stored = adapter.files.tensor(file_name);
    const auto refuse = [&] {
      throw CheckpointError(
          fmt::format("the adapter {} comes with its own '{}', which is not that of the base {}: it was trained on "
                      "another base, or its vocabulary was changed",
                      adapter.path.string(), file_name, base.path.string()),
          adapter.path.string(), file_name);
    };
    if (stored.shape != base.tensor(name).shape || !checkpoint::is_float(stored.dtype)) refuse();
    const int64_t size = checkpoint::size_of(stored.dtype);
    for (int64_t begin = 0; begin < stored.elements; begin += kPieceElements) {
      const int64_t end = std::min(stored.elements, begin + kPieceElements);
      ours.resize(static_cast<size_t>((end - begin) * size));
      copy.resize(ours.size());
      checkpoint::read_piece(base, {name, begin, end, ours.data(), stored.dtype});
      checkpoint::read_piece(adapter.files, {file_name, begin, end, copy.data(), stored.dtype});
      if (std::memcmp(ours.data(), copy.data(), ours.size()) != 0) refuse();
    }
  }
}

namespace {

/// The config.json of a model whose head is a matrix of its own.
std::string untied(const std::string& config_json) {
  auto config = base::parse_json<nlohmann::ordered_json>(config_json);
  config["tie_word_embeddings"] = false;
  if (config.contains("text_config") && config["text_config"].is_object())
    config["text_config"]["tie_word_embeddings"] = false;
  return config.dump(2) + "\n";
}

bool touches(const model::Adapters& adapters, const std::string& module) {
  return adapters.modules.contains(module) || adapters.whole.contains(module);
}

std::map<std::string, Change> changes_of(const FittedAdapter& fitted, const std::vector<Module>& modules,
                                         const checkpoint::Naming& naming, const std::string& head_weight,
                                         const AdapterFolder& adapter) {
  std::map<std::string, Change> changes;
  for (const Module& m : modules) {
    const std::string weight = naming.name_of(m.is_head ? head_weight : m.weight), bias = naming.name_of(m.bias);
    const auto file_name = [&](const std::string& end) { return fitted.file_names.at(m.name + end); };
    if (fitted.adapters.whole.contains(m.name)) {
      changes[weight] = {.kind = Change::Kind::replaced, .module = m, .tensor = file_name(".weight")};
      if (!m.bias.empty()) changes[bias] = {.kind = Change::Kind::replaced, .module = m, .tensor = file_name(".bias")};
    }
    const auto found = fitted.adapters.modules.find(m.name);
    if (found == fitted.adapters.modules.end()) continue;
    const bool embedding = m.kind == Module::Kind::embedding;
    Change change{.module = m, .spec = found->second};
    change.a = file_name(embedding ? model::kLoraEmbeddingA : model::kLoraA);
    change.b = file_name(embedding ? model::kLoraEmbeddingB : model::kLoraB);
    if (change.spec.dora) change.magnitude = file_name(model::kLoraMagnitude);
    if (change.spec.bias) {
      if (m.bias.empty())
        throw CheckpointError(
            fmt::format("the adapter {} gives {} a bias (lora_bias), and the model has no place for one: it cannot be "
                        "merged; open it in PEFT, or train another without lora.bias",
                        adapter.path.string(), m.name),
            adapter.path.string());
      changes[bias] = {
          .kind = Change::Kind::bias, .module = m, .spec = change.spec, .tensor = file_name(model::kLoraBiasB)};
    }
    changes[weight] = std::move(change);
  }
  return changes;
}

}  // namespace

Checkpoint with_adapter(Checkpoint base, const AdapterFolder& adapter, std::vector<std::string>* notes) {
  check_invariant(base.change == nullptr, "one adapter is merged at a time");
  check_base(base, adapter);
  const std::string config_json = checkpoint::read_text(base, "config.json");
  const model::ModelConfig config = model::parse_hugging_face_config(config_json, (base.path / "config.json").string());
  const FittedAdapter fitted = fit(adapter, config);
  const std::vector<Module> modules = modules_of(config);
  const std::string embedding = modules.front().weight;
  const checkpoint::Naming naming = checkpoint::naming_of(base, embedding);
  check_copies(base, adapter, fitted, naming);
  const std::string head_weight = model::head_table_name(config.architecture);
  if (config.tie_word_embeddings &&
      (touches(fitted.adapters, "lm_head") || touches(fitted.adapters, modules[0].name))) {
    // The head's own tensor: the values that it shared until now.
    base.tensors.insert_or_assign(naming.name_of(head_weight), base.tensor(naming.name_of(embedding)));
    base.texts["config.json"] = untied(config_json);
    if (notes != nullptr)
      notes->push_back(
          "the adapter changes one of two tied matrices, head and embedding, so merging unties them: the merged model "
          "has an lm_head.weight of its own, and its config.json says tie_word_embeddings false");
  }
  std::map<std::string, Change> changes = changes_of(fitted, modules, naming, head_weight, adapter);
  base.change = std::make_shared<const Merged>(base, adapter.files, std::move(changes));
  return base;
}

}  // namespace trireme::adapt
