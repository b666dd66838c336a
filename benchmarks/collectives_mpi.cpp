// The Open MPI half of collectives_bench: the same operations on the same sizes, by MPI's own calls. Started by
// mpirun; argument: sizes in bytes, separated by commas.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>

#include "benchmarks/collectives_timing.h"

namespace {

void check(bool good, const char* what) {
  if (good) return;
  std::printf("F %s of Open MPI is wrong\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void run(int64_t bytes, int rank, int size, const bench::Measure& measure) {
  const int64_t n = bytes / static_cast<int64_t>(sizeof(float)) / size * size, each = n / size;
  std::vector<float> input(n), output(n), shard(each);
  for (int64_t i = 0; i < n; ++i) input[i] = bench::value(i, rank);
  const auto all_reduce = [&] {
    MPI_Allreduce(MPI_IN_PLACE, output.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto reduce_scatter = [&] {
    MPI_Reduce_scatter_block(input.data(), shard.data(), static_cast<int>(each), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto all_gather = [&] {
    MPI_Allgather(shard.data(), static_cast<int>(each), MPI_FLOAT, output.data(), static_cast<int>(each), MPI_FLOAT,
                  MPI_COMM_WORLD);
  };
  const auto holds_sums = [&] {
    for (int64_t i = 0; i < n; ++i)
      if (output[i] != bench::sum(i, size)) return false;
    return true;
  };
  output = input;
  all_reduce();
  check(holds_sums(), "all_reduce");
  std::ranges::fill(output, 0.0F);
  reduce_scatter();
  all_gather();
  check(holds_sums(), "reduce_scatter or all_gather");
  std::ranges::fill(output, 0.0F);  // sums of zeros stay what they are, however often
  bench::time_calls(measure, rank, "open_mpi", bench::Operation::all_reduce, bytes, all_reduce);
  bench::time_calls(measure, rank, "open_mpi", bench::Operation::reduce_scatter, bytes, reduce_scatter);
  bench::time_calls(measure, rank, "open_mpi", bench::Operation::all_gather, bytes, all_gather);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::pin(rank);
  const bench::Measure measure{.synchronise = [] { MPI_Barrier(MPI_COMM_WORLD); },
                               .slowest =
                                   [](std::vector<double>& us) {
                                     MPI_Allreduce(MPI_IN_PLACE, us.data(), static_cast<int>(us.size()), MPI_DOUBLE,
                                                   MPI_MAX, MPI_COMM_WORLD);
                                   },
                               .calls_of_4_kib = size > 2 ? 20 : 400};
  for (const int64_t bytes : bench::parse_sizes(argc > 1 ? argv[1] : "4096")) run(bytes, rank, size, measure);
  bench::time_calls(measure, rank, "open_mpi", bench::Operation::barrier, 0, [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
}
