#include "trireme/generate/generator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/config/value.h"
#include "trireme/ops/checks.h"

namespace trireme::generate {
namespace {

using schedule::List;

constexpr int64_t kNoTarget = -100;  ///< of a row whose log-probability nobody wants
constexpr int64_t kRunsBetweenQuestions = 8;  ///< whether to give up, where several ranks have to agree
constexpr int64_t kLogitBytes = int64_t{32} << 20;  ///< of logits that a run computes, if texts are judged

/// The last page of the plan is for runs of ranks that have nothing to do.
Limits limits_of(const engine::Engine& engine, const Room& room) {
  const model::GenerationShape& shape = engine.plan().request.generation;
  const model::ModelConfig& config = engine.plan().model->config;
  const plan::StepRequest& request = engine.plan().request;
  const int64_t multiple = request.sequence_parallel ? request.size(comm::Axis::tp) : 1;
  return {.rows = shape.rows / multiple * multiple,
          .logit_rows = shape.logit_rows,
          .pages = shape.pages - 1,
          .page_tokens = ops::kAttentionPage,
          .texts = std::min(room.texts, shape.logit_rows),
          .context = room.bounds_context ? std::min(config.longest_generation(), room.cache_tokens)
                                         : config.longest_generation(),
          .positions = room.bounds_context ? std::string() : config.generation_positions(),
          .whole_prompts = config.is_free(),
          .rounds = request.size(comm::Axis::pp)};
}

/// How the copies of a sharded model depend on each other.
enum class Gathered { never, once, each_run };

Gathered gathered(const engine::Engine& engine) {
  const schedule::Schedule& s = engine.plan().lists[List::generate];
  if (engine.communicators().gather->size() == 1) return Gathered::never;
  for (const schedule::Action& a : s.actions)
    if (a.kind == schedule::ActionKind::unshard)
      return s.find(schedule::ValueKind::weights, a.owner, -1) < 0 ? Gathered::each_run : Gathered::once;
  return Gathered::never;
}

int64_t uniform_code(const model::ModelConfig& config, uint64_t seed, int64_t position) {
  const uint64_t mask = ~uint64_t{0} >> (64 - config.free.latent_bits);
  const auto code = static_cast<int64_t>(base::mix_key(seed, static_cast<uint64_t>(position)) & mask);
  return code == model::kDrawnCode ? code - 1 : code;
}

/// The numbers as a tensor, as long as they live. LibTorch's allocator is asked for nothing between two steps.
at::Tensor tensor_of(std::vector<int64_t>& numbers) {
  return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kLong);
}

struct Scores {
  std::vector<double> logp;
  std::vector<bool> is_likeliest;
};

/// The targets [M] under logits [M,V] at a temperature, as the head computes them.
Scores score_targets(const at::Tensor& logits, std::vector<int64_t>& targets, double temperature) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  std::vector<double> memory(static_cast<size_t>(3 * rows));
  const auto part = [&](int64_t i) {
    return at::from_blob(memory.data() + i * rows, {rows}, ops::statistics_dtype(logits.scalar_type()));
  };
  const at::Tensor most = part(0), sum = part(1), hit = part(2);
  ops::cross_entropy_shard_max(most, logits, 0, vocabulary, temperature);
  ops::cross_entropy_shard_sum(sum, hit, logits, most, tensor_of(targets), 0, vocabulary, {}, temperature);
  Scores out;
  const auto put = [&]<typename T>(const T* hits, const T* largest, const T* sums) {
    for (int64_t i = 0; i < rows; ++i) {
      out.logp.push_back(double(hits[i]) - double(largest[i]) - std::log(double(sums[i])));
      out.is_likeliest.push_back(hits[i] >= largest[i]);
    }
  };
  if (hit.scalar_type() == at::kDouble)
    put(hit.data_ptr<double>(), most.data_ptr<double>(), sum.data_ptr<double>());
  else
    put(hit.data_ptr<float>(), most.data_ptr<float>(), sum.data_ptr<float>());
  return out;
}

}  // namespace

