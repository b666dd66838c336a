// CPU tensors between ranks that mpirun started: the system's MPI as a transport, in its own library (mpi/loader.h).
// Only MPI's messages are used. Its reductions have no bf16, promise no order of the fold and cannot add to an fp32
// output. Each collective is a direct exchange of slices (exchange.h), and sums are folded here in rank order. So the
// bits are those of the other backends.
//
// Calls run on lanes, as over gloo: MPI moves data only while it is called, and the caller has other work.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/comm/fold.h"
#include "trireme/comm/lane_communicator.h"
#include "trireme/comm/mpi/loader.h"
#include "trireme/comm/mpi/messages.h"
#include "trireme/comm/tensor_exchange.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Messages of one pair and tag arrive in the order sent; collectives and messages each keep their own order.
constexpr int kCollectiveTag = 0, kMessageTag = 1;

class MpiCommunicator final : public LaneCommunicator {
 public:
  MpiCommunicator(Group group, MPI_Comm comm) : LaneCommunicator(std::move(group)), comm_(comm) {}

  ~MpiCommunicator() override {
    stopping_ = true;
    end_lanes();
    if (!is_broken()) {
      std::lock_guard lock(mpi_mutex());
      MPI_Comm_free(&comm_);
      return;
    }
    // MPI may still receive messages into this memory.
    for (auto& mapping : mappings_) keep_for_mpi(std::move(mapping));
  }

  std::string backend() const override { return "mpi"; }

 protected:
  void gave_up() override { abandon_mpi(); }

 private:
  // MPI's own errors do not name the peer.
  template <class Post>
  void exchange(Post&& post) {
    try {
      MpiMessages messages(comm_);
      post(messages);
      messages.wait(group().longest_wait(), stopping_);
    } catch (const TransportFailure& failure) {
      const std::string who = failure.peer < 0 ? "MPI" : name_rank(group(), failure.peer);
      throw TransportFailure(failure.peer, fmt::format("{}: {}", who, failure.what()));
    }
  }

  // Descriptors are exchanged first. So calls that differ give an error that names both, instead of wrong bytes.
  void compare_calls(const Call& call) {
    const int64_t bytes = descriptor_bytes(size());
    const at::Tensor all = at::zeros({size(), bytes}, at::kByte);
    auto* base = static_cast<std::byte*>(all.mutable_data_ptr());
    write_descriptor(base + rank() * bytes, call, call.sequence, {}, {}, size());
    exchange([&](MpiMessages& messages) {
      for (int k = 0; k < size(); ++k)
        if (k != rank()) messages.receive(all[k], k, kCollectiveTag);
      for (int k = 0; k < size(); ++k)
        if (k != rank()) messages.send(all[rank()], k, kCollectiveTag);
    });
    std::vector<CallView> calls;
    for (int k = 0; k < size(); ++k) calls.push_back(read_descriptor(base + k * bytes, size()));
    if (const auto mismatch = find_mismatch(group(), calls)) throw TransportFailure(mismatch->rank, mismatch->text);
  }

  void run_collective(const Call& call) override {
    compare_calls(call);
    constexpr int64_t kWholeReduceBytes = 64 << 10;
    for (const Exchange& phase : plan_exchanges(call.collective, rank(), size(), {}, kWholeReduceBytes))
      run_phase(phase);
  }

  void run_phase(const Exchange& phase) {
    std::vector<at::Tensor> received(size());
    // exchange() waits for the sends too, because the fold may overwrite the input.
    exchange([&](MpiMessages& messages) {
      for (int i = 1; i < size(); ++i) {
        const int k = (rank() + size() - i) % size();
        const Exchange::Take& take = phase.take[k];
        if (take.count == 0) continue;
        received[k] = phase.fold ? staging(k, take.count, phase.input.scalar_type())
                                 : slice_of(phase.output, take.begin, take.count);
        messages.receive(received[k], k, kCollectiveTag);
      }
      for (int i = 1; i < size(); ++i) {
        const int k = (rank() + i) % size();
        const Exchange::Give& give = phase.give[k];
        if (give.count > 0) messages.send(slice_of(phase.input, give.begin, give.count), k, kCollectiveTag);
      }
      if (!phase.fold) exchange_with_self(phase, rank());
    });
    if (phase.fold && phase.take[rank()].count > 0) fold_phase(phase, received);
  }

  // Memory for the slices of a fold. It is kept, because new pages cost more than the transfer.
  at::Tensor staging(int k, int64_t count, at::ScalarType dtype) {
    staging_.resize(size());
    const int64_t bytes = count * static_cast<int64_t>(c10::elementSize(dtype));
    if (!staging_[k].defined() || staging_[k].numel() < bytes) staging_[k] = at::empty({bytes}, at::kByte);
    return staging_[k].narrow(0, 0, bytes).view(dtype);
  }

  void fold_phase(const Exchange& phase, const std::vector<at::Tensor>& received) {
    std::vector<const void*> sources(size());
    for (int k = 0; k < size(); ++k)
      sources[k] = k == rank() ? static_cast<const std::byte*>(phase.input.const_data_ptr()) +
                                     phase.give[k].begin * phase.input.element_size()
                               : received[k].const_data_ptr();
    fold(phase.output.mutable_data_ptr(), phase.output.scalar_type(), sources, phase.input.scalar_type(),
         phase.take[rank()].count, phase.options);
  }

