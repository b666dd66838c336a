#include "parallel_harness.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "recording_communicator.h"
#include "trireme/comm/factory.h"
#include "trireme/model/embedding.h"
#include "trireme/model/head.h"
#include "trireme/model/initialize.h"

namespace trireme::model {
namespace {

at::Tensor poisoned(const TensorSpec& spec) {
  if (spec.shape.empty()) return {};
  const auto options = at::TensorOptions().dtype(spec.dtype);
  if (!c10::isFloatingType(spec.dtype)) return at::full(spec.shape, 77, options);
  return at::full(spec.shape, std::numeric_limits<double>::quiet_NaN(), options);
}

std::vector<at::Tensor> poisoned(const Slots& specs) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& s : specs) tensors.push_back(poisoned(s));
  return tensors;
}

std::string text(const std::vector<TrafficRow>& rows) {
  std::string all;
  for (const TrafficRow& r : rows)
    all += fmt::format("{} {} {} {}; ", r.axis == comm::UnitAxis::tp ? "tp" : "cp", to_string(r.operation),
                       comm::dtype_name(r.dtype), r.elements);
  return all;
}

// Joined parameters are one matrix: a unit's parameters lie in one buffer without gaps.
std::vector<at::Tensor> flat_tensors(const Unit& unit, at::ScalarType dtype) {
  int64_t total = 0, at = 0;
  for (const ParameterSpec& p : unit.parameters()) total += p.numel();
  const at::Tensor flat = poisoned({"flat", {total}, dtype});
  std::vector<at::Tensor> tensors;
  for (const ParameterSpec& p : unit.parameters()) {
    tensors.push_back(flat.narrow(0, at, p.numel()).view(p.shape));
    at += p.numel();
  }
  return tensors;
}

class Rank {
 public:
  Rank(const UnitRun& run, const Parallel& parallel, comm::CommunicatorPtr tp, comm::CommunicatorPtr cp)
      : run_(run), model_(build_model(run.config, run.precision, parallel, {}, run.adapters)) {
    result.parallel = parallel;
    if (run.pads_vocabulary) {
      const VocabularyPart part = vocabulary_part(run.config, parallel, /*on_gpu=*/true);
      model_.units.front() = std::make_unique<EmbeddingUnit>(run.config, parallel, part, run.adapters);
      model_.units.back() = std::make_unique<HeadUnit>(run.config, parallel, part, run.adapters);
    }
    if (tp) tp_ = std::make_unique<RecordingCommunicator>(tp, comm::UnitAxis::tp, calls_);
    if (cp) cp_ = std::make_unique<RecordingCommunicator>(cp, comm::UnitAxis::cp, calls_);
    for (const auto& unit : model_.units) {
      UnitTensors t;
      t.shape = run.shape;
      if (!run.adapters.empty()) t.random = {.active = true, .step_key = 99};
      t.ranks = {{tp_.get(), cp_.get()}};
      t.parameters = flat_tensors(*unit, run.precision.compute);
      t.gradients = flat_tensors(*unit, run.precision.gradient());
      t.accumulate.assign(t.gradients.size(), run.adds);
      for (const at::Tensor& g : t.gradients)
        if (run.adds) g.fill_(run.found);
      for (size_t i = 0; i < t.parameters.size(); ++i) {
        const ParameterSpec& p = unit->parameters()[i];
        std::vector<double> values(static_cast<size_t>(p.numel()));
        initialize_held(values.data(), p, 5, 0, p.numel());
        // Norms and biases too must matter: their plain beginnings hide mistakes.
        if (p.init.kind != Initializer::Kind::normal) {
          ParameterSpec uneven = p;
          uneven.init = {Initializer::Kind::normal, 0.3};
          std::vector<double> noise(values.size());
          initialize_held(noise.data(), uneven, 6, 0, p.numel());
          for (size_t k = 0; k < values.size(); ++k) values[k] += noise[k];
        }
        t.parameters[i].copy_(at::tensor(values, at::kDouble).view(p.shape));
      }
      tensors_.push_back(std::move(t));
    }
    load_tokens();
  }

  void train() {
    for (size_t u = 0; u < model_.units.size(); ++u) forward(u);
    for (size_t u = model_.units.size(); u-- > 0;) backward(u);
  }

  RankResult result;

 private:
  void load_tokens() {
    const std::vector<int64_t> positions = context_positions(model_.parallel, run_.shape.sequence);
    std::vector<int64_t> tokens, targets;
    for (int64_t b = 0; b < run_.shape.micro_batch; ++b)
      for (int64_t position : positions) {
        const int64_t token = (17 * position + 31 * b + position * position) % run_.config.vocab_size;
        tokens.push_back(token);
        targets.push_back(position % 5 == 3 ? -100 : (7 * token + 3) % run_.config.vocab_size);
      }
    for (UnitTensors& t : tensors_) {
      t.tokens = at::tensor(tokens, at::kLong);
      t.targets = at::tensor(targets, at::kLong);
      t.loss_sum = at::full({1}, 1e9, at::kDouble);
      t.loss_scale = 0.25;
    }
    EXPECT_EQ(model_.inputs(run_.shape).shape, std::vector<int64_t>{static_cast<int64_t>(tokens.size())});
    EXPECT_EQ(model_.targets(run_.shape).shape, std::vector<int64_t>{static_cast<int64_t>(targets.size())});
  }

