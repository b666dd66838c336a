// The signals that ask a process to stop, named once for all that block, handle, take or reset them. SIGHUP comes when
// a terminal is closed or a connection is lost.
#pragma once

#include <signal.h>

namespace trireme::base {

inline constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

}  // namespace trireme::base
