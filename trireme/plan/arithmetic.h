// The arithmetic of training that people do by hand: memory of model states, operations, time, money. Each function is
// one formula; `trireme plan --explain` prints them with numbers put in. What Trireme really allocates and needs is
// StepPlan and costs/step_costs.h; these are the textbook's, for orientation and to compare.
#pragma once

#include <cstdint>

namespace trireme::plan {

// ---- operations ----

struct TrainingFlops {
  double tokens_per_step = 0, total_tokens = 0;
  double flops_per_token = 0;  ///< 6 N: 2 N forward, 4 N backward
  double total_flops = 0;
  double pflops() const { return total_flops / 1e15; }
};
/// 6 N D for N = `parameters` and D = batch_size x sequence x steps tokens.
///
/// Source    Kaplan et al., Scaling Laws (2020); without attention's own 12 L a d s operations a token
TrainingFlops compute_training_flops(double parameters, double batch_size, double sequence, double steps);

struct Chinchilla {
  double parameters = 0, tokens = 0;
  double loss = 0;  ///< nats a token, by the paper's third fit
};
/// What to train with `flops` operations: D = 20 N and flops = 6 N D, so N = sqrt(flops / 120).
///
/// Source    Hoffmann et al., Training Compute-Optimal Large Language Models (2022)
Chinchilla chinchilla_optimal(double flops);
/// 20 tokens a parameter.
double chinchilla_tokens(double parameters);
/// 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28
double chinchilla_loss(double parameters, double tokens);

// ---- time and money ----

/// Days for `flops` on `devices` that each reach `utilization` of `peak_flops` a second.
double training_days(double flops, double devices, double peak_flops, double utilization);
/// Money for `days` of `devices` at `price` a device and hour.
double training_cost(double days, double devices, double price);
/// Money a sample, if `devices` together train `samples_per_second`.
double cost_per_sample(double price, double devices, double samples_per_second);
/// Seconds between checkpoints: sqrt(2 x write_seconds x seconds_between_failures) (Young 1974, Daly 2006).
double checkpoint_interval(double write_seconds, double seconds_between_failures);

// ---- memory ----

/// Bytes a parameter. The default is mixed precision with Adam, 16 in all: weights and gradients in 2 bytes, and
/// master, momentum and variance in 4 each.
struct StateBytes {
  double weights = 2, gradients = 2, optimizer = 12;
  double sum() const { return weights + gradients + optimizer; }
};
constexpr StateBytes kFloat32Adam{4, 4, 8};  ///< 16: everything in 4 bytes
constexpr StateBytes kBfloat16WithFloat32Moments{2, 2, 8};  ///< 12: no master copy, so small updates are lost

/// Bytes of model states of a rank of `ranks`, for ZeRO's stage 0 (every rank holds all), 1 (the optimizer's state is
/// divided), 2 (gradients too) or 3 (weights too).
///
/// Source    Rajbhandari et al., ZeRO (2020), section 5
double zero_bytes(int stage, double parameters, double ranks, const StateBytes& bytes = {});
/// zero_bytes(0) / zero_bytes(stage). For the default bytes and many ranks 4 in stage 1, 8 in stage 2, and the number
/// of ranks in stage 3.
double zero_saving(int stage, double ranks, const StateBytes& bytes = {});

enum class ActivationsKept {
  all,
  selective,  ///< without scores, softmax and their dropout, as with flash attention
  inputs,  ///< of each layer alone: full recomputation
};
struct LayerShape {
  double sequence, micro_batch, hidden, heads;
  double tensor_parallel = 1;
  bool sequence_parallel = false;
};
/// Bytes of activations of one GPT layer in 2 bytes an element, with dropout: s b h (34 + 5 a s / h), and what tensor
/// and sequence parallelism leave of it.
///
/// Source    Korthikanti et al., Reducing Activation Recomputation (2022), table 2
double activation_bytes(const LayerShape& shape, ActivationsKept kept = ActivationsKept::all);

/// Weights of a frozen model in `bits` a parameter and of adapters with 16 bytes each of theirs: LoRA (16 bits), QLoRA
/// (4.127 bits: NF4 with nested scales).
double adapter_tuning_bytes(double parameters, double bits, double adapter_parameters);
constexpr double kNestedNf4Bits = 4.127, kNf4Bits = 4.5;
/// Parameters of rank-r adapters on a matrix [outputs, inputs]: r (inputs + outputs).
double adapter_parameters(double inputs, double outputs, double rank);

/// Bytes of keys and values of one token: 2 L k d bytes.
double cache_bytes_per_token(double layers, double kv_heads, double head_dim, double bytes);

// ---- communication and pipelines ----

/// 2 (N - 1) / N x bytes / rate: every rank sends and receives that many bytes in a ring all-reduce.
double ring_all_reduce_seconds(double ranks, double bytes, double bytes_per_second);
/// (p - 1) / (m + p - 1): the idle part of a pipeline of p equal stages and m micro-batches (GPipe, 1F1B).
double bubble_fraction(double stages, double micro_batches);
/// Tokens a rank needs in a step so that gathers of weights hide behind arithmetic: bytes a parameter x FLOP/s / (2 x
/// rate). It does not depend on the model.
double tokens_that_hide_gathers(double bytes_per_parameter, double flops_per_second, double bytes_per_second);

}  // namespace trireme::plan
