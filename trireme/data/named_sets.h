// Public sets of conversations that LitGPT knows by name (`--data Alpaca`): in which file each lies, which columns its
// records have, and which template writes them. Nothing is downloaded: the file has to be there. The names of folders,
// files and columns are those of litgpt/data/*.py, so what LitGPT has downloaded is found.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/conversation.h"
#include "trireme/data/settings.h"

namespace trireme::data {

struct NamedSet {
  Corpus name;
  const char* folder = nullptr;  ///< where LitGPT puts it: "data/alpaca"; null: LitGPT keeps no file of its own
  const char* file = nullptr;    ///< "*_train.jsonl" stands for all files whose names end so
  const char* published_as = nullptr;  ///< the file's name where it is published, if that is another one
  const char* validation = nullptr;  ///< the file in the same folder to validate on; null: a part of `file` is held out
  ConversationFormat format;
  std::optional<AlpacaColumns> columns = {};  ///< in Alpaca's form
  const char* chat_template = nullptr;  ///< unless data.chat_template names another
};

/// The set that `--data NAME` names; null for Austen, TextFiles and JSON.
const NamedSet* find_named_set(Corpus name);

struct SetFiles {
  std::vector<std::filesystem::path> train;  ///< at least one
  std::filesystem::path validation;  ///< empty: a part of `train` is held out
};

/// The files of `set`: `given` (a file, or a folder that has it), else those in the set's own folder.
/// Errors    UsageError that names the file, where it was looked for and its columns
SetFiles find_files(const NamedSet& set, const std::optional<std::string>& given);

/// The two files of a folder that LitGPT's JSON reads: train.json and val.json. They may end in .jsonl or .ndjson, and
/// the second may be called validation, valid or dev, too. Nothing if one is missing.
/// Errors    UsageError: train beside test or eval alone, of which both would be learned
std::optional<SetFiles> find_json_splits(const std::filesystem::path& folder);

/// Of a folder whose files are all learned: that one of them is called train and another as what is held out; "": none.
std::string splits_learned_alike(const std::filesystem::path& folder);

}  // namespace trireme::data
