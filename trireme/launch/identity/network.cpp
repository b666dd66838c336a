#include "trireme/launch/identity/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::launch {
namespace {
// Calls visit(interface, its IPv4 address) until it returns true.
template <class Visit>
void for_each_interface(Visit visit) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next)
    if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET &&
        visit(*i, reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr))
      return;
}

std::optional<sockaddr_in> resolve(const std::string& host) {
  const addrinfo wanted{.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  return *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
}
}  // namespace

std::string own_address() {
  std::string address;
  for_each_interface([&](const ifaddrs& i, in_addr of) {
    if ((i.ifa_flags & IFF_UP) == 0 || (i.ifa_flags & IFF_LOOPBACK) != 0) return false;
    char text[INET_ADDRSTRLEN];
    if (inet_ntop(AF_INET, &of, text, sizeof text) != nullptr) address = text;
    return !address.empty();
  });
  return address.empty() ? host_name() : address;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string full_host_name() {
  const std::string name = host_name();
  const addrinfo wanted{.ai_flags = AI_CANONNAME, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  return found->ai_canonname == nullptr ? name : found->ai_canonname;
}

bool is_spelled_loopback(const std::string& host) {
  in_addr number{};
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &number) == 1 && (ntohl(number.s_addr) >> 24) == 127);
}

bool is_loopback(const std::string& host) {
  if (host == "::1") return true;
  const auto address = resolve(host);
  return address && (ntohl(address->sin_addr.s_addr) >> 24) == 127;
}

void refuse_ipv6(const std::string& what, const std::string& host) {
  if (std::ranges::count(host, ':') == 1)
    throw UsageError(
        fmt::format("{} has a port: give the address alone, and the port with launch.master_port (MASTER_PORT)", what));
  if (host.find(':') != std::string::npos)
    throw UsageError(
        fmt::format("{} is an IPv6 address; machines meet over IPv4: give a name or an IPv4 address", what));
}

std::string own_address_for(const std::string& host) {
  const auto address = resolve(host);
  if (!address) return "";
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
  if ((ntohl(address->sin_addr.s_addr) >> 24) == 127) return host == text || host == "localhost" ? text : "0.0.0.0";
  bool is_ours = false;
  for_each_interface([&](const ifaddrs&, in_addr of) { return is_ours = of.s_addr == address->sin_addr.s_addr; });
  return is_ours ? text : "";
}

std::string doubt_about(const std::string& host, bool is_here) {
  const addrinfo wanted{.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};  // as ranks and launchers call it
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (code != 0) return fmt::format("no name service of this machine knows {} ({})", host, gai_strerror(code));
  freeaddrinfo(found);
  if (!is_here || !resolve(host) || !own_address_for(host).empty()) return "";
  return fmt::format("{} is no address of this machine, which has {}", host, own_address());
}

std::vector<std::string> interfaces() {
  std::vector<std::string> names;
  for_each_interface([&](const ifaddrs& i, in_addr) {
    if (std::find(names.begin(), names.end(), i.ifa_name) == names.end()) names.emplace_back(i.ifa_name);
    return false;
  });
  return names;
}

std::string interface_towards(const std::string& host) {
  auto address = resolve(host);
  if (!address) return "";
  // Connecting a datagram socket sends nothing; the kernel only chooses the route.
  const base::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  address->sin_port = htons(9);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return "";
  // This machine's own name may stand for a loopback address, which the others cannot call.
  const bool is_own = (ntohl(own.sin_addr.s_addr) >> 24) == 127 && !is_spelled_loopback(host);
  if (is_own && inet_pton(AF_INET, own_address().c_str(), &own.sin_addr) != 1) return "";
  std::string name;
  for_each_interface([&](const ifaddrs& i, in_addr of) {
    if (of.s_addr != own.sin_addr.s_addr) return false;
    name = i.ifa_name;
    return true;
  });
  return name;
}

}  // namespace trireme::launch
