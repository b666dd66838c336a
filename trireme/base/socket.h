// Options of sockets.
#pragma once

namespace trireme::base {

/// Ends the connection some 90 s after the peer's machine has gone without a word, instead of after two hours. The
/// kernel of a suspended peer still answers.
void enable_keepalive(int socket);

}  // namespace trireme::base
