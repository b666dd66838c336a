// Collectives of the ranks of one host: shm on shared and on private buffers, our gloo, c10d's ProcessGroupGloo and
// Open MPI (where mpirun and the mpi half are built), checked and then timed in one run on the same pinned cores.
//   ninja collectives_bench && ./collectives_bench [--ranks 2] [--sizes 4096,1048576,67108864] [--shm-only]
//                                                  [--json FILE]
// Sizes are bytes of fp32: the vector of an all_reduce, the input of a reduce_scatter, the output of an all_gather.
// Times are of the slowest rank, from the call to the return of wait(), the median and the best of several batches.
//   algbw  size / time
//   busbw  algbw * 2 (N-1) / N for all_reduce, algbw * (N-1) / N for the others (N ranks)
//   copy   the least time for the bytes that the ranks must move, divided by the time. The least time comes from a
//   memcpy
//          that all ranks make at once in the same run: an all_reduce in place moves as much as a memcpy of the vector,
//          a reduce_scatter (1 + 1/N) / 2 of it, an all_gather 1/N. Above 100 % if caches help.
//   shm is ...  how many times faster shm on shared buffers is
#include "benchmarks/collectives_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "trireme/comm/c10d_store.h"

extern char** environ;

namespace {

struct Options {
  int ranks = 2;
  std::string sizes = "4096,65536,1048576,16777216,67108864";
  bool shm_only = false;
  std::string json;
};

struct Row {
  std::string name, operation;
  int64_t bytes = 0;
  double median_us = 0, best_us = 0;
};

// Starts a program with stdout going into a pipe whose read end is returned.
int start(const std::vector<std::string>& words, pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) throw std::runtime_error("cannot start " + words[0]);
  return ends[0];
}

// Reads the lines of a child to their end; the rows go to `rows`.
void collect(int pipe_end, pid_t pid, std::vector<Row>& rows) {
  FILE* lines = fdopen(pipe_end, "r");
  char line[512], name[64], operation[64];
  long long bytes = 0;
  double median = 0, best = 0;
  while (std::fgets(line, sizeof line, lines))
    if (std::sscanf(line, "R %63s %63s %lld %lf %lf", name, operation, &bytes, &median, &best) == 5)
      rows.push_back({name, operation, bytes, median, best});
    else
      fmt::print("{}", line);
  std::fclose(lines);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) throw std::runtime_error("a rank has failed");
}

std::vector<Row> run_ranks(const Options& o) {
  const auto store = trireme::comm::open_store({.is_server = true});
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("TRIREME_BENCH_TOKEN", store.token.c_str(), 1);
  std::vector<pid_t> pids(o.ranks);
  std::vector<int> pipes(o.ranks);
  for (int rank = 0; rank < o.ranks; ++rank)
    pipes[rank] = start({std::filesystem::read_symlink("/proc/self/exe"), "--rank", std::to_string(rank), "--ranks",
                         std::to_string(o.ranks), "--port", std::to_string(store.port), "--sizes", o.sizes,
                         o.shm_only ? "--shm-only" : "--all"},
                        pids[rank]);
  std::vector<Row> rows;
  for (int rank = 0; rank < o.ranks; ++rank) collect(pipes[rank], pids[rank], rows);
  return rows;
}

// Adds the rows of Open MPI, if its half is built.
void run_open_mpi(const Options& o, std::vector<Row>& rows) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "collectives_bench_mpi";
  if (!std::filesystem::exists(program)) return;
  pid_t pid = 0;
  const int pipe_end = start({"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl",
                              "self,vader", "-n", std::to_string(o.ranks), program, o.sizes},
                             pid);
  collect(pipe_end, pid, rows);
}

// What the operation must move at least, as a share of what a memcpy of the size by all ranks moves.
double copies(const std::string& operation, int ranks) {
  if (operation == "all_reduce") return 1;
  return operation == "reduce_scatter" ? (1 + 1.0 / ranks) / 2 : 1.0 / ranks;
}

void print(const std::vector<Row>& rows, int ranks) {
  std::map<std::pair<std::string, int64_t>, double> shm, copy;
  for (const Row& r : rows) {
    if (r.name == "shm") shm[{r.operation, r.bytes}] = r.median_us;
    if (r.name == "memcpy") copy[{"", r.bytes}] = r.median_us;
  }
  fmt::print("{:<15}{:>10}  {:<12}{:>12}{:>12}{:>10}{:>10}{:>8}{:>12}\n", "operation", "bytes", "", "median us",
             "best us", "algbw", "busbw", "copy", "shm is");
  auto sorted = rows;
  std::ranges::stable_sort(sorted, {}, [](const Row& r) { return std::pair(r.operation, r.bytes); });
  for (const Row& r : sorted) {
    const double algbw = static_cast<double>(r.bytes) / r.median_us / 1e3;  // GB/s
    const double bus = algbw * (r.operation == "all_reduce" ? 2 : 1) * (ranks - 1) / ranks;
    const bool is_copy = r.name == "memcpy";
    const std::string share =
        is_copy || r.bytes == 0
            ? ""
            : fmt::format("{:.0f} %", 100 * copy[{"", r.bytes}] * copies(r.operation, ranks) / r.median_us);
    const std::string ratio = is_copy ? "" : fmt::format("{:.2f} x", r.median_us / shm[{r.operation, r.bytes}]);
    fmt::print("{:<15}{:>10}  {:<12}{:>12.2f}{:>12.2f}{:>10.2f}{:>10}{:>8}{:>12}\n", r.operation, r.bytes, r.name,
               r.median_us, r.best_us, algbw, is_copy ? "" : fmt::format("{:.2f}", bus), share, ratio);
  }
}

void write_json(const std::vector<Row>& rows, const Options& o) {
  nlohmann::ordered_json all = nlohmann::json::array();
  for (const Row& r : rows)
    all.push_back({{"name", r.name},
                   {"operation", r.operation},
                   {"bytes", r.bytes},
                   {"median_us", r.median_us},
                   {"best_us", r.best_us}});
  std::ofstream file(o.json);
  file << nlohmann::ordered_json{{"ranks", o.ranks}, {"dtype", "float32"}, {"rows", all}}.dump(1) << '\n';
  if (!file) throw std::runtime_error("cannot write " + o.json);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  bench::RankOptions as_rank{.rank = -1};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--shm-only") o.shm_only = true;
    if (word == "--ranks") o.ranks = std::stoi(value);
    if (word == "--sizes") o.sizes = value;
    if (word == "--json") o.json = value;
    if (word == "--rank") as_rank.rank = std::stoi(value);
    if (word == "--port") as_rank.store_port = static_cast<uint16_t>(std::stoi(value));
  }
  try {
    if (as_rank.rank >= 0) {
      as_rank.size = o.ranks;
      as_rank.sizes = bench::parse_sizes(o.sizes);
      as_rank.shm_only = o.shm_only;
      bench::pin(as_rank.rank);
      bench::run_rank(as_rank);
      return 0;
    }
    std::vector<Row> rows = run_ranks(o);
    if (!o.shm_only) run_open_mpi(o, rows);
    print(rows, o.ranks);
    if (!o.json.empty()) write_json(rows, o);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
