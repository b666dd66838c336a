#include "trireme/comm/segment_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/fold.h"

namespace trireme::comm {

namespace {

// Up to here each rank of an all_reduce folds whole vectors: one phase instead of two.
constexpr int64_t kWholeReduceBytes = 16 << 10;

const std::byte* begin_of(const at::Tensor& t) { return static_cast<const std::byte*>(t.const_data_ptr()); }
std::byte* mutable_begin_of(const at::Tensor& t) { return static_cast<std::byte*>(t.mutable_data_ptr()); }

}  // namespace

SharedPlace SegmentContext::locate(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  const std::byte* begin = begin_of(tensor);
  for (size_t r = 0; r < regions.size(); ++r) {
    const std::byte* base = regions[r].parts[group.rank];
    if (begin >= base && begin + tensor.nbytes() <= base + regions[r].bytes)
      return {static_cast<int32_t>(r), begin - base};
  }
  return {};
}

void SegmentContext::fail(const Call& call, int peer, std::chrono::milliseconds elapsed, const std::string& reason) {
  const Operation operation = call.collective.operation;
  segment->abort(fmt::format("{} gave up in {} #{}: {}", name_rank(group, group.rank), to_string(operation),
                             call.sequence, reason));
  throw_comm_error(group, operation, call.sequence, peer, elapsed, reason);
}

void SegmentTask::set_done() {
  done_ = true;
  call_.collective = {.operation = call_.collective.operation};  // lets go of the tensors
}

bool CollectiveTask::publish() {
  if (published_) return true;
  SharedSegment& s = *context_.segment;
  const uint64_t sequence = call_.sequence;
  if (sequence >= SharedSegment::kCallRing)
    for (int k = 0; k < s.size(); ++k)
      if (s.rank(k).matched.load(std::memory_order_acquire) + SharedSegment::kCallRing <= sequence) return false;
  const Collective& c = call_.collective;
  write_descriptor(s.call(context_.group.rank, sequence), c, sequence, context_.locate(c.input),
                   context_.locate(c.output), s.size());
  context_.me().posted.store(sequence + 1, std::memory_order_release);
  s.ring_doorbell();
  return published_ = true;
}

bool CollectiveTask::all_posted() const {
  for (int k = 0; k < context_.segment->size(); ++k)
    if (context_.segment->rank(k).posted.load(std::memory_order_acquire) <= call_.sequence) return false;
  return true;
}

bool CollectiveTask::all_consumed(uint64_t rounds) const {
  for (int k = 0; k < context_.segment->size(); ++k)
    if (context_.segment->rank(k).consumed.load(std::memory_order_acquire) < rounds) return false;
  return true;
}

bool CollectiveTask::all_exposed(uint64_t rounds) const {
  for (int k = 0; k < context_.segment->size(); ++k)
    if (context_.segment->rank(k).exposed.load(std::memory_order_acquire) < rounds) return false;
  return true;
}

// Compares all ranks' calls with ours and plans the phases.
void CollectiveTask::match() {
  SharedSegment& s = *context_.segment;
  const int rank = context_.group.rank;
  std::vector<CallView> calls;
  for (int k = 0; k < s.size(); ++k) calls.push_back(read_descriptor(s.call(k, call_.sequence), s.size()));
  for (int k = 0; k < s.size(); ++k) {
    const std::string what = difference(calls[rank], rank, calls[k], k);
    if (what.empty()) continue;
    context_.fail(call_, k, {},
                  fmt::format("{}: {} calls {} but {} calls {}; all ranks must make the same calls in "
                              "the same order",
                              what, name_rank(context_.group, rank), describe(calls[rank]),
                              name_rank(context_.group, k), describe(calls[k])));
  }
  if (call_.collective.operation != Operation::barrier) {
    for (const CallView& c : calls) {
      inputs_.push_back(c.fixed->input_place);
      outputs_.push_back(c.fixed->output_place);
      input_elements_.push_back(c.fixed->input_elements);
      output_elements_.push_back(c.fixed->output_elements);
    }
    phases_ = plan_exchanges(call_.collective, rank, s.size(), calls, one_output() ? -1 : kWholeReduceBytes);
    begin_phase();
  }
  context_.me().matched.store(call_.sequence + 1, std::memory_order_release);
  if (call_.sequence % (SharedSegment::kCallRing / 4) == 0) s.ring_doorbell();  // for ranks a whole ring ahead
}

bool CollectiveTask::in_shared_memory(const Exchange& phase) const {
  if (phase.stage) return false;
  const bool from_input = phase.source == Exchange::Source::input;
  for (int k = 0; k < context_.segment->size(); ++k) {
    if (phase.only_giver >= 0 && k != phase.only_giver) continue;
    const int64_t elements = from_input ? input_elements_[k] : output_elements_[k];
    if (elements > 0 && (from_input ? inputs_ : outputs_)[k].region < 0) return false;
  }
  return true;
}

// All ranks' outputs are the very same memory.
bool CollectiveTask::one_output() const {
  const SharedPlace& mine = outputs_[context_.group.rank];
  if (mine.region < 0 || !context_.regions[mine.region].host_shared) return false;
  return std::ranges::all_of(outputs_,
                             [&](const SharedPlace& p) { return p.region == mine.region && p.offset == mine.offset; });
}

void CollectiveTask::begin_phase() {
  const Exchange& phase = phases_[phase_];
  path_ = phase.gathers_all && one_output() ? Path::one_copy : in_shared_memory(phase) ? Path::direct : Path::staged;
  exposed_ = consumed_ = 0;
  if (path_ == Path::staged) {
    const at::Tensor& any = phase.input.defined() ? phase.input : phase.output;
    // dtype of what is given: where this rank gives nothing, input and output have one dtype
    const int64_t element = any.defined() ? static_cast<int64_t>(any.element_size()) : 1;
    const int64_t per_taker = context_.segment->layout().slot_bytes / (phase.spread ? 1 : context_.segment->size());
    chunk_ = per_taker / 64 * 64 / element;
    num_rounds_ = (phase.max_count + chunk_ - 1) / chunk_;
  } else {
    chunk_ = phase.max_count;
    num_rounds_ = phase.max_count > 0 ? 1 : 0;
  }
  first_round_ = context_.next_round;
  context_.next_round += num_rounds_;
}

// Copies this rank's chunk of each slice into its staging slot; its own slice it reads where it lies.
void CollectiveTask::expose(int64_t round) {
  const Exchange& phase = phases_[phase_];
  if (!phase.input.defined()) return;
  const int64_t element = phase.input.element_size();
  std::byte* slot = context_.segment->slot(context_.group.rank, first_round_ + round);
  for (int k = 0; k < context_.segment->size(); ++k) {
    const Exchange::Give& give = phase.give[k];
    const int64_t n = std::min(chunk_, give.count - round * chunk_);
    if (k == context_.group.rank || n <= 0) continue;
    std::memcpy(slot + (phase.spread ? 0 : k * chunk_ * element),
                begin_of(phase.input) + (give.begin + round * chunk_) * element, n * element);
    if (phase.spread) return;
  }
}

const std::byte* CollectiveTask::source(int giver, int64_t round) const {
  const Exchange& phase = phases_[phase_];
  const int rank = context_.group.rank;
  if (giver == rank) {
    return begin_of(phase.input) + (phase.give[rank].begin + round * chunk_) * phase.input.element_size();
  }
  const int64_t element = phase.input.defined() ? phase.input.element_size() : phase.output.element_size();
  if (path_ == Path::staged)
    return context_.segment->slot(giver, first_round_ + round) + (phase.spread ? 0 : rank * chunk_ * element);
  const SharedPlace& place = (phase.source == Exchange::Source::input ? inputs_ : outputs_)[giver];
  return context_.regions[place.region].parts[giver] + place.offset + phase.take[giver].source_begin * element;
}

void CollectiveTask::consume(int64_t round) {
  const Exchange& phase = phases_[phase_];
  const int rank = context_.group.rank, size = context_.segment->size();
  if (path_ == Path::one_copy) return exchange_with_self(phase, rank);
  const int64_t done = round * chunk_;
  if (phase.fold) {
    const int64_t n = std::min(chunk_, phase.take[0].count - done);
    if (n <= 0) return;
    std::vector<const void*> sources(size);
    for (int k = 0; k < size; ++k) sources[k] = source(k, round);
    fold(mutable_begin_of(phase.output) + done * phase.output.element_size(), phase.output.scalar_type(), sources,
         phase.input.scalar_type(), n, phase.options);
    return;
  }
  for (int i = 0; i < size; ++i) {
    const int k = (rank + i) % size;  // not all at the same giver at once
    const Exchange::Take& take = phase.take[k];
    const int64_t n = std::min(chunk_, take.count - done);
    if (n <= 0) continue;
    const std::byte* from = source(k, round);
    std::byte* to = mutable_begin_of(phase.output) + (take.begin + done) * phase.output.element_size();
    if (from != to) std::memcpy(to, from, n * phase.output.element_size());
  }
}

bool CollectiveTask::run_rounds() {
  SharedSegment& s = *context_.segment;
  bool moved = false;
  // A round reuses the slot of the round kSlots before it, once everyone has read that.
  if (path_ == Path::staged && exposed_ < num_rounds_ &&
      (first_round_ + exposed_ < SharedSegment::kSlots ||
       all_consumed(first_round_ + exposed_ - SharedSegment::kSlots + 1))) {
    expose(exposed_++);
    context_.me().exposed.store(first_round_ + exposed_, std::memory_order_release);
    s.ring_doorbell();
    moved = true;
  }
  if (consumed_ < num_rounds_ &&
      (path_ != Path::staged || (exposed_ > consumed_ && all_exposed(first_round_ + consumed_ + 1)))) {
    consume(consumed_++);
    context_.me().consumed.store(first_round_ + consumed_, std::memory_order_release);
    s.ring_doorbell();
    moved = true;
  }
  return moved;
}

bool CollectiveTask::advance() {
  if (!published_ || done()) return false;
  bool moved = false;
  if (!matched_) {
    if (!all_posted()) return false;
    match();
    matched_ = moved = true;
  }
  while (phase_ < phases_.size()) {
    while (run_rounds()) moved = true;
    if (consumed_ < num_rounds_ || !all_consumed(first_round_ + num_rounds_)) return moved;
    if (++phase_ < phases_.size()) begin_phase();
    moved = true;
  }
  phases_.clear();
  set_done();
  return true;
}

std::vector<int> CollectiveTask::lagging() const {
  std::vector<int> ranks;
  for (int k = 0; k < context_.segment->size(); ++k) {
    const RankState& state = context_.segment->rank(k);
    if (k == context_.group.rank) continue;
    if (!published_) {
      if (state.matched.load() + SharedSegment::kCallRing <= call_.sequence) ranks.push_back(k);
    } else if (!matched_) {
      if (state.posted.load() <= call_.sequence) ranks.push_back(k);
    } else if (state.consumed.load() < first_round_ + num_rounds_) {
      ranks.push_back(k);
    }
  }
  return ranks;
}

std::string CollectiveTask::lacks(int peer) const {
  const uint64_t posted = context_.segment->rank(peer).posted.load(std::memory_order_acquire);
  if (posted > call_.sequence) return "has not finished its part";
  if (posted == 0) return "has not called it (it has made no call yet)";
  return fmt::format("has not called it (its last call was #{}, {})", posted - 1,
                     describe(read_descriptor(context_.segment->call(peer, posted - 1), context_.segment->size())));
}

}  // namespace trireme::comm
