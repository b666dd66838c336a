#include "trireme/comm/gloo/exchange.h"

#include <cstring>
#include <optional>

namespace trireme::comm {
namespace {
constexpr int kCollectiveTag = gloo_tag(GlooStream::collective, 0);

// Follows the descriptor. A header that holds it has arrived, even if the transport failed right afterwards.
constexpr uint64_t kArrived = 0x7472'6972'656d'6521;
}  // namespace

GlooExchange::GlooExchange(GlooChannel& channel, bool bf16)
    : channel_(channel),
      bf16_(bf16),
      header_bytes_(descriptor_bytes(channel.group().size) + static_cast<int64_t>(sizeof kArrived) +
                    GlooPhase::kInlineBytes),
      headers_(2 * channel.group().size * header_bytes_) {}

void GlooExchange::run(const Call& call) {
  constexpr int64_t kWholeReduceBytes = 64 << 10;  // up to here an all_reduce is one phase, each rank folding the whole
  const Group& group = channel_.group();
  run_phases(plan_exchanges(call.collective, group.rank, group.size, {}, kWholeReduceBytes), call);
}

void GlooExchange::run_phases(const std::vector<Exchange>& phases, const Call& call) {
  std::optional<GlooPhase> first;
  if (!phases.empty()) first.emplace(channel_, phases[0], pool_, GlooPhase::Options{.inlines = true, .bf16 = bf16_});
  try {
    post_headers(call, first ? &*first : nullptr);
    if (first) first->start();
    channel_.wait(incoming_);
  } catch (const TransportFailure&) {
    // If a peer has made another call, that broke the transport. The mismatch is the better error.
    compare_headers();
    throw;
  }
  compare_headers();
  if (first) first->finish();
  channel_.wait(outgoing_);
  for (size_t i = 1; i < phases.size(); ++i) {
    GlooPhase next(channel_, phases[i], pool_, {.stream = GlooStream::second_phase});
    next.start();
    next.finish();
  }
}

void GlooExchange::post_headers(const Call& call, GlooPhase* first) {
  const Group& group = channel_.group();
  const int64_t description = descriptor_bytes(group.size), data = description + sizeof kArrived;
  std::byte* mine = header_from(group.rank);
  std::memset(mine, 0, description);
  write_descriptor(mine, call, call.sequence, {}, {}, group.size);
  std::memcpy(mine + description, &kArrived, sizeof kArrived);
  for (int k = 0; k < group.size; ++k)
    std::memset(header_from(k) + description, 0, k == group.rank ? 0 : sizeof kArrived);
  for (int k = 0; k < group.size; ++k) {
    if (k == group.rank) continue;
    incoming_.push_back(channel_.receive(header_from(k), header_bytes_, k, kCollectiveTag));
    if (first) first->read_inline(k, header_from(k) + data);
  }
  for (int k = 0; k < group.size; ++k) {
    if (k == group.rank) continue;
    std::memcpy(header_to(k), mine, data);
    const int64_t bytes = first ? first->write_inline(k, header_to(k) + data) : 0;
    outgoing_.push_back(channel_.send(header_to(k), data + bytes, k, kCollectiveTag));
  }
}

void GlooExchange::compare_headers() {
  const Group& group = channel_.group();
  std::vector<CallView> calls(group.size);
  calls[group.rank] = read_descriptor(header_from(group.rank), group.size);
  for (int k = 0; k < group.size; ++k) {
    uint64_t word;
    std::memcpy(&word, header_from(k) + descriptor_bytes(group.size), sizeof word);
    if (word == kArrived) calls[k] = read_descriptor(header_from(k), group.size);
  }
  if (const auto mismatch = find_mismatch(group, calls)) throw TransportFailure(mismatch->rank, mismatch->text);
}

}  // namespace trireme::comm
