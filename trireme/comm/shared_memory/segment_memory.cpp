// Memory that the ranks of a segment share: which rank makes it, how peers map it, and on which NUMA node it is.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/comm/shared_memory/segment_communicator.h"

namespace trireme::comm {

// An all_gather of small records. Ranks that pass another extent get a mismatch.
void SegmentCommunicator::exchange_blobs(void* all, const void* mine, int64_t bytes_each, int64_t extent,
                                         bool host_shared) {
  at::Tensor in = at::empty({bytes_each}, at::kByte), out = at::empty({bytes_each * size()}, at::kByte);
  std::memcpy(in.mutable_data_ptr(), mine, bytes_each);
  Collective c{.operation = Operation::allocate_shared,
               .output = out,
               .input = in,
               .counts = std::vector<int64_t>(size(), bytes_each),
               .root = host_shared,
               .extent = extent};
  enqueue(make_call(std::move(c)))->wait();
  std::memcpy(all, out.const_data_ptr(), out.nbytes());
}

SharedBuffer SegmentCommunicator::allocate_shared(int64_t bytes, bool host_shared) {
  const int64_t rounded = whole_pages(bytes);
  SharedSegment& s = *context_.segment;
  const std::string what = fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group(), rank()));
  std::vector<std::shared_ptr<Mapping>> parts(size());
  MemoryTicket mine;
  if (!host_shared || rank() == 0) {
    try {
      parts[rank()] = s.offer(rounded, host_shared ? rounded : rounded * size(), what,
                              host_shared ? Mapping::Pages::later : Mapping::Pages::reserved, mine);
    } catch (const CommError& error) {
      std::strncpy(mine.refusal, error.what(), sizeof mine.refusal - 1);
    }
  }
  std::vector<MemoryTicket> tickets(size());
  exchange_blobs(tickets.data(), &mine, sizeof mine, bytes, host_shared);

  // The first refusal is every rank's error; the group stays usable.
  const auto refuse = [&](const char* text) {
    throw CommError(text,
                    {.operation = "allocate_shared", .group = name(), .global_rank = group().global_rank(rank())});
  };
  for (const MemoryTicket& t : tickets)
    if (t.refusal[0]) refuse(t.refusal);

  MemoryTicket opened;
  for (int k = 0; k < size(); ++k) {
    if (parts[k] || (host_shared && k != 0)) continue;
    std::string why_not;
    parts[k] = s.accept(tickets[k], why_not);
    if (!parts[k]) std::strncpy(opened.refusal, (what + ": " + why_not).c_str(), sizeof opened.refusal - 1);
  }
  // Each rank touches its part, or its slice of the one part, first, so that these pages are on its own NUMA node.
  const int64_t slice = host_shared ? (rounded / 4096 + size() - 1) / size() * 4096 : rounded;
  const int64_t begin = host_shared ? std::min(rounded, slice * rank()) : 0;
  if (!opened.refusal[0]) {
    const std::string why_not = parts[host_shared ? 0 : rank()]->touch(begin, std::min(slice, rounded - begin));
    if (!why_not.empty()) std::strncpy(opened.refusal, (what + ": " + why_not).c_str(), sizeof opened.refusal - 1);
  }
  exchange_blobs(tickets.data(), &opened, sizeof opened, bytes, host_shared);
  for (const MemoryTicket& t : tickets)
    if (t.refusal[0]) refuse(t.refusal);

  SegmentContext::Region region{{}, rounded, host_shared};
  SharedBuffer buffer{.host_shared = host_shared};
  for (int k = 0; k < size(); ++k) {
    void* data = (host_shared ? parts[0] : parts[k])->data();
    region.parts.push_back(static_cast<std::byte*>(data));
    buffer.parts.push_back(data);
  }
  buffer.mine = buffer.parts[rank()];
  // All peers have mapped it. Only the maker closes it, because thread ranks share the object.
  if (mine.bytes > 0) parts[rank()]->close_fd();
  std::ranges::copy_if(parts, std::back_inserter(mappings_), [](const auto& mapping) { return mapping != nullptr; });
  context_.regions.push_back(std::move(region));
  return buffer;
}

}  // namespace trireme::comm
