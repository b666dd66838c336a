// The head's losses other than plain cross-entropy (objective.h).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/model/head_chunks.h"
#include "trireme/model/head_rows.h"
#include "trireme/ops/storage.h"

namespace trireme::model {
namespace {

struct PairRow {
  enum : int64_t { logp, reference, tokens };  // of HeadWork::documents
};

const double* input(const UnitTensors& t, PairInput::Row row) { return input_row(t, row); }

}  // namespace

void check_objective(const ModelConfig& config, const Precision& precision, const Objective& objective) {
  if (objective.is_plain()) return;
  const std::string what = objective.is_pairs()    ? "learning from pairs (dpo.*)"
                           : objective.is_policy() ? "learning from rewards (grpo.*)"
                                                   : "label smoothing and z-loss (objective.*)";
  if (config.is_classifier() || config.bidirectional)
    throw UsageError("this model classifies texts, and only models that continue them take " + what +
                     "; leave these settings out");
  if (config.is_free() && objective.has_inputs())
    throw UsageError(what + " is not built for a Free Transformer, whose likelihood is only bounded");
  const char* computes = objective.is_pairs() || objective.is_policy() ? "computes" : "compute";
  if (precision.on_gpu)
    throw ProcessorsOnly(fmt::format("{} {} on processors only", what, computes), "set accelerator cpu");
}

std::vector<Measure> HeadUnit::measures() const {
  std::vector<Measure> measures;
  if (objective_.is_pairs())
    for (const char* name : pair_measures()) measures.push_back({name, 0});
  if (objective_.is_policy())
    for (const char* name : policy_measures()) measures.push_back({name, 0});
  return measures;
}

void HeadUnit::declare_objective(UnitValues& v, const BatchShape& shape, int64_t tokens, int64_t rows,
                                 const Precision&) const {
  v.forward_work[HeadWork::row_weights] = {
      "weights of rows", {objective_.has_inputs() ? tokens : rows, 3}, at::kDouble};
  if (!objective_.has_inputs()) return;
  v.forward_work[HeadWork::supervised] = {"supervised rows", {2, tokens}, at::kLong};
  v.forward_work[HeadWork::documents] = {
      objective_.is_pairs() ? "sums of replies" : "log-probabilities",
      {objective_.policy && objective_.policy->weighs_answers() ? 4 : 3, shape.tokens()},
      at::kDouble};
}

// One token's loss is (1 - s) (-log p) + s (log sum - mean logit) + z (log sum)^2, with s for label smoothing.
void HeadUnit::judge_tokens(UnitTensors& t, const Chunk& c) const {
  const Rows rows(c.row_max, c.sum_exp, c.target_logit, c.logit_sum);
  const double smoothing = objective_.label_smoothing, z = objective_.z_loss, scale = t.loss_scale,
               vocabulary = static_cast<double>(config_.vocab_size);
  const int64_t* targets = c.targets.data_ptr<int64_t>();
  double *weights = doubles(t.work[HeadWork::row_weights]), total = 0;
  for (int64_t i = 0; i < c.rows; ++i) {
    double* const weight = weights + 3 * i;
    weight[0] = weight[1] = weight[2] = 0;
    if (targets[i] == kNoTarget) continue;
    const double log_sum = rows.log_sum(i);
    total += -(1 - smoothing) * rows.logp(i) + z * log_sum * log_sum;
    if (smoothing > 0) total += smoothing * (log_sum - rows.logit_sum(i) / vocabulary);
    weight[0] = scale * (1 + 2 * z * log_sum);
    weight[1] = scale * (1 - smoothing);
    weight[2] = scale * smoothing / vocabulary;
  }
  *doubles(t.loss_sum) += total;
}

void HeadUnit::pair_loss(UnitTensors& t, const Gradients* g) const {
  check_invariant(t.document_starts.defined(), "losses of pairs know where replies end");
  t.loss_sum.zero_();
  const int64_t rows = close_ranks(t);
  const bool is_one_chunk = rows <= t.work[HeadWork::logits].size(0);
  for_chunks(t, rows, [&](const Chunk& c) {
    compute_logits(t, c);
    sum_rows(t, c);
  });
  sum_replies(t, rows);
  if (g == nullptr && scores_ != nullptr && scores_->taken)
    scores_->taken(t.micro_batch, t.work[HeadWork::documents][PairRow::logp]);
  judge_pairs(t);
  if (g == nullptr) return;
  weigh_tokens(t, rows);
  for_chunks(t, rows, [&](const Chunk& c) {
    if (!is_one_chunk) compute_logits(t, c);
    differentiate(t, *g, c);
  });
  open_ranks(t, rows);
}

// The rows that have a target move together, in their order; returns how many there are, at least 1. Tensor-parallel
// ranks exchange numbers of as many rows as their plan says, so there all rows stay.
int64_t HeadUnit::close_ranks(UnitTensors& t) const {
  const at::Tensor &normed = t.work[HeadWork::normed], &supervised = t.work[HeadWork::supervised];
  const int64_t tokens = normed.size(0);
  const auto width = static_cast<size_t>(normed.size(1)) * normed.element_size();
  auto* const rows = static_cast<char*>(normed.data_ptr());
  const int64_t* targets = t.targets[0].data_ptr<int64_t>();
  auto *number = at::Tensor(supervised).mutable_data_ptr<int64_t>(), *target = number + tokens;
  int64_t count = 0;
  for (int64_t i = 0; i < tokens; ++i) {
    if (parallel_.tp_size == 1 && targets[i] == kNoTarget && (count > 0 || i + 1 < tokens)) continue;
    if (count != i) std::memcpy(rows + count * width, rows + i * width, width);
    number[count] = i;
    target[count++] = targets[i];
  }
  return count;
}

// Their gradients move back; rows between them have none.
void HeadUnit::open_ranks(UnitTensors& t, int64_t count) const {
  const at::Tensor& normed = t.work[HeadWork::normed];
  const auto width = static_cast<size_t>(normed.size(1)) * normed.element_size();
  auto* const rows = static_cast<char*>(normed.data_ptr());
  const int64_t* number = t.work[HeadWork::supervised].data_ptr<int64_t>();
  for (int64_t i = normed.size(0) - 1, k = count - 1; i >= 0; --i) {
    if (k < 0 || number[k] != i)
      std::memset(rows + i * width, 0, width);
    else if (k-- != i)
      std::memcpy(rows + i * width, rows + (k + 1) * width, width);
  }
}

// Sums over the replies; the likelihood goes into the loss.
void HeadUnit::sum_replies(UnitTensors& t, int64_t count) const {
  const at::Tensor documents = at::Tensor(t.work[HeadWork::documents]).zero_();
  double *logp = doubles(documents[PairRow::logp]), *reference = doubles(documents[PairRow::reference]),
         *tokens = doubles(documents[PairRow::tokens]);
  const double *reply = input(t, PairInput::reply), *likelihood = input(t, PairInput::likelihood),
               *given = input(t, PairInput::reference);
  const std::vector<int64_t> places = document_places(t, parallel_);
  const int64_t* number = t.work[HeadWork::supervised].data_ptr<int64_t>();
  double nats = 0;
  for_chunks(t, count, [&](const Chunk& c) {
    const Rows rows(c.row_max, c.sum_exp, c.target_logit);
    const int64_t* targets = c.targets.data_ptr<int64_t>();
    for (int64_t row = 0; row < c.rows; ++row) {
      if (targets[row] == kNoTarget) continue;
      const int64_t i = number[c.first + row];
      const double value = rows.logp(row);
      if (likelihood[i] != 0) nats -= likelihood[i] * value;
      if (reply[i] == 0) continue;
      const auto place = places[static_cast<size_t>(i)];
      logp[place] += value;
      reference[place] += given[i];
      tokens[place] += 1;
    }
  });
  double* const sums = doubles(t.loss_sum);
  sums[0] = nats;
  sums[std::ssize(pair_measures())] = nats;
  if (parallel_.cp_size > 1) t.ranks[comm::UnitAxis::cp]->all_reduce(documents, documents, {})->wait();
}

// The sums of log-probabilities become the loss's derivatives by them. All context-parallel ranks have the same sums;
// the first counts the loss.
void HeadUnit::judge_pairs(UnitTensors& t) const {
  const at::Tensor& documents = t.work[HeadWork::documents];
  double *logp = doubles(documents[PairRow::logp]), *sums = doubles(t.loss_sum);
  const double *reference = doubles(documents[PairRow::reference]), *tokens = doubles(documents[PairRow::tokens]);
  const auto judge = [&](int64_t chosen, int64_t rejected) {
    const PairSums pair{.chosen = logp[chosen],
                        .rejected = logp[rejected],
                        .reference_chosen = reference[chosen],
                        .reference_rejected = reference[rejected],
                        .chosen_tokens = tokens[chosen],
                        .rejected_tokens = tokens[rejected]};
    const PairJudgement judgement = judge_pair(objective_, pair);
    logp[chosen] = judgement.d_chosen;
    logp[rejected] = judgement.d_rejected;
    if (parallel_.cp_rank != 0) return;
    sums[0] += judgement.loss;
    const double measured[] = {judgement.chosen_reward,
                               judgement.rejected_reward,
                               judgement.chosen_reward > judgement.rejected_reward ? 1.0 : 0.0,
                               judgement.chosen_reward - judgement.rejected_reward,
                               pair.chosen,
                               pair.rejected};
    for (size_t i = 0; i < std::size(measured); ++i) sums[i + 1] += measured[i];
  };
  int64_t chosen = -1;  // waits for its other reply
  for (int64_t place = 0; place < t.shape.tokens(); ++place) {
    if (place % t.shape.sequence == 0) chosen = -1;
    if (tokens[place] == 0) continue;
    if (chosen < 0) {
      chosen = place;
    } else {
      judge(chosen, place);
      chosen = -1;
    }
  }
}

void HeadUnit::weigh_tokens(UnitTensors& t, int64_t count) const {
  const double *reply = input(t, PairInput::reply), *likelihood = input(t, PairInput::likelihood),
               *derivative = doubles(t.work[HeadWork::documents][PairRow::logp]);
  double* weights = doubles(t.work[HeadWork::row_weights]);
  const std::vector<int64_t> places = document_places(t, parallel_);
  const int64_t* number = t.work[HeadWork::supervised].data_ptr<int64_t>();
  for (int64_t k = 0; k < count; ++k, weights += 3) {
    const int64_t i = number[k];
    const double by_pair = reply[i] == 0 ? 0 : derivative[places[static_cast<size_t>(i)]];
    weights[0] = weights[1] = t.loss_scale * (likelihood[i] - by_pair);
    weights[2] = 0;
  }
}

}  // namespace trireme::model
