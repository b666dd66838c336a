#include "trireme/data/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::data {

void Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id > kLargestTokenId)
    throw UsageError(fmt::format("the token '{}' has the id {}, which is not in 0 to {}", token, id, kLargestTokenId));
  const auto [at, is_new] = id_of_.emplace(std::string(token), static_cast<int32_t>(id));
  if (!is_new) throw UsageError(fmt::format("the token '{}' is there twice, as {} and {}", token, at->second, id));
  const auto size = static_cast<size_t>(id) + 1;
  if (size > tokens_.capacity())  // never more than the largest id needs
    tokens_.reserve(std::clamp(tokens_.capacity() * 2, size, static_cast<size_t>(kLargestTokenId) + 1));
  if (size > tokens_.size()) tokens_.resize(size);
  if (!tokens_[static_cast<size_t>(id)].empty())
    throw UsageError(
        fmt::format("the id {} belongs to two tokens, '{}' and '{}'", id, tokens_[static_cast<size_t>(id)], token));
  tokens_[static_cast<size_t>(id)] = at->first;
}

}  // namespace trireme::data