  void forward(size_t u) {
    const Unit& unit = *model_.units[u];
    UnitTensors& t = tensors_[u];
    const UnitValues v = unit.values(run_.shape, run_.precision);
    if (u > 0) t.input = tensors_[u - 1].output;
    t.output = poisoned(v.output);
    t.saved = poisoned(v.saved);
    t.work = poisoned(v.forward_work);
    unit.forward(t);
    check_calls(unit, "forward", unit.traffic(run_.shape, run_.precision).forward);
    if (u + 1 == model_.units.size()) result.loss = t.loss_sum.item<double>();
  }

  void recompute(size_t u) {
    const Unit& unit = *model_.units[u];
    UnitTensors& t = tensors_[u];
    const UnitValues v = unit.values(run_.shape, run_.precision);
    if (v.saved.empty()) return;
    const std::vector<int> which = recompute_set(unit, run_.shape, run_.precision, run_.recompute_names);
    for (int i : which) t.saved[i] = poisoned(v.saved[i]);
    t.work = poisoned(v.forward_work);
    unit.recompute(t, which);
    check_calls(unit, "recompute", unit.traffic_of_recompute(run_.shape, run_.precision, which));
    if (run_.recompute_names.empty()) {
      EXPECT_EQ(text(unit.traffic_of_recompute(run_.shape, run_.precision, which)),
                text(unit.traffic(run_.shape, run_.precision).recompute));
    }
  }

  void backward(size_t u) {
    const Unit& unit = *model_.units[u];
    UnitTensors& t = tensors_[u];
    const UnitValues v = unit.values(run_.shape, run_.precision);
    const UnitTraffic traffic = unit.traffic(run_.shape, run_.precision);
    if (run_.recompute) recompute(u);
    const bool last = u + 1 == model_.units.size();
    if (last)
      t.d_boundary = at::full_like(t.input, std::numeric_limits<double>::quiet_NaN());
    else
      t.d_boundary = tensors_[u + 1].d_boundary.clone();
    if (u == 0 && run_.config.tie_word_embeddings) {
      t.gradients[0] = tensors_.back().gradients.back();
      t.accumulate[0] = true;
    }
    if (run_.split && unit.splits_backward()) {
      backward_in_halves(unit, t, v);
    } else {
      t.work = poisoned(v.backward_work);
      unit.backward(t);
      check_calls(unit, "backward", traffic.backward);
    }
    if (last) result.loss_in_backward = t.loss_sum.item<double>();
    if (u > 0) result.boundaries.insert(result.boundaries.begin(), t.d_boundary.clone());
    for (size_t i = 0; i < t.gradients.size(); ++i) {
      result.specs[unit.parameters()[i].name] = unit.parameters()[i];
      result.gradients[unit.parameters()[i].name] = t.gradients[i];
    }
  }

  void backward_in_halves(const Unit& unit, UnitTensors& t, const UnitValues& v) {
    t.deferred = poisoned(v.deferred);
    t.work = poisoned(v.input_work);
    const auto gradients = std::move(t.gradients);
    unit.backward_input(t);
    const UnitTraffic traffic = unit.traffic(run_.shape, run_.precision);
    check_calls(unit, "backward_input", traffic.backward_input);
    // The other half stands alone: nothing else is there any more.
    UnitTensors rest;
    rest.shape = t.shape;
    rest.ranks = t.ranks;
    rest.deferred = t.deferred;
    rest.saved.resize(v.saved.size());
    for (int i : v.saved_for_weight) rest.saved[i] = t.saved[i];
    rest.work = poisoned(v.weight_work);
    rest.gradients = gradients;
    rest.accumulate = t.accumulate;
    unit.backward_weight(rest);
    check_calls(unit, "backward_weight", traffic.backward_weight);
    t.gradients = gradients;
  }

  void check_calls(const Unit& unit, const char* what, const std::vector<TrafficRow>& declared) {
    if (text(calls_) != text(declared))
      result.traffic_errors.push_back(
          fmt::format("{} {}: said {} but declares {}", unit.name(), what, text(calls_), text(declared)));
    result.num_calls += static_cast<int64_t>(calls_.size());
    calls_.clear();
  }

  UnitRun run_;
  Model model_;
  std::vector<TrafficRow> calls_;
  std::unique_ptr<comm::Communicator> tp_, cp_;
  std::vector<UnitTensors> tensors_;
};

}  // namespace

