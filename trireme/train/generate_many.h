// Texts for a file of prompts (trireme generate --prompts).
#pragma once

#include "trireme/generate/generator.h"
#include "trireme/train/inference.h"
#include "trireme/train/prompt_file.h"

namespace trireme::train {

/// A request with the settings' way of drawing, without tokens.
generate::Request request_of(const GenerateSettings& settings, const model::FreeSettings& free);
/// Errors    UsageError: settings of codes for a model without them, or a code that it has not
void check_codes(const Settings& settings, const model::ModelConfig& config);
/// Replies end with the chat format's token for it, too.
void add_stop(const text::ChatFamily& family, Inference& in);
/// Says on standard error in which template the model is asked, if its files do not say that (template_of_model).
void tell_template(const GenerateSettings& settings, const Inference& in);

/// Refuses broken prompts, those that the model does not read, and a file of results that belongs to other ones, before
/// ranks start. `known` is the model that check_inference has found.
/// Errors    UsageError
void check_prompts(const Settings& settings, const Inference& known);

/// "480 of 2,000 texts are written": how far the file of results is. Errors    UsageError
std::string texts_written(const Settings& settings);

/// Writes a text for every prompt and sample. Every rank must call; each copy of the model has its own prompts.
/// @returns  the exit code
int generate_many(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