model::GenerationShape shape_of(const model::ModelConfig& config, const Room& room, int64_t longest_prompt) {
  const int64_t pages = (room.cache_tokens + ops::kAttentionPage - 1) / ops::kAttentionPage,
                rows = std::max({room.tokens, room.texts, config.is_free() ? longest_prompt : 0}),
                judged = room.logit_rows > 0 ? room.logit_rows : kLogitBytes / (4 * config.vocab_size);
  return {.rows = rows,
          .logit_rows = std::max(room.texts, std::clamp<int64_t>(judged, 1, rows)),
          .pages = std::max<int64_t>(1, pages) + 1};
}

Generator::Generator(engine::Engine& engine, const Room& room)
    : engine_(engine),
      config_(engine.plan().model->config),
      scheduler_(limits_of(engine, room)),
      spare_page_(static_cast<int32_t>(scheduler_.limits().pages)),
      row_(static_cast<size_t>(config_.vocab_size)) {}

void Generator::check(const Request& request) const {
  for (const int64_t token : request.tokens)
    if (token < 0 || token >= config_.vocab_size)
      throw UsageError(fmt::format("token {} is outside the vocabulary of {}", token, config_.vocab_size));
  if (!request.judged_from) {
    if (const auto refusal = config::check_number("max_new_tokens", {.at_least = 1}, double(request.max_new_tokens)))
      throw UsageError(refusal->headline);
    generate::check(request.sampling);
  }
  scheduler_.check(request);
}

int64_t Generator::add(Request request) {
  check(request);
  return scheduler_.add(std::move(request));
}

bool Generator::someone_is_busy(bool busy) {
  double someone = busy ? 1 : 0;
  const at::Tensor flag = at::from_blob(&someone, {1}, at::kDouble);
  engine_.communicators().world->all_reduce(flag, flag, {.op = comm::ReduceOp::max})->wait();
  return someone > 0;
}

// A run for the others' sake.
void Generator::idle() {
  Rows rows;
  fill_up(rows, 1);
  run_rows(rows, {0});
}

// Adds rows that mean nothing until their number is a multiple of `multiple`. They lie on a page of their own.
void Generator::fill_up(Rows& rows, int64_t multiple) {
  const auto first = std::ssize(rows.ids),
             added = (multiple - first % multiple) % multiple + (first == 0 ? multiple : 0);
  if (added == 0) return;
  rows.tokens.sequences.push_back({.first_row = first, .tokens = added, .length = added, .pages = &spare_page_});
  rows.tokens.seeds.push_back(0);
  for (int64_t i = 0; i < added; ++i) {
    rows.ids.push_back(0);
    rows.positions.push_back(i);
    rows.places.push_back(spare_page_ * ops::kAttentionPage + i);
    if (config_.is_free()) rows.codes.push_back(0);
  }
}

at::Tensor Generator::run_rows(Rows& rows, std::vector<int64_t> logit_rows) {
  const plan::StepRequest& request = engine_.plan().request;
  if (request.sequence_parallel) fill_up(rows, request.size(comm::Axis::tp));
  rows.tokens.places = tensor_of(rows.places);
  rows.tokens.logit_rows = tensor_of(logit_rows);
  if (config_.is_free()) rows.tokens.codes = tensor_of(rows.codes);
  return engine_.generate(rows.ids, rows.positions, std::move(rows.tokens));
}

// The ranks of a copy write the same texts, so they leave them together.
bool Generator::copy_gives_up(const std::function<bool()>& gives_up) const {
  const engine::Communicators& comm = engine_.communicators();
  double one = gives_up() ? 1 : 0;
  const at::Tensor flag = at::from_blob(&one, {1}, at::kDouble);
  for (comm::Communicator* ranks : {comm.inside[comm::UnitAxis::tp].get(), comm.stages[schedule::kGradients].get()})
    if (ranks->size() > 1) ranks->all_reduce(flag, flag, {.op = comm::ReduceOp::max})->wait();
  return one > 0;
}

void Generator::leave_texts() {
  for (const Results& results : on_their_way_)
    if (results.arrival) results.arrival->wait();
  on_their_way_.clear();
  scheduler_.clear();
}

