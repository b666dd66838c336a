#include "trireme/data/vocabulary.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::data {

namespace {
constexpr int64_t kLargestId = 4'000'000;
}

void Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id > kLargestId)
    throw UsageError(fmt::format("the token '{}' has the id {}, which is not in 0 to {}", token, id, kLargestId));
  const auto [at, is_new] = id_of_.emplace(std::string(token), static_cast<int32_t>(id));
  if (!is_new) throw UsageError(fmt::format("the token '{}' is there twice, as {} and {}", token, at->second, id));
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
  if (!tokens_[static_cast<size_t>(id)].empty())
    throw UsageError(
        fmt::format("the id {} belongs to two tokens, '{}' and '{}'", id, tokens_[static_cast<size_t>(id)], token));
  tokens_[static_cast<size_t>(id)] = at->first;
}

}  // namespace trireme::data
