// Rules between settings of several sections. They depend only on Settings and the number of ranks. So all ranks come
// to the same verdict, and so does the launcher before it starts ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/settings/settings.h"

namespace trireme {

struct ParsedSettings;

/// Checks batch, mesh, strategy, pipeline, sequence, data and learning rates against each other for `world_size` ranks.
/// Rules that need the model's shape are checked where the model is built.
/// Errors    UsageError with one "error: ..." paragraph for each broken rule; it names values that would work
void validate(const Settings& settings, int64_t world_size);

/// Refuses a backend that moves no data, for commands that compute. Commands that only plan may use it.
/// Errors    UsageError
void validate_backend(const Settings& settings, int64_t world_size);

/// Refuses ranks to show that are none. Commands that only plan may name others than the run whose file they read.
/// Errors    UsageError
void validate_shown_ranks(const Settings& settings, int64_t world_size);

/// As validate(), validate_backend() and validate_shown_ranks(), with a line for each value of a checkpoint that a
/// refusal names: how to set it back. Nobody typed such a value, so to leave it out is no advice. Errors    UsageError
void validate(const ParsedSettings& parsed);

/// Refuses, before hours of work, an out_dir or files of results that cannot be written, and results that would be
/// written over a file that another setting names.
/// Errors    UsageError
void validate_places(const Settings& settings);
/// The same for a command's own options. They name files in folders that are there.
void validate_places(const std::vector<config::Section>& own);

/// For commands that write to out_dir: a folder in which nothing can be made. Errors    UsageError
void validate_out_dir(const std::string& out_dir);

/// A training run must know when to stop: steps, tokens, epochs or time.
/// Errors    UsageError
void validate_run_length(const Settings& settings);

/// A sentence for each setting that works but wastes time or has no effect. Call it after validate(). `steps` are those
/// of the whole run, where they are known better than by train.max_steps; 0: they are not known.
std::vector<std::string> warnings(const Settings& settings, int64_t world_size, std::optional<int64_t> steps = {});

}  // namespace trireme
