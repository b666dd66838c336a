#include "trireme/data/data_identity.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::data {
namespace {
const std::string* find(const DataIdentity& identity, const std::string& name) {
  const auto at = std::ranges::find(identity.facts(), name, &std::pair<std::string, std::string>::first);
  return at == identity.facts().end() ? nullptr : &at->second;
}
}  // namespace

uint64_t DataIdentity::fingerprint() const {
  std::string all;
  for (const auto& [name, value] : facts_) all += name + '\0' + value + '\0';
  return base::hash_text(all);
}

std::string DataIdentity::changes_since(const DataIdentity& saved) const {
  std::vector<std::string> changes;
  for (const auto& [name, value] : facts_) {
    const std::string* before = find(saved, name);
    if (before == nullptr && name == kPartFact) continue;
    if (before == nullptr)
      changes.push_back(fmt::format("{} is {} and was not given before", name, value));
    else if (*before != value)
      changes.push_back(fmt::format("{} was {} and is {}", name, *before, value));
  }
  for (const auto& [name, value] : saved.facts())
    if (find(*this, name) == nullptr) changes.push_back(fmt::format("{} was {} and is gone", name, value));
  return base::join(changes, "; ");
}

void check_same_data(const DataIdentity& now, const DataIdentity& saved) {
  const std::string changes = saved.facts().empty() && !now.facts().empty()
                                  ? "the checkpoint does not say what data it learned from"
                                  : now.changes_since(saved);
  if (changes.empty()) return;
  throw UsageError(
      fmt::format("the run to resume learned from other data: {}; give it the same, or begin the new data at its first "
                  "sample with --data.on_change restart",
                  changes));
}

void check_same_facts(const DataIdentity& now, const DataIdentity& saved) {
  DataIdentity known_now, known_saved;
  for (const auto& [name, value] : now.facts())
    if (const std::string* before = find(saved, name)) {
      known_now.add(name, value);
      known_saved.add(name, *before);
    }
  check_same_data(known_now, known_saved);
}

}  // namespace trireme::data
