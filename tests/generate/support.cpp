#include "tests/generate/support.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>

#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/ops/products/products.h"
namespace trireme::generate {

model::ModelConfig config_of(const Job& job) {
  model::ModelConfig config =
      job.model == "free" ? engine::small_free(3, model::Injection::table) : engine::small_model(job.model);
  config.max_position_embeddings = job.positions;
  config.quantized_head = job.head;
  if (job.head != base::BlockFormat::none) config.hidden_size = 64;  // rows of whole blocks
  return config;
}

namespace {

plan::StepRequest request_of(const Job& job, const model::ModelConfig& config, int rank) {
  return {.precision = job.precision,
          .shape = {1, 16},
          .trains = job.trains,
          .generation = shape_of(config, job.room, 140),
          .mesh = comm::ProcessMesh(job.mesh, job.ranks()),
          .rank = rank,
          .strategy = job.strategy};
}

}  // namespace

std::vector<Answer> run(const Job& job, const std::vector<Request>& requests) {
  std::vector<Answer> answers(requests.size());
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(job.ranks()));
  std::mutex mutex;
  const auto rank_body = [&](int rank) {
    at::set_num_threads(job.threads);
    const model::ModelConfig config = config_of(job);
    const plan::StepRequest request = request_of(job, config, rank);
    const model::Model model = model::build_model(config, job.precision, request.parallel(), {.trains = job.trains});
    plan::StepPlan plan = plan::make_step_plan(model, request);
    engine::Communicators communicators = engine::connect(
        plan, {.name = "", .backend = job.ranks() > 1 ? "threads" : "auto", .store = store}, job.poison);
    engine::Engine engine(model, std::move(plan), communicators, {.poison = job.poison});
    EXPECT_EQ(engine.allocated_bytes(), engine.plan().arena.total());
    engine.initialize(42);
    Generator generator(engine, job.room);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (static_cast<int>(i) % request.num_data_ranks() != request.data_index()) continue;
      Request r = requests[i];
      r.take = [&, i](int64_t token, double logprob) {
        const std::lock_guard lock(mutex);
        if (request.coordinate(comm::Axis::tp) != 0 || request.coordinate(comm::Axis::pp) != 0) return true;
        answers[i].tokens.push_back(token);
        answers[i].logprobs.push_back(logprob);
        return true;
      };
      r.judged = [&, i](const std::vector<double>& logprobs, bool) {
        const std::lock_guard lock(mutex);
        answers[i].logprobs = logprobs;
      };
      generator.add(std::move(r));
    }
    generator.run();
    communicators.world->barrier()->wait();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        rank_body(rank);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return answers;
}

testing::AssertionResult same(const std::vector<Answer>& have, const std::vector<Answer>& want,
                              const model::Precision& precision) {
  if (have == want) return testing::AssertionSuccess();
  if (!ops::gemm_kernels(precision.compute).empty()) return testing::AssertionFailure() << "answers differ";
  if (have.size() != want.size()) return testing::AssertionFailure() << have.size() << " answers";
  const double rounding = precision.compute == at::kBFloat16 ? 0.1 : 1e-4;
  size_t others = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<int64_t>&ours = have[i].tokens, &theirs = want[i].tokens;
    const auto [first, unused] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const bool equal = ours == theirs;
    others += !equal;
    const size_t count =
        equal ? std::min(have[i].logprobs.size(), want[i].logprobs.size()) : static_cast<size_t>(first - ours.begin());
    for (size_t k = 0; k < count; ++k)
      if (std::abs(have[i].logprobs[k] - want[i].logprobs[k]) > rounding)
        return testing::AssertionFailure() << "answer " << i << ", log-probability " << k << ": " << have[i].logprobs[k]
                                           << " and " << want[i].logprobs[k];
  }
  if (10 * others > want.size()) return testing::AssertionFailure() << others << " answers have other tokens";
  return testing::AssertionSuccess();
}

}  // namespace trireme::generate
