// The connection between two ranks: latency, bandwidth each way, and the difference of their clocks, over the backend
// that training would use between these two (shared memory on one host, Gloo elsewhere).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/factory.h"

namespace trireme::doctor {

struct PairResult {
  int first = 0, second = 0;  ///< ranks, first < second
  std::string backend;        ///< "shm", "gloo"; empty if they could not be connected
  double latency_seconds = 0; ///< of four bytes one way: half of the median round trip
  double forth_rate = 0, back_rate = 0;  ///< bytes a second from first to second, and from second to first
  double clock_seconds = 0;              ///< second's clock minus first's
  double clock_error_seconds = 0;        ///< at most half of the shortest round trip
  std::string problem;                   ///< why they could not be connected or measured
  double rate() const { return forth_rate < back_rate ? forth_rate : back_rate; }
};

/// Pairs to measure, one after the other. Up to eight ranks: all pairs. More ranks: neighbours on each host, and the
/// first ranks of every two hosts (of more than twelve hosts: only the first host with every other one, and
/// neighbouring hosts). `host_of_rank` holds each rank's host: hosts count from 0 in the order of their first ranks.
std::vector<std::pair<int, int>> choose_pairs(std::span<const int> host_of_rank);

/// Both ranks of the pair call it, each with its own rank in `options`. The result is complete on both. A failure is in
/// `problem`; nothing is thrown.
/// Cost      about 0.2 s, or options.timeout if the two cannot reach each other
PairResult measure_pair(std::pair<int, int> pair, const comm::GroupOptions& options);

/// A result as JSON, and back.
std::string write_pair(const PairResult& result);
PairResult read_pair(const std::string& json);

}  // namespace trireme::doctor
