// A collective, or a message, over a GlooChannel. In a collective each rank sends every other rank one header: the
// call's descriptor, and the data if they are small. Larger data follow at once, in chunks, without waiting for the
// headers. But nothing is folded or reported as done before all headers have been compared. So calls that differ give
// an error that names both.
#pragma once

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/gloo/phase.h"

namespace trireme::comm {

class GlooExchange {
 public:
  /// If `bf16` is true, fp32 sums send their terms as bf16.
  GlooExchange(GlooChannel& channel, bool bf16);

  /// Runs the collective to its end; one at a time.
  /// Errors    TransportFailure; the channel must not be used for collectives afterwards
  void run(const Call& call);

 private:
  std::byte* header_from(int peer) { return headers_.data() + 2 * peer * header_bytes_; }
  std::byte* header_to(int peer) { return header_from(peer) + header_bytes_; }
  void post_headers(const Call& call, GlooPhase* first);
  void compare_headers();
  void run_phases(const std::vector<Exchange>& phases, const Call& call);

  GlooChannel& channel_;
  bool bf16_;
  int64_t header_bytes_;
  std::vector<std::byte> headers_;  // by rank: received, sent; this rank's own descriptor at its own place
  std::vector<GlooChannel::Transfer> incoming_, outgoing_;  // headers in transit
  GlooPool pool_;
};

/// Runs a send or receive to its end: a header with size and dtype, which also holds the data if they are small, then
/// larger data.
/// Errors    TransportFailure, also when the two ranks name different sizes or dtypes
void run_message(GlooChannel& channel, const Collective& call);

}  // namespace trireme::comm
