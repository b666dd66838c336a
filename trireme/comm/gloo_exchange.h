// A collective over a GlooChannel. Each rank sends every other one header: its description of the call, and the data
// if they are small. Larger data follow at once, in chunks, without waiting for the headers; but nothing is folded or
// reported as done before all headers have been compared, so calls that differ end in an error with both names.
#pragma once

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/gloo_phase.h"

namespace trireme::comm {

class GlooExchange {
 public:
  /// `bf16`: fp32 sums send their terms as bf16.
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
  std::vector<std::byte> headers_;  // by peer: received, sent; this rank's own description in its place
  std::vector<GlooChannel::Transfer> incoming_, outgoing_;  // headers under way
  GlooPool pool_;
};

}  // namespace trireme::comm