std::vector<RankResult> run_units(const UnitRun& run) {
  const int size = run.tp * run.cp;
  std::vector<std::shared_ptr<comm::SharedSegment>> tp_segments, cp_segments;
  for (int i = 0; i < run.cp; ++i) tp_segments.push_back(run.tp > 1 ? comm::make_thread_segment(run.tp) : nullptr);
  for (int i = 0; i < run.tp; ++i) cp_segments.push_back(run.cp > 1 ? comm::make_thread_segment(run.cp) : nullptr);
  std::vector<RankResult> results(static_cast<size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  const auto join = [](const char* name, int rank, int ranks, const std::shared_ptr<comm::SharedSegment>& segment) {
    return ranks == 1 ? nullptr
                      : comm::make_communicator({.name = name,
                                                 .backend = "threads",
                                                 .rank = rank,
                                                 .size = ranks,
                                                 .timeout = std::chrono::seconds(20),
                                                 .thread_segment = segment});
  };
  const auto work = [&](int number) {
    try {
      at::set_num_threads(1);
      const Parallel parallel{.tp_rank = number % run.tp,
                              .tp_size = run.tp,
                              .sequence_parallel = run.sequence_parallel,
                              .cp_rank = number / run.tp,
                              .cp_size = run.cp,
                              .context = run.context};
      Rank rank(run, parallel, join("tp", parallel.tp_rank, run.tp, tp_segments[parallel.cp_rank]),
                join("cp", parallel.cp_rank, run.cp, cp_segments[parallel.tp_rank]));
      rank.train();
      results[number] = std::move(rank.result);
    } catch (...) {
      errors[number] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

std::map<std::string, at::Tensor> whole_gradients(const std::vector<RankResult>& ranks) {
  const Parallel& last = ranks.back().parallel;
  std::map<std::string, at::Tensor> whole;
  for (const auto& [name, first_spec] : ranks[0].specs) {
    at::Tensor sum = at::full(first_spec.whole_shape(), std::numeric_limits<double>::quiet_NaN(), at::kDouble);
    at::Tensor counted = at::zeros(first_spec.whole_shape(), at::kLong);
    auto* to = sum.data_ptr<double>();
    for (int tp = 0; tp < last.tp_size; ++tp) {
      const ParameterSpec& spec = ranks[tp].specs.at(name);
      at::Tensor local = at::zeros(spec.shape, at::kDouble);
      for (int cp = 0; cp < last.cp_size; ++cp) local += ranks[cp * last.tp_size + tp].gradients.at(name);
      const auto* from = local.data_ptr<double>();
      int64_t held = 0;
      for_each_run(spec, 0, spec.numel(), [&](int64_t at, int64_t full, int64_t count) {
        held += count;
        for (int64_t i = 0; i < count; ++i) {
          // Copies are bit for bit the same: they go on to the same optimiser.
          const bool is_copy = !std::isnan(to[full + i]);
          EXPECT_TRUE(!is_copy || to[full + i] == from[at + i]) << name << " on tp rank " << tp;
          to[full + i] = from[at + i];
          counted.data_ptr<int64_t>()[full + i] += spec.counted;
        }
      });
      if (held < spec.numel()) {  // a padded vocabulary
        EXPECT_EQ(
            local.narrow(0, held / spec.shape[1], spec.shape[0] - held / spec.shape[1]).abs().sum().item<double>(), 0);
      }
    }
    EXPECT_TRUE(counted.eq(1).all().item<bool>()) << name;
    whole[name] = sum;
  }
  return whole;
}

at::Tensor whole_boundary(const UnitRun& run, const std::vector<RankResult>& ranks, size_t number) {
  const int64_t width = run.config.hidden_size;
  at::Tensor whole = at::full({run.shape.micro_batch, run.shape.sequence, width},
                              std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  for (int cp = 0; cp < run.cp; ++cp) {
    at::Tensor rows = ranks[cp * run.tp].boundaries[number].to(at::kDouble);
    for (int tp = 1; tp < run.tp; ++tp) {
      const at::Tensor other = ranks[cp * run.tp + tp].boundaries[number].to(at::kDouble);
      EXPECT_TRUE(run.sequence_parallel || at::equal(rows, other));
      if (run.sequence_parallel) rows = at::cat({rows, other});
    }
    const std::vector<int64_t> positions = context_positions(ranks[cp * run.tp].parallel, run.shape.sequence);
    whole.index_copy_(1, at::tensor(positions, at::kLong),
                      rows.view({run.shape.micro_batch, static_cast<int64_t>(positions.size()), width}));
  }
  return whole;
}

double whole_loss(const std::vector<RankResult>& ranks) {
  const Parallel& last = ranks.back().parallel;
  double sum = 0;
  for (int cp = 0; cp < last.cp_size; ++cp) {
    const RankResult& first = ranks[cp * last.tp_size];
    for (int tp = 0; tp < last.tp_size; ++tp) {
      EXPECT_EQ(ranks[cp * last.tp_size + tp].loss, first.loss);
      EXPECT_EQ(ranks[cp * last.tp_size + tp].loss_in_backward, first.loss);
    }
    sum += first.loss;
  }
  return sum;
}

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace trireme::model
