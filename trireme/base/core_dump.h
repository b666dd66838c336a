// What a process that holds a secret leaves behind when it crashes.
#pragma once

namespace trireme::base {

/// No core dump of this process is written from now on, nor of what it starts, neither to a file nor to a program that
/// collects them: its memory holds a secret. Peers and debuggers may still look at it, which shared memory and the
/// verdict on a hang need, so it stays "dumpable" (prctl). The hard limit stays, too: `prlimit --pid PID
/// --core=unlimited` allows dumps again.
void allow_no_core_dumps();

}  // namespace trireme::base
