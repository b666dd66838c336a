#include "trireme/launch/machines/meeting_file.h"

#include <fmt/format.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/store/place.h"

namespace trireme::launch {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Turns a launcher's name of a job into a file name.
std::string as_file_name(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return text;
}

bool is_one_host(const RankEnvironment& e) { return e.local_world_size == e.world_size; }

// The name of the file: the same on all ranks, new for each attempt.
std::string name_of(const RankEnvironment& e) {
  if (e.job_id.empty() && e.master_address.empty())
    throw UsageError(
        fmt::format("the {} ranks that {} started cannot find each other, because their job has no address and no "
                    "name: set MASTER_ADDR and MASTER_PORT for all of them, or use --comm.backend mpi",
                    e.world_size, e.launcher));
  return as_file_name(e.job_id.empty() ? fmt::format("{}-{}", e.master_address, e.master_port) : e.job_id) +
         (e.restart_count > 0 ? fmt::format("-{}", e.restart_count) : "");
}

bool knows_the_place(const RankEnvironment& e) { return !e.master_address.empty() && !e.port_is_taken; }

// Makes rank 0's listening socket.
void open_door(RankEnvironment& e) {
  if (is_one_host(e)) e.master_address = "127.0.0.1";
  if (e.master_address.empty()) e.master_address = own_address();
  if (e.store_fd >= 0) return;  // the launcher has made it
  MeetingPoint point(is_one_host(e) ? MeetingPoint::Reach::this_host : MeetingPoint::Reach::all_hosts,
                     e.port_is_taken ? 0 : e.master_port);
  e.master_port = point.port;
  e.store_fd = point.fd.release();
}

// Our launcher has looked at the address before its ranks start.
void tell_doubt(const RankEnvironment& e) {
  if (is_one_host(e) || e.local_rank != 0 || e.launcher == "trireme") return;
  if (e.local_is_unknown && e.global_rank > 1) return;  // one that waits is enough
  const bool is_here = e.global_rank == 0;
  if (const std::string doubt = doubt_about(e.master_address, is_here); !doubt.empty())
    base::warn("where the ranks meet (MASTER_ADDR): {}; this rank waits for {} all the same", doubt,
               is_here ? "the others" : "rank 0");
}
}  // namespace

MeetingFile::MeetingFile(RankEnvironment& environment, const MeetingOptions& options)
    : path_(options.out_dir / fmt::format(".meeting-{}", name_of(environment))) {
  if (!is_one_host(environment))
    refuse_ipv6("environment variable MASTER_ADDR=" + environment.master_address, environment.master_address);
  const bool needs_file = !options.token_file || !knows_the_place(environment);
  if (environment.global_rank > 0 && needs_file) {
    wait_for(environment, options);
    tell_doubt(environment);
    return;
  }
  environment.token = options.token_file ? store::read_token_file(*options.token_file) : store::draw_token();
  if (environment.global_rank == 0) {
    open_door(environment);
    if (needs_file) publish(environment);
  } else if (is_one_host(environment)) {
    environment.master_address = "127.0.0.1";
  }
  tell_doubt(environment);
}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  if (is_ours_) fs::remove(path_, ignored);
}

void MeetingFile::publish(const RankEnvironment& environment) {
  fs::create_directories(path_.parent_path());
  store::write_place(path_, {environment.master_address, environment.master_port, environment.token});
  is_ours_ = true;
}

void MeetingFile::wait_for(RankEnvironment& environment, const MeetingOptions& options) const {
  const auto start = Clock::now();
  bool said = false;
  while (true) {
    if (const auto place = store::read_place(path_)) {
      environment.master_address = place->host;
      environment.master_port = place->port;
      environment.token = place->token;
      environment.meeting_file = path_;
      return;
    }
    end_wait_when_stopped(options.patience_when_stopped, fmt::format("rank 0's {}", path_.string()));
    const auto waited = Clock::now() - start;
    if (waited > options.timeout && !options.without_file.empty()) throw Error(options.without_file);
    if (waited > options.timeout)
      throw Error(
          fmt::format("rank 0 has not come: it writes {} where it waits for the others, and after {} s there is no "
                      "such file; all ranks need the same --out_dir on a file system that all hosts share",
                      path_.string(), std::chrono::duration_cast<std::chrono::seconds>(options.timeout).count()));
    if (!said && waited > std::chrono::seconds(2)) {
      base::info("waiting for rank 0's {}", path_.string());
      said = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace trireme::launch
