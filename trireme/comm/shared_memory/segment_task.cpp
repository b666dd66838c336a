#include "trireme/comm/shared_memory/segment_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/fold.h"

namespace trireme::comm {
namespace {
const std::byte* begin_of(const at::Tensor& t) {
  return t.defined() ? static_cast<const std::byte*>(t.const_data_ptr()) : nullptr;
}

bool same_place(const SharedPlace& a, const SharedPlace& b) { return a.region == b.region && a.offset == b.offset; }
}  // namespace

CollectiveTask::CollectiveTask(SegmentContext& context, Call call, std::weak_ptr<SegmentCommunicator> driver)
    : SegmentTask(context, std::move(call), std::move(driver)) {
  const size_t n = static_cast<size_t>(size());
  calls_.reserve(n);
  sources_.reserve(n);
  outputs_.reserve(n);
  fold_from_.reserve(n);
  fold_to_.reserve(n);
}

void CollectiveTask::reuse(Call& call) {
  restart(call);
  published_ = matched_ = taken_ = false;
  meets_ = false;
  num_called_ = 0;
  phase_ = 0;
}

bool CollectiveTask::has_all(std::atomic<uint64_t> RankState::* word, uint64_t value) const {
  for (int k = 0; k < size(); ++k)
    if ((context_.segment->rank(k).*word).load(std::memory_order_acquire) < value) return false;
  return true;
}

// The last rank to arrive wakes the waiting ranks.
void CollectiveTask::arrive(std::atomic<uint64_t> RankState::* word, uint64_t value) {
  (context_.me().*word).store(value, std::memory_order_seq_cst);
  if (context_.segment->has_sleepers() && has_all(word, value)) context_.segment->ring_doorbell();
}

// Plans the phases of calls that match.
void CollectiveTask::match() {
  if (const auto mismatch = compare_calls()) context_.fail(call_, mismatch->rank, {}, mismatch->text);
  static const std::vector<PlannedPhase> nothing;
  phases_ = call_.collective.operation == Operation::barrier
                ? &nothing
                : &context_.plans.find_or_plan(call_.collective, rank(), calls_, output_memory());
  if (!phases_->empty()) begin_phase();
}

OutputMemory CollectiveTask::output_memory() const {
  const SharedPlace mine = calls_[rank()].fixed->output_place();
  const auto reachable = [](const CallView& c) { return c.fixed->output_place().region >= 0; };
  if (!std::ranges::all_of(calls_, reachable)) return OutputMemory::own;
  const auto same = [&](const CallView& c) { return same_place(c.fixed->output_place(), mine); };
  return context_.regions[mine.region].host_shared && std::ranges::all_of(calls_, same) ? OutputMemory::one
                                                                                        : OutputMemory::reachable;
}

CollectiveTask::Path CollectiveTask::choose_path() const {
  if (tables().gathers_all && output_memory() == OutputMemory::one) return Path::one_copy;
  // If whole vectors are folded in place, a peer may still read what this rank overwrites. All ranks must decide this
  // alike.
  const auto in_place = [](const CallView& v) {
    return v.fixed->input_place().region >= 0 && same_place(v.fixed->input_place(), v.fixed->output_place());
  };
  const bool overwrites = call_.collective.operation == Operation::all_reduce && tables().fold && tables().spread &&
                          std::ranges::any_of(calls_, in_place);
  for (int k = 0; k < size(); ++k) {
    if (tables().only_giver >= 0 && k != tables().only_giver) continue;
    const CallDescriptor& d = *calls_[k].fixed;
    const SharedPlace place = planned_->reads_output ? d.output_place() : d.input_place();
    if ((planned_->reads_output ? d.output_elements : d.input_elements) <= 0 || place.region == kEager) continue;
    if (place.region < 0 || overwrites) return Path::staged;
  }
  return Path::direct;
}

void CollectiveTask::begin_phase() {
  planned_ = &(*phases_)[phase_];
  const Collective& c = call_.collective;
  in_size_ = static_cast<int64_t>(c10::elementSize(
      planned_->input_dtype != at::ScalarType::Undefined ? planned_->input_dtype : planned_->output_dtype));
  out_size_ = planned_->output_dtype != at::ScalarType::Undefined
                  ? static_cast<int64_t>(c10::elementSize(planned_->output_dtype))
                  : in_size_;
  const at::Tensor& read = planned_->reads_output ? c.output : c.input;
  input_ = begin_of(read) ? begin_of(read) + planned_->input_begin : nullptr;
  path_ = choose_path();
  exposed_ = consumed_ = 0;
  const bool last = phase_ + 1 == phases_->size();
  const auto in_place = [&](const CallView& v) {
    const SharedPlace place = planned_->reads_output ? v.fixed->output_place() : v.fixed->input_place();
    return place.region >= 0;
  };
  const bool shared_result = path_ == Path::one_copy || planned_->pushes;
  counted_ = path_ == Path::staged || shared_result || !last || std::ranges::any_of(calls_, in_place);
  waits_for_all_ = shared_result || !last || (path_ == Path::direct && in_place(calls_[rank()]));
  if (path_ == Path::staged) {
    const int64_t per_taker = context_.segment->layout().slot_bytes / (tables().spread ? 1 : size());
    chunk_ = per_taker / 64 * 64 / in_size_;
    num_rounds_ = (tables().max_count + chunk_ - 1) / chunk_;
  } else {
    chunk_ = tables().max_count;
    num_rounds_ = tables().max_count > 0 ? 1 : 0;
  }
  first_round_ = context_.next_round;
  if (counted_) context_.next_round += num_rounds_;
  find_targets();
  if (path_ == Path::direct) find_sources();
}

void CollectiveTask::find_sources() {
  sources_.assign(size(), nullptr);
  for (int k = 0; k < size(); ++k) {
    const CallDescriptor& d = *calls_[k].fixed;
    const SharedPlace place = planned_->reads_output ? d.output_place() : d.input_place();
    if (k == rank() || tables().take[k].count == 0) continue;
    const std::byte* tensor = place.region == kEager ? context_.segment->eager_slot(k, call_.sequence)
                              : place.region >= 0    ? context_.regions[place.region].parts[k] + place.offset
                                                     : nullptr;
    sources_[k] = tensor + tables().take[k].source_begin * in_size_;
  }
}

void CollectiveTask::find_targets() {
  outputs_.clear();
  const at::Tensor& output = call_.collective.output;
  if (!output.defined()) return;
  std::byte* mine = static_cast<std::byte*>(output.mutable_data_ptr()) + planned_->output_begin;
  outputs_.push_back(mine);
  streams_ = static_cast<int64_t>(output.nbytes()) > context_.cache_bytes || path_ == Path::one_copy;
  if (!planned_->pushes) return;
  for (int i = 1; i < size(); ++i) {
    const int k = (rank() + i) % size();
    const SharedPlace place = calls_[k].fixed->output_place();
    std::byte* theirs = context_.regions[place.region].parts[k] + place.offset;
    if (theirs != mine) outputs_.push_back(theirs);
  }
}

// Copies this rank's chunk of each slice into its staging slot; its own slice is read in place.
void CollectiveTask::expose(int64_t round) {
  if (!input_) return;
  std::byte* slot = context_.segment->slot(rank(), first_round_ + round);
  for (int k = 0; k < size(); ++k) {
    const Exchange::Give& give = tables().give[k];
    const int64_t n = std::min(chunk_, give.count - round * chunk_);
    if (k == rank() || n <= 0) continue;
    copy_for_peer(slot + (tables().spread ? 0 : k * chunk_ * in_size_),
                  input_ + (give.begin + round * chunk_) * in_size_, n * in_size_);
    if (tables().spread) return;
  }
}

const std::byte* CollectiveTask::source(int giver, int64_t round) const {
  if (giver == rank()) return input_ + (tables().give[giver].begin + round * chunk_) * in_size_;
  if (path_ == Path::staged)
    return context_.segment->slot(giver, first_round_ + round) + (tables().spread ? 0 : rank() * chunk_ * in_size_);
  return sources_[giver];
}

void CollectiveTask::fold_sources(int64_t done, int64_t n) {
  const int64_t at = (tables().take[0].begin + done) * out_size_;
  fold_to_.clear();
  for (std::byte* output : outputs_) fold_to_.push_back(output + at);
  // In place, this core has just read the lines; if the tensor exceeds the cache, no other core holds them.
  const bool lines_are_here = streams_ && input_ == outputs_[0];
  if (planned_->pushes)
    fold_to_all(fold_to_, planned_->output_dtype, fold_from_, planned_->input_dtype, n, tables().options,
                lines_are_here ? Stores::plain : Stores::streaming);
  else
    fold(fold_to_[0], planned_->output_dtype, fold_from_, planned_->input_dtype, n, tables().options);
}

void CollectiveTask::copy(std::byte* to, const std::byte* from, int64_t bytes) const {
  if (from == to) return;
  if (streams_)
    stream_copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

void CollectiveTask::consume(int64_t round) {
  const int64_t done = round * chunk_;
  if (tables().fold) {
    const int64_t n = std::min(chunk_, tables().take[0].count - done);
    if (n <= 0) return;
    fold_from_.resize(size());
    for (int k = 0; k < size(); ++k) fold_from_[k] = source(k, round);
    return fold_sources(done, n);
  }
  for (int i = 0; i < size(); ++i) {
    const int k = (rank() + i) % size();  // so that ranks read from different givers at a time
    const Exchange::Take& take = tables().take[k];
    const int64_t n = std::min(chunk_, take.count - done);
    if (n > 0) copy(outputs_[0] + (take.begin + done) * out_size_, source(k, round), n * out_size_);
    if (path_ == Path::one_copy) return;  // peers write their own slices
  }
}

bool CollectiveTask::run_rounds() {
  bool moved = false;
  // A round reuses the slot of the round kSlots before it, once all ranks have read that one.
  if (path_ == Path::staged && exposed_ < num_rounds_ &&
      (first_round_ + exposed_ < SharedSegment::kSlots ||
       has_all(&RankState::consumed, first_round_ + exposed_ - SharedSegment::kSlots + 1))) {
    expose(exposed_++);
    arrive(&RankState::exposed, first_round_ + exposed_);
    moved = true;
  }
  if (consumed_ < num_rounds_ &&
      (path_ != Path::staged || (exposed_ > consumed_ && has_all(&RankState::exposed, first_round_ + consumed_ + 1)))) {
    consume(consumed_++);
    if (counted_) arrive(&RankState::consumed, first_round_ + consumed_);
    moved = true;
  }
  return moved;
}

// Tells the peers that this rank no longer needs their descriptors and eager slots.
void CollectiveTask::take() {
  if (taken_) return;
  taken_ = true;
  context_.me().taken.store(call_.sequence + 1, std::memory_order_release);
  // Wakes ranks that are a whole ring ahead. It rings only now and then: a missed bell costs them one short sleep.
  if (call_.sequence % (SharedSegment::kCallRing / 4) == 0) context_.segment->ring_if_sleepers();
}

bool CollectiveTask::advance() {
  if (!published_ || done()) return false;
  if (meets_) return meet();
  bool moved = false;
  if (!matched_) {
    if (!all_have_called()) return false;
    match();
    matched_ = moved = true;
  }
  while (phase_ < phases_->size()) {
    while (run_rounds()) moved = true;
    if (consumed_ < num_rounds_) return moved;
    if (phase_ + 1 == phases_->size()) take();
    if (waits_for_all_ && !has_all(&RankState::consumed, first_round_ + num_rounds_)) return moved;
    if (++phase_ < phases_->size()) begin_phase();
    moved = true;
  }
  take();
  set_done();
  return true;
}

bool CollectiveTask::waits_for(int peer) const {
  const RankState& state = context_.segment->rank(peer);
  if (peer == rank()) return false;
  if (!published_) return state.taken.load() + SharedSegment::kCallRing <= call_.sequence;
  if (!matched_) return state.posted.load() <= call_.sequence;
  return state.consumed.load() < first_round_ + num_rounds_;
}

std::string CollectiveTask::lacks(int peer) const {
  const uint64_t posted = context_.segment->rank(peer).posted.load(std::memory_order_acquire);
  if (posted > call_.sequence) return "has not finished its part";
  if (posted == 0) return "has not called it (it has made no call yet)";
  return fmt::format("has not called it (its last call was #{}, {})", posted - 1,
                     describe(read_descriptor(context_.segment->call(peer, posted - 1), context_.segment->size())));
}

}  // namespace trireme::comm
