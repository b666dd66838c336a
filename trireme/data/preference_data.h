// Makes a run's training and validation data from pairs of replies, which it holds in memory: 4 bytes a token.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/data/preference_dataset.h"
#include "trireme/data/preference_pairs.h"
#include "trireme/data/training_data.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct PairLimits {
  int64_t most_tokens = 0;  ///< of a prompt with one reply
  bool keeps_end = false;  ///< cuts the start off a longer text; false: the end
};

/// The tokens of pairs, as TRL makes them: the reply begins where the tokens of the prompt alone and of the prompt with
/// a reply differ. Plain text ends with the tokenizer's end of text.
class PairEncoder {
 public:
  /// `family` writes conversations; null: there are none.
  PairEncoder(const text::Tokenizer& tokenizer, const text::ChatFamily* family, const PairLimits& limits);

  struct Encoded {
    TokenPair pair;
    bool cut = false;
    bool no_room = false;  ///< the prompt alone fills the limit: nothing of a reply is left
  };
  /// Errors    UsageError naming the place of a pair with an empty reply
  Encoded encode(const PreferencePair& pair) const;

 private:
  std::vector<int32_t> plain(const std::string& text, bool ends) const;
  std::vector<int32_t> chat(const PreferencePair& pair, const std::vector<text::ChatMessage>* reply) const;
  void cut(ReplyText& text, Encoded& encoded) const;

  const text::Tokenizer& tokenizer_;
  const text::ChatFamily* family_;
  std::unique_ptr<const text::ChatEncoder> encoder_;
  PairLimits limits_;
};

struct PreferenceData {
  TrainingData data;
  std::shared_ptr<const PreferenceDataset> train, val;
  std::string about;  ///< "1,000 pairs, ..."
};

struct PreferenceOptions {
  PairLimits limits;
  int64_t sequence = 0;
  bool learns_prompts = false;  ///< PreferenceDataset
};

/// Reads and tokenizes the files of data.train_data_path (a folder may hold train.jsonl and val.jsonl). Pairs of equal
/// replies, and prompts that leave no room, are left out and counted. What is held out is data.val_data_path, or a
/// sample, or the last pairs.
///
/// Cost      reads and tokenizes all pairs, on this thread
/// Errors    UsageError: files, lines and keys (preference_pairs.h); no pair is left to learn from or to hold out
PreferenceData load_preference_data(const DataSettings& settings, const PreferenceOptions& options,
                                    const text::Tokenizer& tokenizer, const std::filesystem::path& tokenizer_path);

}  // namespace trireme::data