bool Generator::run(const std::function<bool()>& gives_up) {
  const plan::StepRequest& request = engine_.plan().request;
  const bool is_alone = request.size(comm::Axis::tp) * request.size(comm::Axis::pp) == 1;
  const int64_t runs_between = is_alone ? 1 : kRunsBetweenQuestions;
  bool is_whole = true;
  const Gathered kind = gathered(engine_);
  if (kind == Gathered::once && !std::exchange(started_, true)) idle();
  const auto copy = [this](int32_t from, int32_t to) { engine_.copy_page(from, to); };
  for (int64_t number = 1;; ++number) {
    if (gives_up && is_whole && number % runs_between == 0 && copy_gives_up(gives_up)) {
      is_whole = false;
      leave_texts();
    }
    std::vector<Part> parts = scheduler_.next(copy);
    const bool starts = !parts.empty(), busy = starts || !on_their_way_.empty();
    if (kind == Gathered::each_run ? !someone_is_busy(busy) : !busy) break;
    if (starts)
      start(std::move(parts));
    else if (kind == Gathered::each_run)
      idle();
    const auto under_way = std::ssize(on_their_way_);
    if (under_way > 0 && (!starts || under_way == scheduler_.limits().rounds)) finish_oldest();
  }
  check_invariant(scheduler_.idle(), "all texts have ended when none of them can go on");
  return is_whole;
}

// The code of a token behind a prompt is uniform, by seed and position.
int64_t Generator::code_of(const Text& text, int64_t position) const {
  const Codes& codes = text.request.codes;
  const bool is_prompt = text.drawn == 0 || position < text.prompt;
  if (is_prompt && !codes.of_prompt_too) return model::kDrawnCode;
  if (codes.fixed && !is_prompt) return *codes.fixed;
  return uniform_code(config_, codes.seed, position);
}

at::Tensor Generator::uniform_codes(uint64_t seed, std::span<const int64_t> positions) const {
  std::vector<int64_t> codes;
  for (const int64_t position : positions) codes.push_back(uniform_code(config_, seed, position));
  return at::tensor(codes, at::kLong);
}

// If the run fails, its texts end: nothing is known of them, and others may still be written.
void Generator::start(std::vector<Part> parts) {
  const size_t under_way = on_their_way_.size();
  try {
    compute(parts);
  } catch (...) {
    on_their_way_.resize(under_way);
    for (const Part& part : parts) scheduler_.finish(*part.text);
    throw;
  }
  on_their_way_.back().parts = std::move(parts);
}

void Generator::compute(const std::vector<Part>& parts) {
  std::vector<int64_t> wanted, targets;
  Rows rows;
  for (const Part& part : parts) {
    const Text& text = *part.text;
    const auto first = std::ssize(rows.ids);
    rows.tokens.sequences.push_back(
        {.first_row = first, .tokens = part.tokens, .length = text.cached + part.tokens, .pages = text.pages.data()});
    rows.tokens.seeds.push_back(text.request.codes.seed);
    for (int64_t i = text.cached; i < text.cached + part.tokens; ++i) {
      rows.ids.push_back(text.tokens[static_cast<size_t>(i)]);
      rows.positions.push_back(i);
      rows.places.push_back(text.pages[static_cast<size_t>(i / ops::kAttentionPage)] * ops::kAttentionPage +
                            i % ops::kAttentionPage);
      if (config_.is_free()) rows.codes.push_back(code_of(text, i));
    }
    for (int64_t i = part.first_wanted; i < part.tokens; ++i) {
      wanted.push_back(first + i);
      const auto next = static_cast<size_t>(text.cached + i + 1);
      targets.push_back(text.request.judged_from ? text.request.tokens[next] : kNoTarget);
    }
  }
  const at::Tensor logits = run_rows(rows, wanted.empty() ? std::vector<int64_t>{0} : wanted);

  Results& results = on_their_way_.emplace_back();
  const auto count = std::max<int64_t>(1, std::ssize(wanted));
  results.values.assign(static_cast<size_t>(2 * count), NAN);
  const at::Tensor drawn = at::from_blob(results.values.data(), {count, 2}, at::kDouble);
  if (logits.defined() && !wanted.empty()) draw_rows(parts, logits, targets, drawn);
  scheduler_.ran(parts);  // others may read what these have cached
  // The lane of gradients, which generation does not send: results wait behind no activations of the next run.
  comm::Communicator& stages = *engine_.communicators().stages[schedule::kGradients];
  if (stages.size() > 1)
    results.arrival =
        stages.broadcast(drawn, engine_.plan().stage_rank_of(static_cast<int>(engine_.plan().model->units.size()) - 1));
}

