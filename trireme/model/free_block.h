// FreeBlock: the block of a Free Transformer that sees the latent, with the encoder before it, as one unit: the encoder
// reads what the block reads, and so a pipeline never parts them. X is the unit's input, "block" a pre-norm Llama
// block.
//
//   Y = encoder block(queries norm(zeta), the same for all tokens; keys and values norm(X); sees all tokens)
//   logits = readout(norm(Y))       bits ~ sigmoid(logits)       R = table[bits], or W (2 bits - 1)
//   output = block(queries norm(X); keys and values norm(X + R); causal)
//
// Its loss is the divergence of the bits from uniform ones, as far as it exceeds free.free_bits, token by token; the
// unit writes it as a measure. Bits are drawn by counters, like the masks of dropout (model/dropout.h): so every mesh,
// recomputation and a resume draw the same bits. In evaluation they are drawn too, with a key of 0. All its sequences
// are numbered, through all runs of the list (engine::LossSums).
//
// The encoder's zeta is the residual stream of its block. A document's tokens see that document only.
// In generation the encoder reads a prompt, all its tokens at once; later tokens get the codes that they are given. The
// cache holds keys and values of X + R, so a token keeps its code.
// Tensor parallel: the table is divided by codes; everything behind the logits is computed on every rank.
// Source: Fleuret, The Free Transformer (2025)
#pragma once

#include "trireme/model/block_layout.h"
#include "trireme/model/context_attention.h"
#include "trireme/model/dropout.h"
#include "trireme/model/rotary_tables.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/ops/latent/latent.h"

namespace trireme::model {

/// What injects the bits. It counts as no product: a table is looked up, and W is small.
inline constexpr const char* kSamplerName = "model.post_sampler.weight";

/// The parameters of the unit on one rank, and which of them each part reads.
struct FreeParameters {
  BlockLayout block, encoder;
  Norm final_norm;  ///< of the encoder's output
  int zeta = -1, readout = -1;  ///< [D]; [H,D]
  int sampler = -1;  ///< the table [2^H,D], or W [D,H]
  std::vector<ParameterSpec> specs;
};

/// Refuses what a Free Transformer is not built for.
/// Errors    UsageError
void check_free(const ModelConfig& config, const Precision& precision, const Parallel& parallel,
                const Adapters& adapters, bool matrices_apart);

struct DocumentSpan;

class FreeBlock : public Unit {
 public:
  FreeBlock(const ModelConfig& config, const Parallel& parallel, std::shared_ptr<const RotaryTables> rotary);

  std::string name() const override { return "block " + std::to_string(config_.free.split_layer); }
  const std::vector<ParameterSpec>& parameters() const override { return p_.specs; }
  std::string layer_of(int parameter) const override;
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t, const std::vector<int>& which) const override;
  void backward(UnitTensors& t) const override;
  bool reads_documents() const override { return true; }
  bool reads_targets() const override { return true; }
  /// The means of the divergence in nats, of its excess over free.free_bits, and of tokens that have one.
  std::vector<Measure> measures() const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  std::vector<TrafficRow> generation_traffic(const GenerationShape& shape, const Precision& precision) const override;
  double forward_flops(const BatchShape& shape) const override;
  bool runs_on_gpu() const override { return false; }

  int64_t cache_width() const override { return widths_.kv_width(); }

 private:
  /// One of the two blocks: its parameters, and where its values begin among the saved ones.
  struct Half {
    const BlockLayout& layout;
    int saved;
    bool causal;
    const char* name;  ///< in those of its masks
  };
  Half encoder() const;
  Half block() const;

  void normalize(const UnitTensors& t, const Norm& norm, const at::Tensor& rstd, const at::Tensor& x) const;
  void rotate(const UnitTensors& t, const at::Tensor& qkv, bool backward) const;
  at::Tensor queries(const at::Tensor& qkv) const { return qkv.narrow(1, 0, widths_.q_width()); }
  at::Tensor keys_values(const at::Tensor& qkv) const {
    return qkv.narrow(1, widths_.q_width(), 2 * widths_.kv_width());
  }
  at::Tensor key_value_weight(const UnitTensors& t, const Half& half) const;
  void write_queries(const UnitTensors& t, const Half& half, const at::Tensor& dy, const at::Tensor& x) const;
  void write_keys_values(const UnitTensors& t, const Half& half, const at::Tensor& dy, const at::Tensor& x) const;
  void attend_to_all(const UnitTensors& t, const Half& half) const;
  void differentiate_attention_to_all(const UnitTensors& t, const Half& half, const at::Tensor& d_qkv) const;
  void expand(const UnitTensors& t, const Half& half, const at::Tensor& residual) const;
  void contract(const UnitTensors& t, const Half& half, const at::Tensor& output) const;

  void encode(const UnitTensors& t) const;
  void draw(const UnitTensors& t) const;
  void inject(const UnitTensors& t) const;
  void project(const UnitTensors& t) const;
  at::Tensor local_codes(const UnitTensors& t) const;

  void backward_half(const UnitTensors& t, const Half& half, const at::Tensor& dx, int norm_row) const;
  void backward_block(const UnitTensors& t) const;
  void backward_latent(const UnitTensors& t) const;
  void backward_readout(const UnitTensors& t) const;
  void backward_encoder(const UnitTensors& t) const;
  void backward_zeta(const UnitTensors& t, const at::Tensor& d_qkv) const;
  void write_parts(const UnitTensors& t) const;
  bool encodes(const UnitTensors& t) const;
  void take_codes(const UnitTensors& t) const;

  bool has_table() const { return config_.free.injection == Injection::table; }
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }
  int64_t num_codes() const { return int64_t{1} << config_.free.latent_bits; }
  int64_t own_codes() const { return num_codes() / parallel_.tp_size; }
  int64_t first_code() const { return own_codes() * parallel_.tp_rank; }
  /// Tokens whose scores over the codes exist at a time.
  int64_t chunk_rows(int64_t tokens) const;
  ops::AttentionBlockShape all_shape(int64_t batch, int64_t tokens) const;
  Dropout dropout_of(const Half& half, const char* what, double p) const;
  /// Its keys are in the counters until others are written there.
  ops::AttentionDropout weight_dropout(const UnitTensors& t, const Half& half) const;
  ops::AttentionShape causal_shape(const UnitTensors& t) const;
  ops::AttentionBlockShape span_shape(const DocumentSpan& span, const ops::AttentionDropout& dropout) const;
  /// Drops elements of a branch, or of its gradient, in place.
  void drop_branch(const UnitTensors& t, const Half& half, const char* what, const at::Tensor& branch) const;
  /// The gradient [T,D] of a branch's product, in `buffer` where it is not dx itself.
  at::Tensor branch_gradient(const UnitTensors& t, const Half& half, const char* what, const at::Tensor& buffer,
                             const at::Tensor& dx) const;

  ModelConfig config_;
  Parallel parallel_;
  FreeParameters p_;
  BlockWidths widths_;
  std::shared_ptr<const RotaryTables> rotary_;
  uint64_t module_;  ///< of the counters
};

}  // namespace trireme::model
