// Settings that nothing reads beside the others: a number of samples of a file that is not named, a margin of a loss
// that is not chosen. Whoever types one expects an effect.
#pragma once

#include "trireme/settings/parse.h"

namespace trireme {

/// Files may hold settings of several runs; so only typed ones are refused.
/// Errors    UsageError naming the setting, why nothing reads it, and what to give
void refuse_without_effect(const ParsedSettings& parsed);

}  // namespace trireme
