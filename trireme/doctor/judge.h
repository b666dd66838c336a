// Judges what the facts (facts.h) mean for a run. Each finding states one fact, and what to do if something is wrong.
// Pure functions of plain data. judge.cpp and judge_pairs.cpp hold the thresholds, with the reason for each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/doctor/facts.h"
#include "trireme/doctor/pairs.h"

namespace trireme::doctor {

enum class Grade {
  ok,
  warn,  ///< a run will work, but more slowly or with limits
  fail,  ///< a run will not work, or will be far too slow
};

struct Finding {
  Grade grade = Grade::ok;
  std::string topic;  ///< "cores", "memory", "network", ...: for JSON
  std::string text;   ///< one fact; with several hosts, it names the hosts concerned
  std::string fix = {};  ///< what to do; empty if nothing is wrong
};

/// One collective over all ranks.
struct CollectiveResult {
  std::string name, backend;
  int64_t bytes = 0;
  double seconds = 0;
  double rate = 0;      ///< bytes a second: over shm, what a rank reads plus writes; else busbw (nccl-tests)
  double limit = 0;     ///< bytes a second: over shm, a copy's while all ranks copy; else the slowest pair's
  std::string limit_name;  ///< "a copy while all ranks copy", "the slowest pair"
};

/// "ok", "warn", "FAIL".
std::string_view word_of(Grade grade);

/// One host and its ranks.
struct Host {
  std::string name;  ///< unique: "node1", or "node1 (2)" for the second host of that name
  std::vector<int> ranks;
};

/// Hosts in the order of their first ranks. The ranks of a host have equal Facts::machine, host and host_id.
std::vector<Host> hosts_of(std::span<const Facts> facts);

/// The host of each rank, as an index into `hosts`.
std::vector<int> host_of_rank(std::span<const Host> hosts, size_t num_ranks);

/// Judges cores, memory, limits, names, interfaces, GPUs, versions and disks. facts[i] are those of rank i.
std::vector<Finding> judge_hosts(std::span<const Facts> facts);

/// Finds pairs that fail or are slow, ranks of one machine that cannot share memory, and clocks that differ.
std::vector<Finding> judge_pairs(std::span<const Facts> facts, std::span<const PairResult> pairs);

/// Reports the rate of a copy (bytes a second), and compares each collective with its limit.
std::vector<Finding> judge_collectives(double copy_rate, std::span<const CollectiveResult> collectives);

}  // namespace trireme::doctor
