// The validator's rules (validate.h), one file for each subject. A rule is a function from a list to sentences.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule::rules {

/// Collects the sentences about one list.
class Findings {
 public:
  explicit Findings(const Schedule& schedule) : schedule_(schedule) {}
  /// Adds the sentence "#12 Forward(block 0, mb 1) " + what.
  void at(int index, const std::string& what) { sentences_.push_back(name(index) + " " + what); }
  void say(std::string sentence) { sentences_.push_back(std::move(sentence)); }
  std::string name(int index) const;
  std::string name(const Action& missing) const { return describe(schedule_, missing); }
  bool empty() const { return sentences_.empty(); }
  std::vector<std::string> take() { return std::move(sentences_); }

 private:
  const Schedule& schedule_;
  std::vector<std::string> sentences_;
};

/// The last action during which action `index` may still run.
int end_of(const Schedule& s, int index);
bool is_reduction(ActionKind kind);
/// True for a list with backward passes and an optimizer.
bool trains(const Schedule& s);
/// Groups whose gradients the list makes.
std::set<int> groups_of(const Schedule& s);
/// Number of micro-batches in the list.
int num_micro_batches(const Schedule& s);

// validate_targets.cpp: the other rules rely on check_targets().
void check_targets(const Schedule& s, Findings& f);
void check_uses(const Schedule& s, Findings& f);
// validate_passes.cpp
void check_passes(const Schedule& s, Findings& f);
// validate_order.cpp
void check_order(const Schedule& s, Findings& f);
void check_takeovers(const Schedule& s, Findings& f);
// validate_bytes.cpp
void check_bytes(const Schedule& s, const Arena& arena, Findings& f);
// validate_gradients.cpp
void check_slots(const Schedule& s, Findings& f);
void check_tail(const Schedule& s, Findings& f);
// validate_offload.cpp
void check_offload(const Schedule& s, Findings& f);
// validate_sums.cpp
void check_sums(const Schedule& s, Findings& f);

}  // namespace trireme::schedule::rules
