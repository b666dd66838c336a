// What every collective does, on every backend: each rank's numbers before and after. Last, the ring all-reduce, built
// from messages, step by step.
//
//     cmake -S examples/collectives -B build/collectives -DCMAKE_PREFIX_PATH=$HOME/trireme-installed   (see own_model)
//     cmake --build build/collectives
//     build/collectives/collectives                                                   4 ranks that are threads
//     trireme launch --nproc_per_node 4 -- build/collectives/collectives shm          4 processes; or gloo
//     LD_LIBRARY_PATH=$HOME/trireme-installed/lib mpirun -n 4 build/collectives/collectives mpi
//
// All print what expected.txt holds, but for the backend's name in the first line.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/settings/parse.h"
#include "trireme/train/failure.h"
#include "trireme/train/ranks.h"

namespace comm = trireme::comm;

namespace {

using Group = comm::CommunicatorPtr;

std::string text(const at::Tensor& t) {
  if (!t.defined()) return "-";
  std::string line = "[";
  for (int64_t i = 0; i < t.numel(); ++i) {
    char number[32];
    std::snprintf(number, sizeof number, i == 0 ? "%g" : " %g", double(t[i].item<float>()));
    line += number;
  }
  return line + "]";
}

// Everybody's line, printed by rank 0: two collectives at work.
void print_lines(const Group& group, const std::string& line) {
  const at::Tensor length = at::full({1}, int64_t(line.size()), at::kLong),
                   lengths = at::empty({group->size()}, at::kLong);
  group->all_gather(lengths, length, std::vector<int64_t>(size_t(group->size()), 1))->wait();
  const std::vector<int64_t> counts(lengths.data_ptr<int64_t>(), lengths.data_ptr<int64_t>() + group->size());
  const at::Tensor mine = at::empty({int64_t(line.size())}, at::kByte);
  std::copy(line.begin(), line.end(), mine.data_ptr<uint8_t>());
  const at::Tensor all = at::empty({lengths.sum().item<int64_t>()}, at::kByte);
  group->gather(all, mine, counts, 0)->wait();
  if (group->rank() != 0) return;
  const char* at = reinterpret_cast<const char*>(all.data_ptr<uint8_t>());
  for (int rank = 0; rank < group->size(); at += counts[size_t(rank++)])
    std::printf("  rank %d  %.*s\n", rank, int(counts[size_t(rank)]), at);
}

void title(const Group& group, const char* what) {
  if (group->rank() == 0) std::printf("\n%s\n", what);
}

void show(const Group& group, const at::Tensor& before, const at::Tensor& after) {
  const std::string left = text(before);
  print_lines(group, left + std::string(left.size() < 20 ? 20 - left.size() : 0, ' ') + "  ->  " + text(after));
}

// Rank r's i-th number is 10 r + i.
at::Tensor own(int rank, int64_t count) { return 10 * rank + at::arange(count, at::kFloat); }

void collectives(const Group& group) {
  const int rank = group->rank(), size = group->size();
  const std::vector<int64_t> one_each(size_t(size), 1), two_each(size_t(size), 2);
  const at::Tensor nothing;

  title(group, "all_gather: every rank gets everybody's numbers");
  at::Tensor out = at::zeros({2 * size});
  group->all_gather(out, own(rank, 2), two_each)->wait();
  show(group, own(rank, 2), out);

  title(group, "reduce_scatter: sums, of which each rank keeps its own part");
  out = at::zeros({1});
  group->reduce_scatter(out, own(rank, size), one_each, {})->wait();
  show(group, own(rank, size), out);

  title(group, "all_reduce: sums, for every rank");
  out = at::zeros({3});
  group->all_reduce(out, own(rank, 3), {})->wait();
  show(group, own(rank, 3), out);

  title(group, "all_reduce with max: the largest, for every rank");
  group->all_reduce(out, own(rank, 3), {.op = comm::ReduceOp::max})->wait();
  show(group, own(rank, 3), out);

  title(group, "broadcast from rank 1: its numbers, for every rank");
  out = own(rank, 3);
  group->broadcast(out, 1)->wait();
  show(group, own(rank, 3), out);

  title(group, "reduce to rank 1: sums, for that rank");
  out = rank == 1 ? at::zeros({3}) : nothing;
  group->reduce(out, own(rank, 3), 1, {})->wait();
  show(group, own(rank, 3), out);

  title(group, "gather to rank 1: everybody's numbers, for that rank");
  out = rank == 1 ? at::zeros({2 * size}) : nothing;
  group->gather(out, own(rank, 2), two_each, 1)->wait();
  show(group, own(rank, 2), out);

  title(group, "scatter from rank 1: its numbers, a part for each rank");
  const at::Tensor parts = rank == 1 ? own(rank, 2 * size) : nothing;
  out = at::zeros({2});
  group->scatter(out, parts, two_each, 1)->wait();
  show(group, parts, out);

  title(group, "all_to_all: the k-th number goes to rank k");
  out = at::zeros({size});
  group->all_to_all(out, own(rank, size), one_each, one_each)->wait();
  show(group, own(rank, size), out);

  title(group, "send and receive: to the next rank");
  out = at::zeros({2});
  const comm::WorkPtr sent = group->send(own(rank, 2), (rank + 1) % size);
  group->receive(out, (rank + size - 1) % size)->wait();
  sent->wait();
  show(group, own(rank, 2), out);

  group->barrier()->wait();
  title(group, "barrier: nobody gets here before everybody has come");
}

// Each rank begins with its own power of ten, so that a sum's digits say whose terms are in it.
//
// The numbers are cut into as many chunks as there are ranks. size - 1 times every rank sends a chunk to the next and
// adds what it receives: then each chunk is whole on one rank. size - 1 times more the whole ones go round. Every rank
// sends 2 (size - 1) / size of its numbers, however many ranks there are.
void ring_all_reduce(const Group& group) {
  const int rank = group->rank(), size = group->size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  at::Tensor chunks = at::full({size}, std::pow(10.0, rank), at::kFloat);
  const auto chunk = [&](int number) { return chunks.narrow(0, (number + 2 * size) % size, 1); };
  const auto step = [&](const std::string& name, int give, int take, bool add) {
    const at::Tensor received = at::zeros({1});
    const comm::WorkPtr sent = group->send(chunk(give).clone(), next);
    group->receive(received, previous)->wait();
    sent->wait();
    if (add)
      chunk(take).add_(received);
    else
      chunk(take).copy_(received);
    title(group, name.c_str());
    print_lines(group, text(chunks) + "  chunk " + std::to_string((take + 2 * size) % size) + " came");
  };
  title(group, "ring all-reduce: before");
  print_lines(group, text(chunks));
  for (int i = 0; i < size - 1; ++i)
    step("ring all-reduce: add, step " + std::to_string(i + 1), rank - i, rank - i - 1, true);
  for (int i = 0; i < size - 1; ++i)
    step("ring all-reduce: pass on, step " + std::to_string(i + 1), rank + 1 - i, rank - i, false);
}

void show_all(comm::GroupOptions options) {
  options.name = "world" + options.name;
  const Group group = comm::make_communicator(options);
  if (group->rank() == 0) std::printf("%d ranks over %s\n", group->size(), group->backend().c_str());
  collectives(group);
  ring_all_reduce(group);
}

void on_threads() {
  constexpr int kRanks = 4;
  const auto segment = comm::make_thread_segment(kRanks);
  const auto of_rank = [&](int rank) {
    show_all({.name = "", .backend = "threads", .rank = rank, .size = kRanks, .thread_segment = segment});
  };
  std::vector<std::jthread> others;
  for (int rank = 1; rank < kRanks; ++rank) others.emplace_back(of_rank, rank);
  of_rank(0);
}

// One of the processes that trireme launch, torchrun or mpirun has started.
void as_process(const std::string& backend) {
  const std::vector<std::string> words{"--comm.backend", backend};
  const trireme::Settings settings = trireme::parse_settings(words).settings;
  trireme::launch::RankEnvironment environment = trireme::launch::rank_environment();
  // torchrun and mpirun hand out no token: the ranks find it in a file, here in the folder where they were started.
  std::optional<trireme::launch::MeetingFile> meeting_file;
  if (environment.has_no_token() && backend != "mpi")
    meeting_file.emplace(environment, trireme::launch::MeetingOptions{.out_dir = "."});
  const trireme::train::RankMeeting meeting = trireme::train::meet(settings, environment);
  comm::GroupOptions options = meeting.options;
  options.rank = environment.global_rank;
  options.size = environment.world_size;
  show_all(options);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string backend = argc > 1 ? argv[1] : "threads";
  backend == "threads" ? on_threads() : as_process(backend);
} catch (const std::exception& error) {
  trireme::train::report_failure(error);  // trireme launch names the rank that failed first
  std::fprintf(stderr, "collectives: %s\n", error.what());
  return 1;
}
