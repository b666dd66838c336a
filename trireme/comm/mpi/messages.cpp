#include "trireme/comm/mpi/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kMostBetweenLooks = 1s;  // more has passed where the rank was suspended (Ctrl-Z), as its peers were

// MPI moves data only while it is called. So calls are frequent during a transfer, and rare in an idle wait.
void give_way(Clock::duration idle) {
  if (idle < 100us)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(idle < 1s ? 20us : 500us);
}
}  // namespace

MpiMessages::~MpiMessages() {
  if (num_left_ == 0) return;
  try {
    {
      std::lock_guard lock(mpi_mutex());
      for (size_t i = 0; i < requests_.size(); ++i)
        if (parts_[i].received && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
    test();
  } catch (const TransportFailure&) {
    // An earlier failure led here; that one is reported.
  }
  for (const at::Tensor& tensor : tensors_) keep_for_mpi(std::make_shared<at::Tensor>(tensor));
}

void MpiMessages::post(const at::Tensor& flat, int peer, int tag, bool receives) {
  tensors_.push_back(flat);
  const auto total = static_cast<int64_t>(flat.nbytes());
  auto* to = receives ? static_cast<std::byte*>(flat.mutable_data_ptr()) : nullptr;
  const auto* from = receives ? nullptr : static_cast<const std::byte*>(flat.const_data_ptr());
  for (int64_t begin = 0; begin < total; begin += kPartBytes) {
    const int bytes = static_cast<int>(std::min(kPartBytes, total - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    std::lock_guard lock(mpi_mutex());
    if (receives)
      check_mpi(MPI_Irecv(to + begin, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv", peer);
    else
      check_mpi(MPI_Isend(from + begin, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend", peer);
    requests_.push_back(request);
    parts_.push_back({peer, receives});
    ++num_left_;
  }
}

// Returns the number of messages that have completed since the last call.
int MpiMessages::test() {
  int count = 0;
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  std::lock_guard lock(mpi_mutex());
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
  if (count == MPI_UNDEFINED) count = 0;
  num_left_ -= count;
  if (code == MPI_ERR_IN_STATUS)
    for (int i = 0; i < count; ++i) check_mpi(statuses_[i].MPI_ERROR, "a message", parts_[done_[i]].peer);
  else
    check_mpi(code, "MPI_Testsome");
  return count;
}

void MpiMessages::wait(std::chrono::milliseconds timeout, const std::atomic<bool>& stopping) {
  auto last_look = Clock::now();
  Clock::duration idle{};
  while (num_left_ > 0) {
    const bool moved = test() > 0;
    const auto now = Clock::now();
    idle = moved ? Clock::duration{} : idle + std::min<Clock::duration>(now - last_look, kMostBetweenLooks);
    last_look = now;
    if (moved) continue;
    if (stopping) throw TransportFailure(-1, "the communicator is being destroyed");
    if (idle > timeout)
      throw TransportFailure(peer_at_fault(),
                             fmt::format("no message came or went for {} ms; see whether it has failed or is stuck (a "
                                         "rank that is slow needs a longer timeout)",
                                         timeout.count()));
    give_way(idle);
  }
}

std::vector<int> MpiMessages::missing() const {
  std::vector<int> peers;
  for (size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].received && requests_[i] != MPI_REQUEST_NULL &&
        std::ranges::find(peers, parts_[i].peer) == peers.end())
      peers.push_back(parts_[i].peer);
  return peers;
}

int MpiMessages::peer_at_fault() const {
  const std::vector<int> peers = missing();
  if (!peers.empty()) return peers.front();
  for (size_t i = 0; i < parts_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL) return parts_[i].peer;
  return -1;
}

}  // namespace trireme::comm
