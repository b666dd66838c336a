#include "support.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/comm/factory.h"
#include "trireme/comm/threads.h"

namespace trireme::engine {

model::ModelConfig small_llama() {
  model::ModelConfig c;
  c.vocab_size = 61;
  c.hidden_size = 48;
  c.intermediate_size = 80;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 16;
  c.max_position_embeddings = 16;
  return c;
}

model::ModelConfig small_gpt2() {
  model::ModelConfig c = small_llama();
  c.architecture = model::Architecture::gpt2;
  c.num_attention_heads = c.num_key_value_heads = 3;
  c.head_dim = 16;
  c.tie_word_embeddings = true;
  return c;
}

void fill_micro_batch(int64_t step, int64_t number, int64_t vocabulary, const at::Tensor& tokens,
                      const at::Tensor& targets) {
  uint64_t state = static_cast<uint64_t>(step) * 1000003 + static_cast<uint64_t>(number) * 7919 + 1;
  const auto draw = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocabulary));
  };
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const int64_t token = draw();
    tokens.data_ptr<int64_t>()[i] = token;
    targets.data_ptr<int64_t>()[i] = (7 * token + 3) % vocabulary;  // something to learn
  }
}

namespace {

at::Tensor assemble(const std::vector<std::vector<GroupState>>& ranks, at::Tensor GroupState::* member) {
  std::vector<at::Tensor> parts;
  for (size_t g = 0; g < ranks[0].size(); ++g) {
    const GroupState& first = ranks[0][g];
    at::Tensor flat = at::zeros({first.layout->numel()}, at::kDouble);
    for (const auto& rank : ranks) flat.narrow(0, rank[g].held.begin, rank[g].held.size()).copy_(rank[g].*member);
    for (const shard::FlatTensor& t : first.layout->tensors())
      parts.push_back(flat.narrow(0, t.offset, t.numel).clone());
  }
  return at::cat(parts);
}

}  // namespace

Outcome run(const Job& job) {
  at::set_num_threads(1);
  const model::Model model = model::build_model(job.model, job.precision);
  Outcome outcome;
  std::vector<std::vector<GroupState>> states(job.ranks);
  std::vector<std::unique_ptr<Engine>> engines(job.ranks);
  std::shared_ptr<comm::SharedSegment> segments[3];
  for (auto& s : segments)
    if (job.ranks > 1 && job.backend == "threads") s = comm::make_thread_segment(job.ranks);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(job.ranks);
  const auto train = [&](int rank) {
    at::set_num_threads(1);
    const char* names[] = {"world", "gather", "reduce"};
    comm::CommunicatorPtr comms[3];
    for (int i = 0; i < 3; ++i)
      comms[i] = comm::make_communicator({.name = names[i],
                                          .backend = job.ranks > 1 ? job.backend : "auto",
                                          .rank = rank,
                                          .size = job.ranks,
                                          .store = store,
                                          .timeout = std::chrono::seconds(60),
                                          .thread_segment = segments[i]});
    plan::StepRequest request{.precision = job.precision,
                              .shape = job.shape,
                              .rank = rank,
                              .num_ranks = job.ranks,
                              .shard = job.shard,
                              .num_micro_batches = job.global_micro_batches / job.ranks,
                              .recompute = job.recompute,
                              .prefetch = job.prefetch,
                              .reduce_lag = job.reduce_lag,
                              .guard_bytes = job.poison ? 192 : 0};
    auto engine = std::make_unique<Engine>(model, plan::make_step_plan(model, request),
                                           Communicators{.gather = comms[1], .reduce = comms[2], .world = comms[0]},
                                           EngineOptions{.poison = job.poison});
    engine->initialize(42);
    StepInputs inputs;
    inputs.max_norm = 0.5;
    inputs.supervised_tokens = job.global_micro_batches * job.shape.tokens();
    for (int step = 1; step <= job.steps; ++step) {
      inputs.optimizer = {.lr = 3e-3, .weight_decay = 0.1, .step = step};
      inputs.load_batch = [&](int mb, const at::Tensor& tokens, const at::Tensor& targets) {
        fill_micro_batch(step, mb * job.ranks + rank, job.model.vocab_size, tokens, targets);
      };
      const StepResult result = engine->train_step(inputs);
      if (rank == 0) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.gradient_norm);
      }
    }
    const double evaluation = engine->evaluate(
        [&](int, const at::Tensor& tokens, const at::Tensor& targets) {
          fill_micro_batch(100, 0, job.model.vocab_size, tokens, targets);  // the same on every rank
        },
        job.ranks * job.shape.tokens());
    if (rank == 0) outcome.evaluation = evaluation;
    states[rank] = engine->state();
    comms[0]->barrier()->wait();
    engines[rank] = std::move(engine);
  };
  const auto work = [&](int rank) {
    try {
      train(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < job.ranks; ++r) threads.emplace_back(work, r);
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  outcome.parameters = assemble(states, &GroupState::master);
  outcome.gradients = assemble(states, &GroupState::gradient);
  return outcome;
}

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace trireme::engine
