#include "trireme/comm/mpi/world.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <atomic>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {
std::atomic<bool> abandoned = false;

// A rank that exits with an error must not wait in MPI_Finalize, because its peers may wait for it in a collective.
// mpirun notices the exit without MPI_Finalize and ends the peers.
void finalize_at_exit(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (status == 0 && !abandoned && !finalized) MPI_Finalize();
}

// If the embedding program has started MPI, it also ends it, and it calls MPI without our lock.
void check_foreign_start() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE)
    throw UsageError(
        fmt::format("[comm] backend mpi: MPI was started before with thread level {}, and Trireme calls it from "
                    "threads of its own; start it with MPI_Init_thread(MPI_THREAD_MULTIPLE)",
                    level));
}

void start() {
  int level = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (code != MPI_SUCCESS) throw UsageError("[comm] backend mpi: MPI_Init_thread failed; see what MPI printed above");
  on_exit(finalize_at_exit, nullptr);
  if (level < MPI_THREAD_SERIALIZED)
    throw UsageError(
        fmt::format("[comm] backend mpi needs MPI_THREAD_SERIALIZED, and this MPI gives thread level {}; use an MPI "
                    "built with threads, or backend gloo or shm",
                    level));
}

MpiWorld make_world() {
  std::lock_guard lock(mpi_mutex());
  int started = 0;
  MPI_Initialized(&started);
  started ? check_foreign_start() : start();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MpiWorld world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  return world;
}
}  // namespace

const MpiWorld& mpi_world() {
  static const MpiWorld world = make_world();
  return world;
}

std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

void check_mpi(int code, const char* call, int peer) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw TransportFailure(peer, fmt::format("{}: {}", call, std::string_view(text, length)));
}

void abandon_mpi() { abandoned = true; }

void keep_for_mpi(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;  // outlives every static destructor
  std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace trireme::comm
