#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "trireme/base/stopwatch.h"
#include "trireme/doctor/facts.h"

namespace trireme::doctor {
namespace {

std::string address_text(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = address.sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
                          : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return inet_ntop(address.sa_family, bytes, text, sizeof text) == nullptr ? "" : text;
}

// A number of /sys/class/net; 0 where the driver does not say.
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

}  // namespace

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

}  // namespace trireme::doctor
