// Names, addresses and interfaces of this host.
#pragma once

#include <string>
#include <vector>

namespace trireme::launch {

/// The first IPv4 address of an interface that is up and not the loopback; without one, this host's name.
std::string own_address();

/// This host's name.
std::string host_name();

/// This host's name, with its domain if it has one.
std::string full_host_name();

/// Whether `host` means this machine by its spelling alone: localhost, 127.x.y.z or ::1. A machine may know its own
/// name as a loopback address (/etc/hosts), and the others as another one.
bool is_spelled_loopback(const std::string& host);
/// Whether `host`, a name or an address, is a loopback address on this machine.
bool is_loopback(const std::string& host);

/// Refuses an IPv6 address as the place where machines meet. `what` names it: "launch.master_addr fd00::1".
/// Errors    UsageError
void refuse_ipv6(const std::string& what, const std::string& host);

/// The IPv4 address at which this machine must listen so that others reach it as `host`; empty if `host` is another
/// machine. 0.0.0.0 if `host` is a name that means loopback on this machine only.
std::string own_address_for(const std::string& host);

/// What is doubtful about `host`, where machines meet: no name service knows an IPv4 address of it, or, if `is_here`
/// says that it means this machine, this machine has other addresses. Empty: nothing. A name may still become known, as
/// those of pods do.
std::string doubt_about(const std::string& host, bool is_here);

/// The names of this host's interfaces that have an IPv4 address.
std::vector<std::string> interfaces();

/// The interface through which packets to `host` leave; empty if it is unknown.
std::string interface_towards(const std::string& host);

}  // namespace trireme::launch
