// Turns settings about data into the loaders' options.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/data/settings.h"
#include "trireme/data/training_data.h"

namespace trireme::data {

/// The sources of a run's text. The Austen corpus is data/austen.txt, made by `make setup`.
/// Errors    UsageError: data.train_data_path is needed and missing, or data.mixture is wrong
std::vector<DataSource> sources_of(const DataSettings& settings);

/// The path of the tokenizer: data.tokenizer, or the model's folder. If it is empty, text is read as bytes.
std::filesystem::path tokenizer_path(const DataSettings& settings, const std::filesystem::path& model);

/// Made from data, data.format, data.chat_template, data.learn, data.long_conversations and the tokenizer's path.
ConversationSource conversation_source(const DataSettings& settings, const std::filesystem::path& tokenizer);

/// Made from all other settings of data: sources, validation, packing, order.
/// Errors    as sources_of
TrainingDataOptions training_data_options(const DataSettings& settings);

}  // namespace trireme::data
