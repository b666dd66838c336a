// The settings of commands with ranks, and where their results lie. A rank that a person starts by hand has no
// launcher: if its settings are refused, it has to tell the others itself, at the place that the rest of them says.
#pragma once

#include "trireme/cli/command.h"
#include "trireme/cli/start.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Errors    as read_settings(). A rank by hand has told the others then (launch::tell_others)
ParsedSettings read_for_ranks(const Job& job, Arguments arguments);

/// Settles out_dir: a command that has no run of its own writes into a folder of its own, if a run lies there.
void settle_out_dir(const Job& job, ParsedSettings& parsed);

}  // namespace trireme::cli
