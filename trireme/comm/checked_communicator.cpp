#include "trireme/comm/checked_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/comm/flight_recorder.h"

namespace trireme::comm {
namespace {
const at::Tensor& payload(const Collective& c) {
  const bool larger_output = c.output.defined() && (!c.input.defined() || c.output.numel() >= c.input.numel());
  return larger_output ? c.output : c.input;
}

// `term_bytes`: bytes in which an element of a sum's input is sent.
int64_t logical_bytes(const Collective& c, int rank, int size, int64_t term_bytes) {
  const at::Tensor& t = c.input.defined() ? c.input : c.output;
  if (!t.defined() || size == 1) return 0;
  const auto element = static_cast<int64_t>(t.element_size());
  const auto others = [&](const std::vector<int64_t>& counts) {
    int64_t sum = 0;
    for (int k = 0; k < size; ++k) sum += k == rank ? 0 : counts[k];
    return sum;
  };
  switch (c.operation) {
    case Operation::all_gather:
      return others(c.counts) * element;
    case Operation::reduce_scatter:
      return others(c.counts) * term_bytes;
    case Operation::reduce:
      return t.numel() * term_bytes;
    case Operation::all_to_all:
      return others(c.input_counts) * element;
    case Operation::all_reduce:
      return t.numel() * (term_bytes + element) * (size - 1) / size;
    case Operation::gather:
      return rank == c.root ? 0 : t.numel() * element;
    case Operation::scatter:
      return rank == c.root ? others(c.counts) * element : 0;
    default:
      return t.numel() * element;
  }
}

class CompletedWork final : public Work {
 public:
  bool poll() override { return true; }
  void wait() override {}
};
}  // namespace

uint64_t hash_of(const Group& group) {
  std::string text = group.name;
  for (int k = 0; k < group.size; ++k) text += fmt::format("/{}", group.global_rank(k));
  return base::hash_text(text);
}

std::string name_rank(const Group& group, int k) {
  return fmt::format("rank {} (global rank {})", k, group.global_rank(k));
}

CheckedCommunicator::CheckedCommunicator(Group group)
    : Communicator(group.rank, group.size, group.name), group_(std::move(group)) {
  if (group_.size < 1 || group_.rank < 0 || group_.rank >= group_.size)
    throw UsageError(
        fmt::format("[comm] group '{}': rank {} is not in 0 to {}", group_.name, group_.rank, group_.size - 1));
  if (!group_.global_ranks.empty() && std::ssize(group_.global_ranks) != group_.size)
    throw UsageError(fmt::format("[comm] group '{}' has {} ranks but {} global ranks; name one for each", group_.name,
                                 group_.size, group_.global_ranks.size()));
  if (group_.recorder) group_.recorder->join(group_);
}

Call CheckedCommunicator::make_call(Collective collective) {
  check_call(collective, *this, device());
  Call call;
  if (group_.recorder) call.action = group_.recorder->action();
  call.sequence = is_message(collective.operation) ? num_messages_++ : num_collectives_++;
  call.collective = std::move(collective);
  TrafficCount& count = traffic_[static_cast<size_t>(call.collective.operation)];
  ++count.calls;
  count.bytes += logical_bytes(call.collective, rank(), size(), term_bytes(call.collective));
  if (group_.recorder) {
    const at::Tensor& t = payload(call.collective);
    const Operation operation = call.collective.operation;
    call.record_id = group_.recorder->start(
        group_.name, call.sequence, operation, t.defined() ? t.scalar_type() : at::ScalarType::Undefined,
        t.defined() ? t.numel() : 0, is_message(operation) ? call.collective.root : -1);
  }
  return call;
}

void CheckedCommunicator::recycle(Call&& call) {
  constexpr size_t kMaxSpare = 16;
  for (std::vector<int64_t>* counts : {&call.collective.counts, &call.collective.input_counts})
    if (counts->capacity() > 0 && spare_counts_.size() < kMaxSpare) spare_counts_.push_back(std::move(*counts));
}

std::vector<int64_t> CheckedCommunicator::copy(std::span<const int64_t> counts) {
  std::vector<int64_t> mine;
  if (!spare_counts_.empty()) {
    mine = std::move(spare_counts_.back());
    spare_counts_.pop_back();
  }
  mine.assign(counts.begin(), counts.end());
  return mine;
}

int64_t CheckedCommunicator::term_bytes(const Collective& call) const {
  return call.input.defined() ? static_cast<int64_t>(call.input.element_size()) : 0;
}

int64_t CheckedCommunicator::whole_pages(int64_t bytes) const {
  if (bytes < 0)
    throw UsageError(
        fmt::format("[comm] allocate_shared of group '{}': {} bytes; pass a size of 0 or more", name(), bytes));
  return std::max<int64_t>((bytes + 4095) / 4096 * 4096, 4096);
}

SharedBuffer CheckedCommunicator::allocate_private(int64_t bytes) {
  const int64_t rounded = whole_pages(bytes);
  mappings_.push_back(Mapping::create_private(
      rounded, rounded, fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group_, rank()))));
  void* mine = mappings_.back()->data();
  return {.mine = mine, .parts = {mine}, .host_shared = false};
}

