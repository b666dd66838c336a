#include "trireme/doctor/pairs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"

namespace trireme::doctor {
namespace {

using comm::CommunicatorPtr;

at::Tensor numbers(int64_t count) { return at::zeros({count}, at::kLong); }

void send(const CommunicatorPtr& pair, const at::Tensor& t) { pair->send(t, 1 - pair->rank())->wait(); }
void receive(const CommunicatorPtr& pair, const at::Tensor& t) { pair->receive(t, 1 - pair->rank())->wait(); }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Round trips; the answer is the other rank's clock. Rank 0 of the pair measures.
void measure_latency(const CommunicatorPtr& pair, PairResult& result) {
  constexpr int kFewest = 10, kMost = 400;
  constexpr double kSeconds = 0.05;
  const at::Tensor word = at::zeros({1}, at::kInt), clock = at::zeros({1}, at::kDouble);
  if (pair->rank() == 1) {
    for (receive(pair, word); word.item<int>() != 0; receive(pair, word)) {
      clock.fill_(now());
      send(pair, clock);
    }
    return;
  }
  std::vector<double> seconds;
  const base::Stopwatch all;
  double quickest = 1e9;
  word.fill_(1);
  for (int i = 0; i < kMost && (i < kFewest || all.seconds() < kSeconds); ++i) {
    const double sent = now();
    const base::Stopwatch watch;
    send(pair, word);
    receive(pair, clock);
    seconds.push_back(watch.seconds());
    if (seconds.back() >= quickest) continue;
    quickest = seconds.back();
    result.clock_seconds = clock.item<double>() - (sent + quickest / 2);
  }
  word.fill_(0);
  send(pair, word);
  result.latency_seconds = median(seconds) / 2;
  result.clock_error_seconds = quickest / 2;
}

// Sends larger and larger messages until one takes long enough to time, then some of that size; the best counts. Each
// message follows its size and is answered by a word. A slow message is sent again: other work on the core may have
// delayed it.
double measure_sending(const CommunicatorPtr& pair, double latency) {
  constexpr int64_t kFirst = 64 << 10, kLargest = 16 << 20;
  constexpr double kWorthTiming = 0.02, kEnough = 0.1;  // seconds
  constexpr int kFewest = 3, kMost = 8;
  const at::Tensor size = numbers(1), answer = numbers(1);
  const auto send_once = [&](const at::Tensor& data) {
    size.fill_(data.numel());
    send(pair, size);
    receive(pair, answer);
    const base::Stopwatch watch;
    send(pair, data);
    receive(pair, answer);
    const double seconds = watch.seconds();
    return std::max(seconds - latency, seconds / 2);
  };
  const double worth = std::max(kWorthTiming, 20 * latency);
  at::Tensor data = at::zeros({kFirst}, at::kByte);
  double best = send_once(data);
  while (data.numel() < kLargest && (best < worth || (best = std::min(best, send_once(data))) < worth)) {
    data = at::zeros({4 * data.numel()}, at::kByte);
    best = send_once(data);  // a short message may fit into a queue
  }
  const base::Stopwatch all;
  for (int i = 0; i < kMost && (i < kFewest || all.seconds() < kEnough); ++i) best = std::min(best, send_once(data));
  size.fill_(0);
  send(pair, size);
  return static_cast<double>(data.numel()) / best;
}

void take_part_in_sending(const CommunicatorPtr& pair) {
  const at::Tensor size = numbers(1), answer = numbers(1);
  for (receive(pair, size); size.item<int64_t>() != 0; receive(pair, size)) {
    const at::Tensor data = at::empty({size.item<int64_t>()}, at::kByte);
    data.fill_(1);  // so that its pages exist
    send(pair, answer);
    receive(pair, data);
    send(pair, answer);
  }
}

// Each of the two sends the other what only it knows.
void share(const CommunicatorPtr& pair, PairResult& result) {
  const at::Tensor of_first = at::tensor(
      {result.latency_seconds, result.forth_rate, result.clock_seconds, result.clock_error_seconds}, at::kDouble);
  const at::Tensor of_second = at::full({1}, result.back_rate, at::kDouble);
  pair->broadcast(of_first, 0)->wait();
  pair->broadcast(of_second, 1)->wait();
  const double* f = of_first.data_ptr<double>();
  result.latency_seconds = f[0];
  result.forth_rate = f[1];
  result.clock_seconds = f[2];
  result.clock_error_seconds = f[3];
  result.back_rate = of_second.item<double>();
}

}  // namespace

std::vector<std::pair<int, int>> choose_pairs(std::span<const int> host_of_rank) {
  constexpr int kFewRanks = 8, kFewHosts = 12;
  const int ranks = static_cast<int>(host_of_rank.size());
  std::vector<std::pair<int, int>> pairs;
  std::vector<int> first_rank;  // by host
  for (int a = 0; a < ranks; ++a)
    if (host_of_rank[static_cast<size_t>(a)] == static_cast<int>(first_rank.size())) first_rank.push_back(a);
  const int hosts = static_cast<int>(first_rank.size());
  for (int a = 0; a < ranks; ++a) {
    int previous_here = -1;  // the rank before on the same host
    for (int b = 0; b < a; ++b)
      if (host_of_rank[static_cast<size_t>(b)] == host_of_rank[static_cast<size_t>(a)]) previous_here = b;
    for (int b = 0; b < a; ++b) {
      const int of_a = host_of_rank[static_cast<size_t>(a)], of_b = host_of_rank[static_cast<size_t>(b)];
      const bool both_first = first_rank[static_cast<size_t>(of_a)] == a && first_rank[static_cast<size_t>(of_b)] == b;
      const bool near = hosts <= kFewHosts || of_b == 0 || of_a == of_b + 1;
      if (ranks <= kFewRanks || b == previous_here || (both_first && near)) pairs.emplace_back(b, a);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

PairResult measure_pair(std::pair<int, int> pair, const comm::GroupOptions& options) {
  PairResult result{.first = pair.first, .second = pair.second};
  comm::GroupOptions group = options;
  group.name = fmt::format("doctor-{}-{}", pair.first, pair.second);
  group.rank = options.rank == pair.first ? 0 : 1;
  group.size = 2;
  group.global_ranks = {pair.first, pair.second};
  try {
    const CommunicatorPtr connected = comm::make_communicator(group);
    result.backend = connected->backend();
    measure_latency(connected, result);
    connected->barrier()->wait();
    share(connected, result);
    if (connected->rank() == 0) {
      result.forth_rate = measure_sending(connected, result.latency_seconds);
      take_part_in_sending(connected);
    } else {
      take_part_in_sending(connected);
      result.back_rate = measure_sending(connected, result.latency_seconds);
    }
    share(connected, result);
    connected->barrier()->wait();
  } catch (const Error& error) {
    result.problem = error.what();
  }
  return result;
}

}  // namespace trireme::doctor
