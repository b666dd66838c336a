// What the facts mean for a run: one finding a fact, with the way out where something is wrong. Pure functions over
// plain data; the thresholds stand in judge.cpp and judge_pairs.cpp beside the reason for each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/doctor/facts.h"
#include "trireme/doctor/pairs.h"

namespace trireme::doctor {

enum class Grade {
  ok,
  warn,  ///< it will work, but slower or less comfortably than it could
  fail,  ///< it will not work, or so slowly that nobody can have meant it
};

struct Finding {
  Grade grade = Grade::ok;
  std::string topic;  ///< "cores", "memory", "network", ...: for JSON
  std::string text;   ///< one fact, with its host where there are several
  std::string fix = {};  ///< what to do; empty where nothing is wrong
};

/// One collective over all ranks.
struct CollectiveResult {
  std::string name, backend;
  int64_t bytes = 0;
  double seconds = 0;
  double rate = 0;      ///< shm: bytes read and written a second by a rank; else busbw
  double limit = 0;     ///< what a copy moves while all ranks copy; else the slowest pair
  std::string limit_name;
};

/// "ok", "warn", "FAIL".
std::string_view word_of(Grade grade);

/// The ranks of one host, and which those are.
struct Host {
  std::string name;  ///< unique: "node1", or "node1 (2)" for the second that calls itself so
  std::vector<int> ranks;
};

/// Hosts in the order of their first ranks: ranks of one machine with one name and one TRIREME_HOST_ID.
std::vector<Host> hosts_of(std::span<const Facts> facts);

/// Cores, memory, limits, names, interfaces, GPUs, versions, disks. `facts` are by rank.
std::vector<Finding> judge_hosts(std::span<const Facts> facts);

/// Slow pairs beside the others, ranks of one machine that cannot share memory, clocks that differ.
std::vector<Finding> judge_pairs(std::span<const Facts> facts, std::span<const PairResult> pairs);

/// What a copy moves, and the collectives beside their limits.
std::vector<Finding> judge_collectives(double copy_rate, std::span<const CollectiveResult> collectives);

}  // namespace trireme::doctor