void CheckedCommunicator::finished(const Call& call) const {
  if (group_.recorder) group_.recorder->finish(call.record_id, FlightRecorder::State::finished);
}

void CheckedCommunicator::failed(const Call& call) const {
  if (group_.recorder) group_.recorder->finish(call.record_id, FlightRecorder::State::failed);
}

WorkPtr CheckedCommunicator::all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) {
  return run({.operation = Operation::all_gather,
              .output = std::move(output),
              .input = std::move(input),
              .counts = copy(counts)});
}

WorkPtr CheckedCommunicator::reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                                            ReduceOptions options) {
  return run({.operation = Operation::reduce_scatter,
              .output = std::move(output),
              .input = std::move(input),
              .counts = copy(counts),
              .options = options});
}

WorkPtr CheckedCommunicator::all_reduce(at::Tensor output, at::Tensor input, ReduceOptions options) {
  return run(
      {.operation = Operation::all_reduce, .output = std::move(output), .input = std::move(input), .options = options});
}

WorkPtr CheckedCommunicator::broadcast(at::Tensor tensor, int root) {
  return run({.operation = Operation::broadcast, .output = tensor, .input = tensor, .root = root});
}

WorkPtr CheckedCommunicator::reduce(at::Tensor output, at::Tensor input, int root, ReduceOptions options) {
  return run({.operation = Operation::reduce,
              .output = rank() == root ? std::move(output) : at::Tensor(),
              .input = std::move(input),
              .root = root,
              .options = options});
}

WorkPtr CheckedCommunicator::gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) {
  return run({.operation = Operation::gather,
              .output = rank() == root ? std::move(output) : at::Tensor(),
              .input = std::move(input),
              .counts = copy(counts),
              .root = root});
}

WorkPtr CheckedCommunicator::scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) {
  return run({.operation = Operation::scatter,
              .output = std::move(output),
              .input = rank() == root ? std::move(input) : at::Tensor(),
              .counts = copy(counts),
              .root = root});
}

WorkPtr CheckedCommunicator::all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                                        std::span<const int64_t> input_counts) {
  return run({.operation = Operation::all_to_all,
              .output = std::move(output),
              .input = std::move(input),
              .counts = copy(output_counts),
              .input_counts = copy(input_counts)});
}

WorkPtr CheckedCommunicator::send(at::Tensor tensor, int peer) {
  return run({.operation = Operation::send, .input = std::move(tensor), .root = peer});
}

WorkPtr CheckedCommunicator::receive(at::Tensor tensor, int peer) {
  return run({.operation = Operation::receive, .output = std::move(tensor), .root = peer});
}

WorkPtr CheckedCommunicator::barrier() { return run({.operation = Operation::barrier}); }

WorkPtr completed_work() {
  static const WorkPtr work = std::make_shared<CompletedWork>();
  return work;
}

namespace {
[[noreturn]] void throw_error(const Group& group, std::string_view operation, const std::string& number,
                              const std::string& where, int peer, std::chrono::milliseconds elapsed,
                              const std::string& reason) {
  throw CommError(fmt::format("[comm] {}{} of group '{}'{} on {} failed after {} ms: {}", operation, number, group.name,
                              where, name_rank(group, group.rank), elapsed.count(), reason),
                  {.operation = std::string(operation),
                   .group = group.name,
                   .global_rank = group.global_rank(group.rank),
                   .peer_rank = peer < 0 ? -1 : group.global_rank(peer),
                   .elapsed = elapsed,
                   .timeout = group.longest_wait()});
}
}  // namespace

void throw_comm_error(const Group& group, const std::string& operation, int peer, std::chrono::milliseconds elapsed,
                      const std::string& reason) {
  throw_error(group, operation, "", "", peer, elapsed, reason);
}

void throw_comm_error(const Group& group, const Call& call, int peer, std::chrono::milliseconds elapsed,
                      const std::string& reason) {
  throw_error(group, to_string(call.collective.operation), fmt::format(" #{}", call.sequence),
              group.recorder ? group.recorder->where(call.record_id) : "", peer, elapsed, reason);
}

}  // namespace trireme::comm
