#include "trireme/launch/meeting_file.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
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

// The first address of this host that other hosts can reach: of an interface that is up and not the loopback; else the
// host's name.
std::string own_address() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) return text;
  }
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
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
  environment.store_fd = std::exchange(point.fd, -1);
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
