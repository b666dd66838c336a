// Named facts that, with the batch sizes, determine the order of a run's samples. A checkpoint saves them, and a run
// resumes only with the same facts. A refusal names the facts that differ, not a checksum.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

/// Which rows of a file are held out. Checkpoints of before have no such fact, and their runs go on.
inline constexpr const char* kPartFact = "the part for training";

class DataIdentity {
 public:
  using Fact = std::pair<std::string, std::string>;  ///< name and value

  DataIdentity() = default;
  explicit DataIdentity(std::vector<Fact> facts) : facts_(std::move(facts)) {}
  /// For facts in braces. Without it g++ cannot choose between the constructor above and a copy.
  DataIdentity(std::initializer_list<Fact> facts) : facts_(facts) {}

  void add(std::string name, std::string value) { facts_.emplace_back(std::move(name), std::move(value)); }
  const std::vector<Fact>& facts() const { return facts_; }

  /// XXH3 over the facts. Equal fingerprints mean the same samples in the same order.
  uint64_t fingerprint() const;

  /// "train.max_seq_length was 32 and is 64; ..."; empty if all are equal, but for a kPartFact that `saved` lacks.
  std::string changes_since(const DataIdentity& saved) const;

  bool operator==(const DataIdentity&) const = default;

 private:
  std::vector<Fact> facts_;
};

/// Refuses to continue with `now` if the run began with other facts (`saved`).
/// Errors    UsageError naming what changed, and what to do
void check_same_data(const DataIdentity& now, const DataIdentity& saved);

/// The same where `now` has only some facts, and others are not known yet.
void check_same_facts(const DataIdentity& now, const DataIdentity& saved);

}  // namespace trireme::data
