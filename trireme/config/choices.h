// The words that a setting with a fixed set of values takes: one table per enum. Rows that name a value which
// is not built yet stand here too, so that it is refused by name, with the ones that exist, instead of as a
// spelling mistake.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/settings.h"

namespace trireme::config {

template <typename Enum>
struct Choice {
  Enum value;
  std::string_view name;                 ///< as Trireme writes it
  std::vector<std::string_view> aliases; ///< other words for the same thing, as other systems say it
  bool available = true;                 ///< false: known, not built yet
};

std::span<const Choice<Precision>> choices_of(Precision);
std::span<const Choice<Accelerator>> choices_of(Accelerator);
std::span<const Choice<Strategy>> choices_of(Strategy);
std::span<const Choice<Backend>> choices_of(Backend);
std::span<const Choice<Reduce>> choices_of(Reduce);
std::span<const Choice<Accumulation>> choices_of(Accumulation);
std::span<const Choice<Recompute>> choices_of(Recompute);
std::span<const Choice<Context>> choices_of(Context);
std::span<const Choice<PrefetchBackward>> choices_of(PrefetchBackward);
std::span<const Choice<WrapBy>> choices_of(WrapBy);
std::span<const Choice<Compression>> choices_of(Compression);
std::span<const Choice<LrScaling>> choices_of(LrScaling);
std::span<const Choice<LrDecay>> choices_of(LrDecay);
std::span<const Choice<SaveDtype>> choices_of(SaveDtype);
std::span<const Choice<SaveMode>> choices_of(SaveMode);
std::span<const Choice<OnSaveError>> choices_of(OnSaveError);

/// "full_shard", "bf16-mixed", ...: the word that settings use.
template <typename Enum>
std::string_view name_of(Enum value) {
  for (const Choice<Enum>& choice : choices_of(value)) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

}  // namespace trireme::config
