// Tasks whose numbers are compared with those of the same model at another time train without dropout.
#pragma once

#include <string_view>

#include "trireme/settings/parse.h"

namespace trireme::train {

/// Sets every rate of dropout to 0. `why` follows the key and its rate in the message.
/// Errors    UsageError naming a rate above 0 that was given
void leave_out_dropout(ParsedSettings& parsed, std::string_view why);

}  // namespace trireme::train
