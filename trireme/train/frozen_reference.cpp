#include "trireme/train/frozen_reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/model/model.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/references.h"

namespace trireme::train {

void FrozenReference::load() {
  load_reference(s_, s_.settings.grpo.reference);
  weights_.clear();
  // Frozen groups belong to both models. What is kept are the weights that are computed with.
  for (const engine::GroupState& group : s_.engine->state())
    weights_.push_back(group.storage->trained
                           ? group.master.to(group.storage->compute, /*non_blocking=*/false, /*copy=*/true)
                           : at::Tensor());
}

void score_answers(Session& s, std::vector<RolloutGroup>& groups, std::vector<double> RolloutAnswer::* to) {
  const plan::StepRequest& r = s.engine->plan().request;
  const AnswerRows rows(s, groups, {0, std::ssize(groups)});
  const int64_t micro = s.settings.train.micro_batch_size, of_round = micro * r.num_data_ranks(),
                sequence = s.sequence(), rounds = (rows.num_rows() + of_round - 1) / of_round;
  const at::Tensor logp = at::zeros({rounds * of_round, sequence}, at::kDouble);  // of all rows
  const bool counts = r.coordinate(comm::Axis::tp) == 0;
  int64_t first = 0;
  s.model.scores->taken = [&](int, const at::Tensor& tokens) {
    if (!counts) return;
    const auto* from = tokens.data_ptr<double>();
    for (int64_t row = first; row < first + micro; ++row)
      for (const int64_t position : s.positions) logp.data_ptr<double>()[row * sequence + position] = *from++;
  };
  for (int64_t round = 0; round < rounds; ++round) {
    first = round * of_round + r.data_index() * micro;
    s.engine->evaluate([&](int, const engine::BatchTensors& batch) { rows.load(batch, first, false); }, 1);
  }
  s.model.scores->taken = nullptr;
  if (rounds > 0) s.world().all_reduce(logp, logp, {})->wait();
  for (const PlacedAnswer& p : rows.placed()) {
    RolloutGroup& group = groups[static_cast<size_t>(p.group)];
    RolloutAnswer& answer = group.answers[static_cast<size_t>(p.answer)];
    const double* at = logp.data_ptr<double>() + p.row * sequence + p.first + std::ssize(group.tokens) - 1;
    (answer.*to).assign(at, at + answer.tokens.size());
  }
}

void FrozenReference::score(std::vector<RolloutGroup>& groups) {
  std::vector<engine::GroupState> state = s_.engine->state();
  std::vector<at::Tensor> trained(state.size());
  for (size_t g = 0; g < state.size(); ++g) {  // plan::reference_bytes() counts both copies
    if (!weights_[g].defined()) continue;
    trained[g] = state[g].master.clone();
    state[g].master.copy_(weights_[g]);
  }
  s_.engine->refresh_weights();
  score_answers(s_, groups, &RolloutAnswer::reference);
  for (size_t g = 0; g < state.size(); ++g)
    if (trained[g].defined()) state[g].master.copy_(trained[g]);
  s_.engine->refresh_weights();
}

namespace {

constexpr int64_t kNoDocument = -1;

// What lies between documents is a document of its own.
void close_gaps(std::vector<int64_t>& starts, int64_t sequence) {
  for (int64_t row = 0; row < std::ssize(starts); row += sequence) {
    int64_t gap = 0;
    for (int64_t i = 0; i < sequence; ++i) {
      int64_t& start = starts[static_cast<size_t>(row + i)];
      if (start == kNoDocument)
        start = gap;
      else
        gap = i + 1;
    }
  }
}

}  // namespace

AnswerRows::AnswerRows(const Session& session, const std::vector<RolloutGroup>& groups, const GroupRange& of_step)
    : s_(session),
      groups_(groups),
      placed_(place_answers(session.settings.grpo, groups, of_step, session.engine->plan().request.shape.sequence)) {
  for (const PlacedAnswer& p : placed_) num_rows_ = std::max(num_rows_, p.row + 1);
}

void AnswerRows::load(const engine::BatchTensors& to, int64_t first, bool weighs) const {
  const plan::StepRequest& r = s_.engine->plan().request;
  const int64_t sequence = r.shape.sequence, micro = r.shape.micro_batch;
  data::BatchRows rows(micro, sequence);
  rows.clear(0, sequence);
  std::ranges::fill(rows.document_starts, kNoDocument);
  std::vector<std::vector<double>> inputs(weighs ? model::PolicyInput::end : 0,
                                          std::vector<double>(rows.inputs.size(), 0));
  for (const PlacedAnswer& p : placed_) {
    if (p.row < first || p.row >= first + micro) continue;
    const RolloutGroup& group = groups_[static_cast<size_t>(p.group)];
    const RolloutAnswer& answer = group.answers[static_cast<size_t>(p.answer)];
    const auto row = static_cast<size_t>((p.row - first) * sequence);
    std::vector<int64_t> tokens = group.tokens;
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const size_t at = row + static_cast<size_t>(p.first) + i;
      rows.inputs[at] = tokens[i];
      rows.document_starts[at] = p.first;
      if (i + 1 < group.tokens.size()) continue;
      const size_t token = i + 1 - group.tokens.size();
      rows.targets[at] = answer.tokens[token];
      if (!weighs) continue;
      inputs[model::PolicyInput::weight][at] = answer.weight;
      // A weight of 0 or more goes through the bounds of the ratio as a factor of the advantage does.
      inputs[model::PolicyInput::advantage][at] =
          answer.advantage * (answer.correction.empty() ? 1 : answer.correction[token]);
      inputs[model::PolicyInput::old][at] = answer.logprobs[token];
      if (!answer.reference.empty()) inputs[model::PolicyInput::reference][at] = answer.reference[token];
    }
  }
  close_gaps(rows.document_starts, sequence);
  s_.load(to, rows.batch());
  if (!to.targets.defined() || !weighs) return;
  for (int row = model::PolicyInput::weight; row < model::PolicyInput::end; ++row) {
    const std::vector<double>& values = inputs[static_cast<size_t>(row)];
    s_.copy_local(to.targets[row], {reinterpret_cast<const int64_t*>(values.data()), values.size()});
  }
}

}  // namespace trireme::train
