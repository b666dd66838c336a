// What fixes the order of a run's samples beside its seed of weights and its batch sizes: facts with names, saved with
// a checkpoint. A run goes on with the same facts only; what differs is named, not a checksum that nobody can read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

class DataIdentity {
 public:
  DataIdentity() = default;
  explicit DataIdentity(std::vector<std::pair<std::string, std::string>> facts) : facts_(std::move(facts)) {}

  void add(std::string name, std::string value) { facts_.emplace_back(std::move(name), std::move(value)); }
  const std::vector<std::pair<std::string, std::string>>& facts() const { return facts_; }

  /// XXH3 over the facts: equal means the same samples in the same order.
  uint64_t fingerprint() const;

  /// "train.max_seq_length was 32 and is 64; ..."; empty where all is the same.
  std::string changes_since(const DataIdentity& saved) const;

  bool operator==(const DataIdentity&) const = default;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

/// Refuses to go on with `now` where the run began with `saved`.
/// Errors    UsageError naming what changed, and the way out
void check_same_data(const DataIdentity& now, const DataIdentity& saved);

}  // namespace trireme::data
