// What to say to a key that does not exist: words other systems use for the same thing, the nearest right
// spelling, and things that are known but not built. Tables, so that a word is one line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::config {

/// A way out for an unknown key: "the learning rate is optimizer.lr", "the nearest is train.max_steps".
/// Always names something to do.
std::string hint_for(std::string_view unknown_key);

/// For a key that is recognised and refused (another system's feature): the reason; empty for all others.
std::optional<std::string> refusal_of(std::string_view key);

/// Letters by which `typed` differs from `candidate`, a spelling of `key`; nothing where they are more than a third of
/// the key's last part (one letter is always forgiven), so that a group that is right is no resemblance.
std::optional<int> distance_if_near(std::string_view typed, std::string_view candidate, std::string_view key);

}  // namespace trireme::config
