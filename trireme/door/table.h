// The keys and values of the store, with the rules of c10d's stores; no network and no time.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/door/message.h"

namespace trireme::door {

class Table {
 public:
  bool has_all(const std::vector<std::string>& keys) const;

  /// Answers what can be answered at once: get and wait only where their keys are there.
  Reply answer(const Request& request);

 private:
  Reply add(const std::string& key, std::int64_t number);
  Reply compare_set(const Request& request);

  std::unordered_map<std::string, std::string> values_;
};

}  // namespace trireme::door
