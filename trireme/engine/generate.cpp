// The list of generation, run by run. A run may have fewer rows than the plan: its values begin where the planned ones
// do.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/engine/engine.h"

namespace trireme::engine {
namespace {

constexpr size_t kKeptRuns = 64;  ///< numbers of rows whose views are kept

}  // namespace

at::Tensor Engine::generate(std::span<const int64_t> ids, std::span<const int64_t> positions, model::NewTokens tokens) {
  const model::GenerationShape& most = plan_.request.generation;
  const auto rows = std::ssize(ids);
  const int64_t logit_rows = tokens.logit_rows.numel();
  if (rows < 1 || rows > most.rows || logit_rows < 1 || logit_rows > most.logit_rows || std::ssize(positions) != rows)
    throw ShapeError(
        fmt::format("generate: {} new tokens with {} positions and {} rows of logits; the plan has room for {} and {}",
                    rows, positions.size(), logit_rows, most.rows, most.logit_rows));
  new_tokens_ = std::move(tokens);
  const bool begins =
      std::ranges::any_of(new_tokens_.sequences, [](const ops::PagedSequence& s) { return s.length == s.tokens; });
  if (runs_.size() > kKeptRuns) runs_.clear();
  std::vector<Bound>& bound = runs_[{rows, logit_rows, begins}];
  if (bound.empty()) {
    Shapes shapes = planned_shapes(schedule::List::generate);
    shapes.batch.sequence = shapes.generation.rows = rows;
    shapes.generation.logit_rows = logit_rows;
    shapes.generation.begins = begins;
    bound = bind(shapes);
  }
  const LoadBatch load = [&](int, const BatchTensors& to) {
    if (to.inputs.defined()) std::ranges::copy(ids, to.inputs.data_ptr<int64_t>());
    std::ranges::copy(positions, to.position_ids.data_ptr<int64_t>());
    auto* start = to.document_starts.data_ptr<int64_t>();
    for (const ops::PagedSequence& s : new_tokens_.sequences) std::fill_n(start + s.first_row, s.tokens, s.first_row);
  };
  inputs_ = nullptr;
  given_up_ = false;
  const at::AutoDispatchBelowADInplaceOrView without_autograd;  // views need no bookkeeping here
  load_batch_ = &load;
  const schedule::Schedule& s = plan_.lists[schedule::List::generate];
  run(s, bound);
  const int last = static_cast<int>(model_.units.size()) - 1;
  for (size_t i = 0; i < s.actions.size(); ++i)
    if (schedule::is_computation(s.actions[i].kind) && s.actions[i].owner == last) return bound[i].unit.output;
  return {};
}

void Engine::copy_page(int64_t from, int64_t to) {
  for (const Bound& b : bound_[schedule::List::generate])
    for (const at::Tensor& pages : {b.unit.k_pages, b.unit.v_pages}) {
      if (!pages.defined()) continue;
      const int64_t page = pages.stride(0) * static_cast<int64_t>(pages.element_size());
      auto* const all = static_cast<char*>(pages.mutable_data_ptr());
      std::memcpy(all + to * page, all + from * page, static_cast<size_t>(page));
    }
}

}  // namespace trireme::engine
