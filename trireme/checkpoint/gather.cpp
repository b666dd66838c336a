#include "trireme/checkpoint/gather.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trireme::checkpoint {
namespace {

at::Tensor numbers(std::span<const int64_t> values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const int64_t* begin = tensor.data_ptr<int64_t>();
  return {begin, begin + tensor.numel()};
}

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

std::vector<int64_t> all_gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                        const std::vector<int64_t>& counts) {
  at::Tensor output = at::empty({sum(counts)}, at::kLong);
  world.all_gather(output, numbers(mine), counts)->wait();
  return values_of(output);
}

std::vector<int64_t> gather_numbers(comm::Communicator& world, std::span<const int64_t> mine,
                                    const std::vector<int64_t>& counts) {
  at::Tensor output = world.rank() == 0 ? at::empty({sum(counts)}, at::kLong) : at::Tensor();
  world.gather(output, numbers(mine), counts, 0)->wait();
  return world.rank() == 0 ? values_of(output) : std::vector<int64_t>();
}

std::string broadcast_text(comm::Communicator& world, const std::string& text, int root) {
  at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  world.broadcast(length, root)->wait();
  at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (world.rank() == root) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  world.broadcast(bytes, root)->wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

void any_rank(comm::Communicator& world, std::vector<uint8_t>& flags) {
  const at::Tensor mine = at::from_blob(flags.data(), {static_cast<int64_t>(flags.size())}, at::kByte);
  at::Tensor all = at::empty_like(mine);
  world.all_reduce(all, mine, {.op = comm::ReduceOp::max})->wait();
  std::memcpy(flags.data(), all.const_data_ptr(), flags.size());
}

}  // namespace trireme::checkpoint
