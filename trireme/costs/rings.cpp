// Collectives where links move the bytes.
#include <algorithm>
#include <set>

#include "trireme/comm/collective.h"
#include "trireme/costs/step_costs.h"

namespace trireme::costs {
namespace {

/// Bytes that pass a link of a ring, and messages one after the other.
struct RingTraffic {
  double bytes, messages;
};
RingTraffic ring(comm::Operation operation, double bytes, double ranks) {
  const double part = (ranks - 1) / ranks;
  switch (operation) {
    case comm::Operation::all_reduce:
      return {2 * part * bytes, 2 * (ranks - 1)};
    case comm::Operation::send:
    case comm::Operation::receive:
    case comm::Operation::broadcast:
    case comm::Operation::reduce:
      return {bytes, 1};
    default:
      return {part * bytes, ranks - 1};
  }
}

double machines_of(const Machines& machines, const std::vector<int>& ranks) {
  std::set<int64_t> places;
  for (int rank : ranks) places.insert(rank / machines.ranks);
  return double(places.size());
}

/// Across machines, `beside` devices of each send side by side.
double rate_of(double machines, double beside, double inside, double between) {
  if (machines == 1) return inside;
  return beside > 1 ? std::min(inside, between * beside) : between;
}

}  // namespace

double ring_rate(const Machines& machines, const std::vector<int>& ranks) {
  const double places = machines_of(machines, ranks);
  return rate_of(places, double(ranks.size()) / places, machines.hardware.inside.rate, machines.hardware.between.rate);
}

double collective_seconds(const Machines& machines, comm::Operation operation, double bytes,
                          const std::vector<int>& ranks) {
  const auto count = static_cast<double>(ranks.size());
  if (count < 2) return 0;
  const Link &inside = machines.hardware.inside, &between = machines.hardware.between;
  const RingTraffic traffic = ring(operation, bytes, count);
  const double places = machines_of(machines, ranks), beside = comm::is_message(operation) ? 1 : count / places;
  const double rate = rate_of(places, beside, inside.rate * inside.share, between.rate * between.share);
  const double crossings = places == 1 ? 0 : traffic.messages * places / count;
  return traffic.bytes / (1e9 * rate) +
         1e-6 * (between.latency * crossings + inside.latency * (traffic.messages - crossings));
}

}  // namespace trireme::costs
