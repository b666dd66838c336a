// The keys and values of the store, with the rules of c10d's stores. Network and timeouts are in server.h.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/store/message.h"

namespace trireme::store {

class Table {
 public:
  bool has_all(const std::vector<std::string>& keys) const;

  /// Answers a request at once. Call it for get and wait only when their keys are set.
  Reply answer(const Request& request);

 private:
  Reply add(const std::string& key, std::int64_t number);
  Reply compare_set(const Request& request);

  std::unordered_map<std::string, std::string> values_;
};

}  // namespace trireme::store
