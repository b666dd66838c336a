#include "trireme/plan/arithmetic.h"

#include <cmath>

namespace trireme::plan {

TrainingFlops compute_training_flops(double parameters, double batch_size, double sequence, double steps) {
  TrainingFlops f{.tokens_per_step = batch_size * sequence, .flops_per_token = 6 * parameters};
  f.total_tokens = f.tokens_per_step * steps;
  f.total_flops = f.flops_per_token * f.total_tokens;
  return f;
}

Chinchilla chinchilla_optimal(double flops) {
  const double parameters = std::sqrt(flops / 120), tokens = chinchilla_tokens(parameters);
  return {parameters, tokens, chinchilla_loss(parameters, tokens)};
}

double chinchilla_tokens(double parameters) { return 20 * parameters; }

double chinchilla_loss(double parameters, double tokens) {
  return 1.69 + 406.4 / std::pow(parameters, 0.34) + 410.7 / std::pow(tokens, 0.28);
}

double training_days(double flops, double devices, double peak_flops, double utilization) {
  return flops / (devices * peak_flops * utilization) / 86400;
}

double training_cost(double days, double devices, double price) { return days * 24 * devices * price; }

double cost_per_sample(double price, double devices, double samples_per_second) {
  return price * devices / 3600 / samples_per_second;
}

double checkpoint_interval(double write_seconds, double seconds_between_failures) {
  return std::sqrt(2 * write_seconds * seconds_between_failures);
}

double zero_bytes(int stage, double parameters, double ranks, const StateBytes& b) {
  const double weights = stage >= 3 ? b.weights / ranks : b.weights;
  const double gradients = stage >= 2 ? b.gradients / ranks : b.gradients;
  const double optimizer = stage >= 1 ? b.optimizer / ranks : b.optimizer;
  return parameters * (weights + gradients + optimizer);
}

double zero_saving(int stage, double ranks, const StateBytes& bytes) {
  return zero_bytes(0, 1, ranks, bytes) / zero_bytes(stage, 1, ranks, bytes);
}

double activation_bytes(const LayerShape& shape, ActivationsKept kept) {
  const double sbh = shape.sequence * shape.micro_batch * shape.hidden, t = shape.tensor_parallel;
  if (kept == ActivationsKept::inputs) return 2 * sbh;
  // Of 34: 10 that tensor parallelism alone does not divide (norms, dropout, inputs), and 24 that it does.
  const double linear = shape.sequence_parallel ? 34 / t : 10 + 24 / t;
  const double scores = kept == ActivationsKept::all ? 5 * shape.heads * shape.sequence / shape.hidden / t : 0;
  return sbh * (linear + scores);
}

double adapter_tuning_bytes(double parameters, double bits, double adapters) {
  return parameters * bits / 8 + adapters * StateBytes{}.sum();
}

double adapter_parameters(double inputs, double outputs, double rank) { return rank * (inputs + outputs); }

double cache_bytes_per_token(double layers, double kv_heads, double head_dim, double bytes) {
  return 2 * layers * kv_heads * head_dim * bytes;
}

double ring_all_reduce_seconds(double ranks, double bytes, double bytes_per_second) {
  return 2 * (ranks - 1) / ranks * bytes / bytes_per_second;
}

double bubble_fraction(double stages, double micro_batches) { return (stages - 1) / (micro_batches + stages - 1); }

double tokens_that_hide_gathers(double bytes_per_parameter, double flops_per_second, double bytes_per_second) {
  return bytes_per_parameter * flops_per_second / (2 * bytes_per_second);
}

}  // namespace trireme::plan
