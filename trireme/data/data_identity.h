// Named facts that, with the batch sizes, determine the order of a run's samples. A checkpoint saves them, and a run
// resumes only with the same facts. A refusal names the facts that differ, not a checksum.
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

  /// XXH3 over the facts. Equal fingerprints mean the same samples in the same order.
  uint64_t fingerprint() const;

  /// "train.max_seq_length was 32 and is 64; ..."; empty if all are equal.
  std::string changes_since(const DataIdentity& saved) const;

  bool operator==(const DataIdentity&) const = default;

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

/// Refuses to continue with `now` if the run began with other facts (`saved`).
/// Errors    UsageError naming what changed, and what to do
void check_same_data(const DataIdentity& now, const DataIdentity& saved);

}  // namespace trireme::data
