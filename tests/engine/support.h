// Runs the same training job on any mesh of ranks, as threads of this process, and returns what it computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/ops/announce.h"
#include "trireme/optim/loss_scale.h"

namespace trireme::engine {

/// A small Llama (grouped heads, untied), GPT-2 (tied), Qwen3 (head norms, windows) or Gemma 3 (also norms of
/// branches, two kinds of blocks, tied), by name too.
model::ModelConfig small_llama();
model::ModelConfig small_gpt2();
model::ModelConfig small_qwen3();
model::ModelConfig small_gemma3();
/// A Free Transformer of four blocks, with a latent of `bits` bits before the third.
model::ModelConfig small_free(int64_t bits, model::Injection injection);
/// A model with three labels: bert, roberta, distilbert, encoder (pre-norm), encoder post, llama.
model::ModelConfig small_classifier(const std::string& model_type);
/// Any of them by name; those with labels as "labels bert".
model::ModelConfig small_model(const std::string& family);

/// Everything in one dtype, and computing in bfloat16 with state in float32.
inline const model::Precision kFloat64{at::kDouble, at::kDouble}, kFloat32{at::kFloat, at::kFloat},
    kMixed{at::kBFloat16, at::kFloat};
/// The same in float16, and bfloat16 alone, with each way of rounding its weights.
inline const model::Precision kHalfMixed{at::kHalf, at::kFloat};
/// kMixed, whose blocks multiply numbers of 8 bits.
inline const model::Precision kFloat8Mixed{.compute = at::kBFloat16, .float8 = true};
inline model::Precision bfloat16_alone(model::Rounding rounding) {
  return {.compute = at::kBFloat16, .narrow_weights = true, .narrow_gradients = true, .rounding = rounding};
}

struct Job {
  model::ModelConfig model;
  model::Precision precision;
  std::string backend = "threads";
  comm::MeshSizes mesh = {.shard = 1};
  plan::Strategy strategy = plan::Strategy::no_shard;
  bool ordered = true, local_accumulation = false, sequence_parallel = false;
  model::Context context = model::Context::ring;
  schedule::PipelineSettings pipeline;
  model::Grouping grouping;
  model::Adapters adapters;
  model::Objective objective;  ///< of pairs: each row holds one or two (pair_starts)
  std::map<std::string, at::Tensor> weights;  ///< instead of the first values that the seed gives, by name, whole
  int steps = 3;
  int global_micro_batches = 4;      ///< ranks without one in the last round get one without supervised tokens
  int first_micro_batch = 0;         ///< number of the first one in the text
  model::BatchShape shape{2, 16};
  schedule::RecomputeSettings recompute;
  schedule::Prefetch prefetch;
  int reduce_lag = 1;
  schedule::OffloadSettings offload;
  optim::OptimizerOptions optimizer = {.lr = 3e-3, .weight_decay = 0.1, .step = 0};
  std::optional<double> max_norm = 0.5;
  bool steps_in_backward = false;    ///< without max_norm
  bool poison = false;
  bool ragged = false;               ///< every third token is not supervised
  model::DocumentRequest documents;  ///< of the lengths that document_starts gives
  int64_t behind = 0;  ///< of a model with labels: added to the tokens behind the first document of each sequence
  bool on_gpu = false;               ///< all ranks share the first one
  optim::LossScaleOptions loss_scale = {.initial = 1024, .window = 3};  ///< of computing in float16
  std::set<int> overflows = {};      ///< steps in which the last rank's gradients overflow; in float16
  ops::Listener* listener = nullptr;  ///< of rank 0's first step
  std::shared_ptr<ops::cuda::GraphMaker> graphs = {};  ///< of every rank's engine; on a GPU each has its own
  bool gives_up = false;             ///< each step is first begun and given up, by some rank, at some action
  int ranks() const;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> measures;  ///< of each step
  std::vector<double> scales;        ///< of the loss, before each step
  std::vector<int> skipped;          ///< steps
  double evaluation = 0;             ///< of the same tokens on every data rank
  double held_out = 0;               ///< sum of the losses of as many micro-batches as a step has
  at::Tensor parameters;             ///< all master weights after the last step, by name, whole
  at::Tensor gradients;              ///< of the first step, in the same order; empty with steps_in_backward
  std::map<std::string, at::Tensor> parameter, gradient;  ///< both by name
  std::vector<std::pair<int, int>> graphs;  ///< Engine::graphs() at the end, by rank
  std::vector<int64_t> planned, allocated;  ///< arena bytes, by rank
  std::vector<int64_t> lower_bound;
  std::vector<std::map<std::string, int64_t>> traffic;  ///< of the first step by rank: "gather.all_gather" -> bytes
};

/// The request of rank `rank` of a job.
plan::StepRequest request_of(const Job& job, int rank);

/// Errors    UsageError where the combination is refused; every rank's other errors
Outcome run(const Job& job);

/// Tokens and targets of the whole micro-batch number `number` of step `step`, the same for every mesh.
void fill_micro_batch(int64_t step, int64_t number, int64_t vocabulary, const at::Tensor& tokens,
                      const at::Tensor& targets, bool ragged = false);

/// Where documents begin in the sequences of micro-batch `number`, [B*S]: several in each, others in every one.
at::Tensor document_starts(const model::BatchShape& shape, int64_t number);

/// The same of pairs of replies: two documents of a row are a pair.
at::Tensor pair_starts(const model::BatchShape& shape, int64_t number);
int64_t num_pairs(const at::Tensor& starts);
/// Makes targets [PairInput::end, B*S] of targets [B*S] before them: all but two tokens of a document are its reply.
void fill_pairs(const at::Tensor& starts, const at::Tensor& targets);

/// Fills what a rank of this request is told of whole sequences' documents.
void load_documents(const BatchTensors& to, const plan::StepRequest& request, const at::Tensor& starts);

double relative_distance(const at::Tensor& a, const at::Tensor& b);

/// Expects the same losses, norms, gradients and weights, bit for bit.
void expect_equal_bits(const Outcome& a, const Outcome& b);

/// How often LibTorch's allocator for processors has been asked for memory since the first call. Each call asks once
/// more, to see that it is counted, and leaves that out.
int64_t allocator_requests();

}  // namespace trireme::engine
