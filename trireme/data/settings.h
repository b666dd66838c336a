// Settings of the text that a run learns from, and of `trireme data`, which prepares it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/text/settings.h"

namespace trireme::data {

/// Where the text comes from.
enum class Corpus {
  austen,      ///< the default corpus, made by `make setup`
  text_files,  ///< what data.train_data_path names
  json,        ///< conversations, in any form
  // Public sets of conversations (named_sets.h).
  alpaca,
  alpaca2k,
  alpaca_gpt4,
  dolly,
  longform,
  flan,
  lima,
  deita,
};
std::span<const config::Choice<Corpus>> choices_of(Corpus);

/// Which tokens are held out for validation.
enum class Split {
  automatic,  ///< `sample` if there are many documents, else `last`
  last,       ///< the last tokens; with packing, the last documents
  sample,     ///< a sample of whole documents
};
std::span<const config::Choice<Split>> choices_of(Split);

/// What the files hold.
enum class Format { text, alpaca, sharegpt, messages };
std::span<const config::Choice<Format>> choices_of(Format);

/// What happens to conversations that are longer than a sample.
enum class LongConversations { cut, drop };
std::span<const config::Choice<LongConversations>> choices_of(LongConversations);

enum class Packing {
  wrapped,   ///< the running text in windows (window_dataset.h)
  best_fit,  ///< whole documents in rows (packed_dataset.h)
  none,      ///< a row for each document
};
std::span<const config::Choice<Packing>> choices_of(Packing);

/// What a resumed run does if its data have changed.
enum class OnChange { refuse, restart };
std::span<const config::Choice<OnChange>> choices_of(OnChange);

struct DataSettings {
  Corpus name = Corpus::austen;
  std::optional<std::string> train_data_path;
  std::optional<std::string> val_data_path;
  double val_split_fraction = 0.1;
  Split val_split = Split::automatic;
  std::optional<std::string> tokenizer;  ///< a folder, a file or "byte"; absent: the model folder's own, or bytes
  std::string text_field = "text";       ///< field of JSONL objects, column of Parquet files
  bool append_eos = true;                ///< appends the tokenizer's separator to each document that is tokenized
  std::optional<Format> format;          ///< absent: recognised from the files
  std::optional<std::string> chat_template;  ///< of conversations; absent: the model folder's own
  text::Learn learn = text::Learn::replies;
  LongConversations long_conversations = LongConversations::cut;
  int64_t seed = 42;
  int64_t num_workers = 1;
  Packing packing = Packing::wrapped;
  std::optional<std::vector<std::string>> mixture;  ///< each "PATH" or "WEIGHT PATH"
  bool reset_attention_mask = false;
  bool reset_position_ids = false;
  OnChange on_change = OnChange::refuse;
  bool ledger = false;
  bool operator==(const DataSettings&) const = default;
};
config::Section section(DataSettings& settings);

/// What `trireme data` does.
struct PrepareSettings {
  std::string output;  ///< PREFIX or file
  bool overwrite = false;
  std::optional<int64_t> threads;
  std::optional<int64_t> max_documents;
  bool json = false;
  int64_t vocab_size = 32000;
  int64_t min_frequency = 2;
  std::string pre_tokenizer = "gpt2";
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int64_t count = 3;  ///< documents that `data show` prints
  bool ids = false;
  std::optional<int64_t> step;
  bool operator==(const PrepareSettings&) const = default;
};
config::Section section(PrepareSettings& settings);

}  // namespace trireme::data
