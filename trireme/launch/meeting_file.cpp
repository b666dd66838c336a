#include "trireme/launch/meeting_file.h"

#include <fmt/format.h>

#include <sstream>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/launch/network.h"
#include "trireme/launch/rank_setup.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A name of a file, whatever the launcher calls its jobs.
std::string as_file_name(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return text;
}

bool is_one_host(const RankEnvironment& e) { return e.local_world_size == e.world_size; }

}  // namespace

MeetingFile::MeetingFile(RankEnvironment& environment, const fs::path& out_dir, std::chrono::milliseconds timeout)
    : path_(out_dir / fmt::format(".meeting-{}", as_file_name(environment.job_id))) {
  if (environment.job_id.empty())
    throw UsageError(fmt::format(
        "the {} ranks that {} started have no place to meet, and their job no name: set MASTER_ADDR and MASTER_PORT "
        "for all of them, or use --comm.backend mpi",
        environment.world_size, environment.launcher));
  environment.global_rank == 0 ? publish(environment) : wait_for(environment, timeout);
}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  if (is_ours_) fs::remove(path_, ignored);
}

void MeetingFile::publish(RankEnvironment& environment) {
  const bool alone = is_one_host(environment);
  environment.master_address = alone ? "127.0.0.1" : own_address();
  MeetingPoint point(alone ? MeetingPoint::Reach::this_host : MeetingPoint::Reach::all_hosts);
  environment.master_port = point.port;
  environment.store_fd = point.release();
  fs::create_directories(path_.parent_path());
  base::write_file_atomic(path_, fmt::format("{} {}\n", environment.master_address, environment.master_port));
  is_ours_ = true;
}

void MeetingFile::wait_for(RankEnvironment& environment, std::chrono::milliseconds timeout) const {
  const auto start = Clock::now();
  bool said = false;
  while (true) {
    if (fs::exists(path_)) {
      std::istringstream in(base::read_file(path_));
      if (in >> environment.master_address >> environment.master_port) return;
      throw Error(fmt::format("{} does not say where the ranks meet; remove it and start again", path_.string()));
    }
    const auto waited = Clock::now() - start;
    if (waited > timeout)
      throw Error(fmt::format(
          "rank 0 has not come: it writes {} where it waits for the others, and after {} s there is no such file; all "
          "ranks need the same --out_dir on a file system that all hosts share",
          path_.string(), std::chrono::duration_cast<std::chrono::seconds>(timeout).count()));
    if (!said && waited > std::chrono::seconds(2)) {
      base::info("waiting for rank 0's {}", path_.string());
      said = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace trireme::launch
