// Names and interfaces of this host, as a launcher needs them.
#pragma once

#include <string>

namespace trireme::launch {

/// The first IPv4 address that other hosts can reach: of an interface that is up and not the loopback; else this
/// host's name.
std::string own_address();

/// This host's name with its domain, where it has one.
std::string full_host_name();

/// Whether `host`, a name or an address, means this machine alone, as 127.0.0.1 and localhost do everywhere.
bool is_loopback(const std::string& host);

/// The IPv4 address at which this machine has to listen for those who connect to `host`; empty where `host` is another
/// machine. All interfaces, 0.0.0.0, where a name means loopback here and surely not elsewhere.
std::string own_address_for(const std::string& host);

/// The interface through which packets to `host` leave; empty where that cannot be known.
std::string interface_towards(const std::string& host);

}  // namespace trireme::launch
