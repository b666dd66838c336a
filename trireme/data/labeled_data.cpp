#include "trireme/data/labeled_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/data/from_settings.h"
#include "trireme/data/held_out.h"
#include "trireme/data/labeled_dataset.h"
#include "trireme/text/around_text.h"

namespace trireme::data {
namespace {

using Row = LabeledDataset::Row;

struct Texts {
  std::vector<Row> rows;
  std::vector<int64_t> by_label;
  std::set<int32_t> ends;
  int64_t cut = 0, tokens = 0, bytes = 0;
  uint64_t hash = 0;
};

Texts encoded(const std::vector<LabeledText>& texts, const TextEncoder& encoder,
              const std::vector<std::string>& labels) {
  Texts all{.by_label = std::vector<int64_t>(labels.size())};
  for (const LabeledText& text : texts) {
    const int64_t label = number_of_label(text, labels);
    TextEncoder::Encoded e = encoder.encode(text);
    ++all.by_label[static_cast<size_t>(label)];
    all.cut += e.cut ? 1 : 0;
    all.tokens += std::ssize(e.tokens);
    all.ends.insert(e.tokens.back());
    all.bytes += std::ssize(text.text);
    const std::string key = fmt::format("{} {} {}", all.hash, label, text.text);
    all.hash = base::hash_text(key);
    all.rows.push_back({.tokens = std::move(e.tokens), .label = label, .record = std::ssize(all.rows)});
  }
  return all;
}

std::string shares(const std::vector<std::string>& labels, const std::vector<int64_t>& by_label, int64_t all) {
  constexpr size_t kShown = 6;
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kShown, labels.size()); ++i)
    words.push_back(fmt::format("{} {:.0f} %", labels[i], 100.0 * double(by_label[i]) / double(all)));
  if (labels.size() > kShown) words.emplace_back("...");
  return base::join(words, ", ");
}

}  // namespace

TextEncoder::TextEncoder(const text::Tokenizer& tokenizer, int64_t most_tokens, std::optional<int64_t> padding)
    : tokenizer_(tokenizer), most_tokens_(most_tokens), padding_(padding) {
  const text::AroundText around = text::around_text(tokenizer);
  num_behind_ = std::ssize(around.behind);
  const int64_t num_around = std::ssize(around.before) + num_behind_;
  if (most_tokens <= num_around)
    throw UsageError(
        fmt::format("train.max_seq_length {} leaves no room for a text between the {} that the tokenizer "
                    "puts around it; take {} or more",
                    most_tokens, base::plural(num_around, "token"), num_around + 1));
}

TextEncoder::Encoded TextEncoder::encode(const LabeledText& text) const {
  Encoded e{.tokens = tokenizer_.encode(text.text, text::kWholeText)};
  if (e.tokens.empty()) throw UsageError(fmt::format("{}: the text is empty; leave the line out", text.where));
  if (std::ssize(e.tokens) > most_tokens_) {
    e.cut = true;
    e.tokens.erase(e.tokens.begin() + (most_tokens_ - num_behind_), e.tokens.end() - num_behind_);
  }
  while (padding_ && e.tokens.size() > 1 && e.tokens.back() == *padding_) e.tokens.pop_back();
  return e;
}

LabeledData load_labeled_data(const DataSettings& s, int64_t sequence, const std::vector<std::string>& labels,
                              const text::Tokenizer& tokenizer, std::optional<int64_t> padding) {
  const TextEncoder encoder(tokenizer, sequence, padding);
  const TrainingDataOptions options = training_data_options(s);
  const std::string name = options.sources.front().path.string();
  const std::vector<LabeledText> texts = labeled_texts_of(s);
  Texts all = encoded(texts, encoder, labels);
  std::vector<Row> train, val;
  std::vector<bool> is_held_out(all.rows.size());
  LabeledData result;
  TrainingData& d = result.data;
  std::string held_out_from;
  if (!options.val_data_path.empty()) {
    train = std::move(all.rows);
    Texts held_out =
        encoded(read_labeled_texts(options.val_data_path, s.text_field, /*needs_labels=*/true), encoder, labels);
    val = std::move(held_out.rows);
    all.cut += held_out.cut;
    all.ends.merge(held_out.ends);
    d.val_tokens = held_out.tokens;
    d.held_out_hash = held_out.hash;
    held_out_from = " (" + options.val_data_path.string() + ")";
  } else {
    is_held_out = held_out_records(std::ssize(all.rows), s);
    for (size_t i = 0; i < all.rows.size(); ++i) (is_held_out[i] ? val : train).push_back(std::move(all.rows[i]));
  }
  const auto tokens_of = [](const std::vector<Row>& rows) {
    return std::accumulate(rows.begin(), rows.end(), int64_t{0},
                           [](int64_t sum, const Row& row) { return sum + std::ssize(row.tokens); });
  };
  if (train.empty() || val.empty())
    throw UsageError(fmt::format("{} holds {}, too few to learn from some and to hold out data.val_split_fraction {:g}",
                                 name, base::plural(std::ssize(texts), "text"), s.val_split_fraction));
  d.num_documents = std::ssize(texts);
  d.source_bytes = all.bytes;
  d.train_tokens = tokens_of(train);
  d.val_tokens = tokens_of(val);
  const int64_t num_train = std::ssize(train), num_val = std::ssize(val);
  d.filled = static_cast<double>(d.train_tokens) / static_cast<double>(num_train * sequence);
  d.train = std::make_shared<SampleStream>(
      std::vector<WeightedDataset>{{std::make_shared<LabeledDataset>(std::move(train), sequence, name)}},
      static_cast<uint64_t>(s.seed));
  d.val = std::make_shared<LabeledDataset>(std::move(val), sequence, name);
  d.identity.add("the data", fmt::format("{} for training of {} (fingerprint {})", base::plural(num_train, "text"),
                                         base::human_count(std::ssize(texts)), base::checksum_text(all.hash)));
  d.identity.add(kPartFact, text_of_part(is_held_out));
  d.identity.add("the labels", base::join(labels, ", "));
  d.identity.add("the tokenizer",
                 fmt::format("{} (fingerprint {})", tokenizer.name(), base::checksum_text(tokenizer.fingerprint())));
  d.identity.add("train.max_seq_length", fmt::format("{}", sequence));
  d.identity.add("data.seed", fmt::format("{}", s.seed));
  result.ends = std::move(all.ends);
  result.about = fmt::format(
      "{} with {} ({}), {} for training, {} held out{}; {}; order seed {}\n"
      "         {:.1f} % of the places of a text hold tokens",
      base::plural(std::ssize(texts), "text"), base::plural(std::ssize(labels), "label"),
      shares(labels, all.by_label, std::ssize(texts)), base::human_count(num_train), base::human_count(num_val),
      held_out_from,
      all.cut == 0 ? fmt::format("none is longer than {} tokens", sequence)
                   : fmt::format("{} longer than {} tokens, and cut",
                                 all.cut == 1 ? "one is" : base::human_count(all.cut) + " are", sequence),
      s.seed, 100 * d.filled);
  return result;
}

}  // namespace trireme::data
