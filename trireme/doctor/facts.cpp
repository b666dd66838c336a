#include "trireme/doctor/facts.h"

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "trireme/base/cgroup.h"
#include "trireme/base/files.h"
#include "trireme/base/processor.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/usable_cpus.h"
#include "trireme/base/version.h"
#include "trireme/bench/disk.h"
#include "trireme/bench/machine.h"
#include "trireme/launch/identity/core_share.h"

namespace trireme::doctor {
namespace {

namespace fs = std::filesystem;

void gather_system(Facts& facts) {
  utsname name{};
  uname(&name);
  facts.host = name.nodename;
  facts.kernel = fmt::format("{} {}", name.sysname, name.release);
  try {
    facts.machine = base::read_file("/proc/sys/kernel/random/boot_id").substr(0, 36);
  } catch (const base::FileError&) {
    facts.machine = facts.host;
  }
  if (const char* id = std::getenv("TRIREME_HOST_ID")) facts.host_id = id;
  facts.processor = base::processor_name();
  facts.cores = bench::machine_cores();
  facts.usable_cores = bench::usable_cores();
  facts.cpus = base::usable_cpus();
  facts.numa_nodes = launch::num_numa_nodes();
  facts.threads = at::get_num_threads();
}

void gather_limits(Facts& facts) {
  const base::Cgroup group = base::Cgroup::of_this_process();
  facts.cpu_quota = group.cpu_quota().value_or(0);
  facts.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  facts.available_bytes = base::available_memory().bytes;
  const auto limit = static_cast<int64_t>(group.memory_limit_bytes().value_or(0));
  facts.memory_limit_bytes = limit < facts.memory_bytes ? limit : 0;
  struct statvfs shm{};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.open_files = static_cast<int64_t>(files.rlim_cur);
    facts.open_files_at_most = static_cast<int64_t>(files.rlim_max);
  }
}

void gather_software(Facts& facts) {
  facts.trireme = base::kVersion;
  facts.libtorch = bench::libtorch_version();
  for (const char* backend : {"mpi", "nccl"}) {
    const fs::path library = base::library_path(fmt::format("libtrireme_comm_{}.so", backend));
    std::error_code ignored;
    if (library.has_parent_path() && fs::exists(library, ignored)) facts.backends.emplace_back(backend);
  }
}

std::string address_text(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = address.sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return inet_ntop(address.sa_family, bytes, text, sizeof text) == nullptr ? "" : text;
}

// A number of /sys/class/net; 0 if the driver does not say.
int64_t number_of(const std::string& interface, const char* what) {
  std::ifstream file(fmt::format("/sys/class/net/{}/{}", interface, what));
  int64_t number = 0;
  return file >> number && number > 0 ? number : 0;
}

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
    if (i->ifa_addr == nullptr || (i->ifa_flags & kUsable) != kUsable || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string name = i->ifa_name, address = address_text(*i->ifa_addr);
    const auto known = std::find_if(found.begin(), found.end(), [&](const Interface& f) { return f.name == name; });
    if (known == found.end())
      found.push_back({name, address, number_of(name, "speed"), number_of(name, "mtu")});
    else if (family == AF_INET)
      known->address = address;  // ranks talk over IPv4 where there is one
  }
  return found;
}

void gather_network(Facts& facts) {
  facts.interfaces = interfaces();
  const base::Stopwatch watch;
  const addrinfo wanted{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(facts.host.c_str(), nullptr, &wanted, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
    facts.own_address = address_text(*found->ai_addr);
  }
  facts.resolve_seconds = watch.seconds();
}

}  // namespace

Facts gather_facts() {
  Facts facts;
  gather_system(facts);
  gather_limits(facts);
  gather_software(facts);
  gather_network(facts);
  gather_gpus(facts);
  return facts;
}

Disk measure_disk(const std::string& out_dir) {
  constexpr int64_t kProbe = int64_t{4} << 20, kWhole = int64_t{64} << 20;
  constexpr double kFast = 0.1;  // seconds of the probe: 40 MB/s
  fs::path folder = fs::absolute(out_dir);
  std::error_code ignored;
  while (!fs::is_directory(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  Disk disk{.folder = folder.string(), .free_bytes = base::free_disk_bytes(folder)};
  if (disk.free_bytes < 2 * kWhole) {
    disk.problem = "too little space to measure";
    return disk;
  }
  const fs::path file = folder / fmt::format(".trireme-doctor-{}-{}", getpid(), std::rand());
  try {
    const auto write = [&](int64_t bytes) {
      const base::Stopwatch watch;
      bench::write_plainly(file, bytes);
      disk.measured_bytes = bytes;
      disk.write_rate = static_cast<double>(bytes) / watch.seconds();
      return watch.seconds();
    };
    if (write(kProbe) < kFast) write(kWhole);
    posix_fadvise(base::open_file(file, O_RDONLY).get(), 0, 0, POSIX_FADV_DONTNEED);
    const base::Stopwatch watch;
    bench::read_plainly(file);
    disk.read_rate = static_cast<double>(disk.measured_bytes) / watch.seconds();
  } catch (const base::FileError& error) {
    disk.problem = error.what();
  }
  fs::remove(file, ignored);
  return disk;
}

}  // namespace trireme::doctor
