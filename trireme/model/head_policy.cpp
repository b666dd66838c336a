// The head's loss of learning from rewards (policy.h).
#include <ATen/ATen.h>

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/model/head_chunks.h"
#include "trireme/model/head_rows.h"
#include "trireme/model/policy.h"

namespace trireme::model {
namespace {

// Rows of HeadWork::documents: of each token its log-probability; where an answer begins, the sum of its log-ratios,
// the number of its tokens, and with PolicyOptions::weighs_answers() the sum of its distances.
struct PolicyRow {
  enum : int64_t { logp, log_ratio, tokens, distance };
};

}  // namespace

void HeadUnit::policy_loss(UnitTensors& t, const Gradients* g) const {
  t.loss_sum.zero_();
  const at::Tensor documents = at::Tensor(t.work[HeadWork::documents]).zero_();
  const bool by_sequence = objective_.sums_documents() && g != nullptr;
  const int64_t rows = close_ranks(t);
  const bool is_one_chunk = rows <= t.work[HeadWork::logits].size(0);
  if (by_sequence || g == nullptr) {
    for_chunks(t, rows, [&](const Chunk& c) {
      compute_logits(t, c);
      sum_rows(t, c);
      sum_answers(t, c);
    });
    if (by_sequence && parallel_.cp_size > 1) {
      const at::Tensor sums = documents.narrow(0, PolicyRow::log_ratio, documents.size(0) - PolicyRow::log_ratio);
      t.ranks[comm::UnitAxis::cp]->all_reduce(sums, sums, {})->wait();
    }
  }
  if (g == nullptr) {
    if (scores_ != nullptr && scores_->taken)
      scores_->taken(t.micro_batch, documents[PolicyRow::logp].narrow(0, 0, t.work[HeadWork::normed].size(0)));
    return;
  }
  for_chunks(t, rows, [&](const Chunk& c) {
    if (!by_sequence || !is_one_chunk) compute_logits(t, c);
    if (!by_sequence) sum_rows(t, c);
    judge_answers(t, c);
    differentiate(t, *g, c);
  });
  open_ranks(t, rows);
}

void HeadUnit::sum_answers(UnitTensors& t, const Chunk& c) const {
  const at::Tensor& documents = t.work[HeadWork::documents];
  double *logp = doubles(documents[PolicyRow::logp]), *log_ratio = doubles(documents[PolicyRow::log_ratio]),
         *tokens = doubles(documents[PolicyRow::tokens]);
  const Rows rows(c.row_max, c.sum_exp, c.target_logit);
  const int64_t *targets = c.targets.data_ptr<int64_t>(),
                *number = t.work[HeadWork::supervised].data_ptr<int64_t>() + c.first;
  const std::vector<int64_t> places =
      objective_.sums_documents() ? document_places(t, parallel_) : std::vector<int64_t>();
  const double *old = input_row(t, PolicyInput::old), *reference = input_row(t, PolicyInput::reference);
  double* const distance = objective_.policy->weighs_answers() ? doubles(documents[PolicyRow::distance]) : nullptr;
  for (int64_t k = 0; k < c.rows; ++k) {
    if (targets[k] == kNoTarget) continue;
    logp[number[k]] = rows.logp(k);
    if (places.empty()) continue;
    const int64_t place = places[static_cast<size_t>(number[k])];
    log_ratio[place] += rows.logp(k) - old[number[k]];
    tokens[place] += 1;
    if (distance != nullptr) distance[place] += distance_of(*objective_.policy, rows.logp(k) - reference[number[k]]);
  }
}

// Each row of logits gets the weight of its log-probability in the loss.
void HeadUnit::judge_answers(UnitTensors& t, const Chunk& c) const {
  const Rows rows(c.row_max, c.sum_exp, c.target_logit);
  const int64_t *targets = c.targets.data_ptr<int64_t>(),
                *number = t.work[HeadWork::supervised].data_ptr<int64_t>() + c.first;
  const double *weight = input_row(t, PolicyInput::weight), *advantage = input_row(t, PolicyInput::advantage),
               *old = input_row(t, PolicyInput::old), *reference = input_row(t, PolicyInput::reference);
  const at::Tensor& documents = t.work[HeadWork::documents];
  const double *log_ratio = doubles(documents[PolicyRow::log_ratio]), *tokens = doubles(documents[PolicyRow::tokens]),
               *distance = objective_.policy->weighs_answers() ? doubles(documents[PolicyRow::distance]) : nullptr;
  const std::vector<int64_t> places =
      objective_.sums_documents() ? document_places(t, parallel_) : std::vector<int64_t>();
  double *weights = doubles(t.work[HeadWork::row_weights]) + 3 * c.first, *sums = doubles(t.loss_sum);
  for (int64_t k = 0; k < c.rows; ++k, weights += 3) {
    weights[0] = weights[1] = weights[2] = 0;
    if (targets[k] == kNoTarget) continue;
    const int64_t i = number[k];
    const int64_t place = places.empty() ? 0 : places[static_cast<size_t>(i)];
    const PolicyJudgement judged =
        judge_token(*objective_.policy, {.logp = rows.logp(k),
                                         .old = old[i],
                                         .reference = reference[i],
                                         .advantage = advantage[i],
                                         .mean_log_ratio = places.empty() ? 0 : log_ratio[place] / tokens[place],
                                         .mean_distance = distance == nullptr ? 0 : distance[place] / tokens[place]});
    sums[0] += weight[i] * judged.loss;
    sums[1] += judged.kl;
    sums[2] += judged.is_clipped ? 1 : 0;
    sums[3] += judged.ratio;
    weights[0] = weights[1] = -t.loss_scale * weight[i] * judged.d_logp;
  }
}

}  // namespace trireme::model