  void transfer(const at::Tensor& flat, int peer, bool sends) {
    exchange([&](MpiMessages& messages) {
      sends ? messages.send(flat, peer, kMessageTag) : messages.receive(flat, peer, kMessageTag);
    });
  }

  // A header with size and dtype, then the payload.
  void run_message(const Call& call) override {
    const int peer = call.collective.root;
    const bool sends = call.collective.operation == Operation::send;
    const at::Tensor& tensor = sends ? call.collective.input : call.collective.output;
    const int64_t dtype = static_cast<int64_t>(tensor.scalar_type());
    const at::Tensor header = at::empty({2}, at::kLong);
    auto* words = header.mutable_data_ptr<int64_t>();
    words[0] = tensor.numel();
    words[1] = dtype;
    transfer(header, peer, sends);
    if (words[0] != tensor.numel() || words[1] != dtype)
      throw TransportFailure(
          peer, fmt::format("{} sends {}[{}] but {} receives {}[{}]; both must name the same size and dtype",
                            name_rank(group(), peer), dtype_name(static_cast<at::ScalarType>(words[1])), words[0],
                            name_rank(group(), rank()), dtype_name(tensor.scalar_type()), tensor.numel()));
    if (tensor.numel() > 0) transfer(tensor.view({-1}), peer, sends);
  }

  MPI_Comm comm_;
  std::atomic<bool> stopping_ = false;
  std::vector<at::Tensor> staging_;  // by giving rank; used by the lane of collectives
};

void check_ranks(const Group& group, const MpiWorld& world) {
  if (!group.global_ranks.empty() && std::ssize(group.global_ranks) != group.size)
    throw UsageError(fmt::format("[comm] group '{}' has {} ranks but {} global ranks; name one for each", group.name,
                                 group.size, group.global_ranks.size()));
  for (int k = 0; k < group.size; ++k)
    if (group.global_rank(k) < 0 || group.global_rank(k) >= world.size)
      throw UsageError(
          fmt::format("[comm] group '{}' of {} ranks: {} is not one of the {} ranks that mpirun started; start all of "
                      "them with mpirun -n",
                      group.name, group.size, name_rank(group, k), world.size));
  if (group.global_rank(group.rank) != world.rank)
    throw UsageError(
        fmt::format("[comm] group '{}': this process says it is {} but mpirun made it global rank {}; take the rank "
                    "from OMPI_COMM_WORLD_RANK",
                    group.name, name_rank(group, group.rank), world.rank));
}

std::vector<int> ranks_of(const Group& group) {
  std::vector<int> ranks(group.size);
  for (int k = 0; k < group.size; ++k) ranks[k] = group.global_rank(k);
  return ranks;
}

// MPI's tags go up to 32767 at least.
int group_tag(const Group& group) { return static_cast<int>(hash_of(group) % 32767); }

// Everybody greets everybody; returns when all have, within the timeout.
void greet(const Group& group) {
  const auto hash = static_cast<int64_t>(hash_of(group));
  const at::Tensor words = at::full({group.size}, hash, at::kLong);
  const std::atomic<bool> stopping = false;
  const auto start = Clock::now();
  MpiMessages messages(MPI_COMM_WORLD);
  for (int k = 0; k < group.size; ++k)
    if (k != group.rank) messages.receive(words[k], group.global_rank(k), group_tag(group));
  for (int k = 0; k < group.size; ++k)
    if (k != group.rank) messages.send(words[group.rank], group.global_rank(k), group_tag(group));
  try {
    messages.wait(group.timeout, stopping);
  } catch (const TransportFailure& failure) {
    const std::vector<int> missing = messages.missing();
    if (missing.empty()) throw;
    throw_comm_error(group, "connect", -1, elapsed_since(start),
                     fmt::format("global ranks {} have not joined: {}", missing, failure.what()));
  }
  for (int k = 0; k < group.size; ++k)
    if (words[k].item<int64_t>() != hash)
      throw_comm_error(group, "connect", k, elapsed_since(start),
                       fmt::format("{} makes another group at the same time; all ranks must make the same groups in "
                                   "the same order, each with a name of its own",
                                   name_rank(group, k)));
}

// MPI_Comm_create_group never returns if a rank does not come. So ranks greet each other first: once to see that all
// have come, and again to know that none has given up meanwhile.
MPI_Comm connect(const Group& group) {
  const std::vector<int> ranks = ranks_of(group);
  greet(group);
  greet(group);
  std::lock_guard lock(mpi_mutex());
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, group.size, ranks.data(), &members), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, group_tag(group), &comm), "MPI_Comm_create_group");
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return comm;
}

CommunicatorPtr make_connected(const Group& group) {
  check_ranks(group, mpi_world());
  const auto start = Clock::now();
  try {
    return std::make_shared<MpiCommunicator>(group, connect(group));
  } catch (const TransportFailure& failure) {
    abandon_mpi();
    throw_comm_error(group, "connect", -1, elapsed_since(start), failure.what());
  } catch (const CommError&) {
    abandon_mpi();
    throw;
  }
}
}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) trireme::comm::CommunicatorPtr trireme_make_mpi(
    const trireme::comm::Group& group) {
  return trireme::comm::make_connected(group);
}
