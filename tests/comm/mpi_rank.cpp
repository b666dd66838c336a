// One rank that mpirun starts, for what comm_rank does not play. The first argument is the part:
//   groups    the suite's checks on groups that share ranks, with calls of several groups under way at once
//   absent    the last rank comes to a group when the others have given it up: all report
//   swapped   two groups of one set of ranks, made in different orders by the two halves: all report
//   lost      the last rank kills itself between two collectives: the others report
// Prints what a CommError says, and exits with 0 when all went as the part says.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>

#include "comm_checks.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"

namespace trireme::comm::testing {
namespace {

using namespace std::chrono_literals;

struct World {
  int rank, size;
};

CommunicatorPtr make(const World& world, const std::string& name, std::vector<int> global_ranks,
                     std::chrono::milliseconds timeout = 60s) {
  const auto mine = std::find(global_ranks.begin(), global_ranks.end(), world.rank);
  return make_communicator({.name = name,
                            .backend = "mpi",
                            .rank = static_cast<int>(mine - global_ranks.begin()),
                            .size = static_cast<int>(global_ranks.size()),
                            .global_ranks = global_ranks,
                            .timeout = timeout});
}

std::vector<int> everyone(const World& world) {
  std::vector<int> ranks(world.size);
  for (int k = 0; k < world.size; ++k) ranks[k] = k;
  return ranks;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void report(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommError& error) {
    fmt::print("global_rank={} peer={} text={}\n", error.details.global_rank, error.details.peer_rank, error.what());
    return;
  }
  throw std::runtime_error("nothing went wrong");
}

// Neighbours in pairs, and every second rank in a line that runs backwards.
void groups(const World& world) {
  const int first = world.rank / 2 * 2;
  const auto world_group = make(world, "world", everyone(world));
  const auto pair = make(world, "pair", {first, first + 1});
  const auto stride = make(world, "stride", {world.size - 2 + world.rank % 2, world.rank % 2});
  require(stride->rank() == (world.rank < 2 ? 1 : 0), "group ranks follow global_ranks");
  for (const auto& c : {world_group, pair, stride})
    for (const char* name : {"AllGather", "ReduceScatter", "AllReduce", "Messages", "FoldIsOrdered"})
      run_check(name, *c);
  // Pairs begin with one group, their mates with the other: neither call may hold up the other.
  at::Tensor a = at::full({300'000}, world.rank + 1, at::kFloat), b = a.clone();
  Communicator& one = world.rank % 2 == 0 ? *pair : *stride;
  Communicator& other = world.rank % 2 == 0 ? *stride : *pair;
  const auto first_work = one.all_reduce(a, a, {}), second_work = other.all_reduce(b, b, {});
  second_work->wait();
  first_work->wait();
  const float of_pair = 2 * first + 3, of_stride = 2 * (world.rank % 2) + world.size;
  require(at::equal(a, at::full_like(a, world.rank % 2 == 0 ? of_pair : of_stride)), "the first group's sum");
  require(at::equal(b, at::full_like(b, world.rank % 2 == 0 ? of_stride : of_pair)), "the second group's sum");
  // The name may be used again once its group is gone, as after a restart.
  for (int again = 0; again < 3; ++again) run_check("AllToAll", *make(world, "again", everyone(world)));
}

// All take part in a first group: who never uses MPI keeps the others in MPI_Init, which has no timeout.
void absent(const World& world) {
  const auto first = make(world, "world", everyone(world));
  if (world.rank + 1 == world.size) std::this_thread::sleep_for(3s);
  report([&] { make(world, "shard", everyone(world), 1s); });
}

void swapped(const World& world) {
  const bool early = world.rank < world.size / 2;
  report([&] {
    const auto a = make(world, early ? "a" : "b", everyone(world), 1s);
    const auto b = make(world, early ? "b" : "a", everyone(world), 1s);
  });
}

void lost(const World& world) {
  const auto c = make(world, "shard", everyone(world), 2s);
  at::Tensor t = at::ones({3 << 20}, at::kFloat);
  c->all_reduce(t, t, {})->wait();
  if (world.rank + 1 == world.size) raise(SIGKILL);
  report([&] { c->all_reduce(t, t, {})->wait(); });
  report([&] { c->barrier()->wait(); });
}

int variable(const char* name) { return std::atoi(std::getenv(name)); }

void play(const std::string& part) {
  const World world{variable("OMPI_COMM_WORLD_RANK"), variable("OMPI_COMM_WORLD_SIZE")};
  if (part == "groups") return groups(world);
  if (part == "absent") return absent(world);
  if (part == "swapped") return swapped(world);
  if (part == "lost") return lost(world);
  throw std::runtime_error("there is no part " + part);
}

}  // namespace
}  // namespace trireme::comm::testing

int main(int argc, char** argv) {
  try {
    trireme::comm::testing::play(argc > 1 ? argv[1] : "");
    return 0;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