// An error in a request's functions ends its text alone: the others hear of what the run has found.
void Generator::finish_oldest() {
  const Results run = std::move(on_their_way_.front());
  on_their_way_.pop_front();
  if (run.arrival) run.arrival->wait();
  const double* results = run.values.data();
  std::exception_ptr error;
  for (const Part& part : run.parts) {
    if (!part.is_awaited) continue;
    try {
      finish_part(part, results);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
    results += 2 * (part.tokens - part.first_wanted);
  }
  if (error) std::rethrow_exception(error);
}

void Generator::finish_part(const Part& part, const double* results) {
  scheduler_.arrived(part);
  Text& text = *part.text;
  if (!text.request.judged_from) return take(text, static_cast<int64_t>(results[0]), results[1]);
  for (int64_t i = part.first_wanted; i < part.tokens; ++i, results += 2) {
    text.judged.push_back(results[1]);
    text.is_greedy = text.is_greedy && results[0] > 0;
  }
  finish_judged(text);
}

void Generator::draw_rows(const std::vector<Part>& parts, const at::Tensor& logits, std::vector<int64_t> targets,
                          const at::Tensor& drawn) {
  auto* const results = drawn.data_ptr<double>();
  std::vector<double> temperatures(targets.size(), 1);  // at which rows are scored
  std::vector<bool> is_judged(targets.size(), true);
  size_t row = 0;
  for (const Part& part : parts)
    for (int64_t i = part.first_wanted; i < part.tokens; ++i, ++row) {
      const Text& text = *part.text;
      const Request& r = text.request;
      if (r.judged_from) continue;
      is_judged[row] = false;
      const auto at = static_cast<int64_t>(row);
      if (logits.scalar_type() == at::kFloat)
        std::copy_n(logits.data_ptr<float>() + at * config_.vocab_size, config_.vocab_size, row_.data());
      else
        at::from_blob(row_.data(), {config_.vocab_size}, at::kFloat).copy_(logits[at]);
      penalize(row_, text.tokens, r.sampling.repetition_penalty);
      const int64_t token = draw(row_, r.sampling, {r.prompt, r.sample, text.drawn});
      results[2 * row] = static_cast<double>(token);
      if (r.logprobs) targets[row] = token;
      if (r.sampling.temperature > 0) temperatures[row] = r.sampling.temperature;
    }
  // The rows of one temperature at a time; there is seldom more than one.
  const auto is_wanted = [](int64_t target) { return target >= 0; };
  for (auto next = targets.begin(); (next = std::find_if(next, targets.end(), is_wanted)) != targets.end();) {
    const double temperature = temperatures[static_cast<size_t>(next - targets.begin())];
    std::vector<int64_t> some = targets;
    for (row = 0; row < some.size(); ++row) (temperatures[row] == temperature ? targets : some)[row] = kNoTarget;
    const Scores scores = score_targets(logits, some, temperature);
    for (row = 0; row < some.size(); ++row) {
      if (some[row] == kNoTarget) continue;
      results[2 * row + 1] = scores.logp[row];
      if (is_judged[row]) results[2 * row] = scores.is_likeliest[row] ? 1 : 0;
    }
  }
}

void Generator::take(Text& text, int64_t token, double logprob) {
  Request& r = text.request;
  const auto end = [&](Finish why) {
    const auto finished = std::move(r.finished);
    scheduler_.finish(text);
    if (finished) finished(why);
  };
  const auto goes_on = [&] {
    try {
      return !r.take || r.take(token, logprob);
    } catch (...) {
      scheduler_.finish(text);
      throw;
    }
  };
  if (std::ranges::find(r.stop_ids, token) != r.stop_ids.end()) {
    if (r.takes_stop) goes_on();
    return end(Finish::stop);
  }
  if (!goes_on()) return end(Finish::caller);
  if (text.drawn + 1 >= r.max_new_tokens) return end(Finish::length);
  if (std::ssize(text.tokens) >= scheduler_.limits().context && !r.slides) return end(Finish::context);
  scheduler_.append(text, token);
}

void Generator::finish_judged(Text& text) {
  if (text.cached < std::ssize(text.tokens)) return;
  const auto judged = std::move(text.request.judged);
  const auto finished = std::move(text.request.finished);
  const std::vector<double> logprobs = std::move(text.judged);
  const bool is_greedy = text.is_greedy;
  scheduler_.finish(text);
  if (judged) judged(logprobs, is_greedy);
  if (finished) finished(Finish::scored);
}

}  // namespace trireme::generate
