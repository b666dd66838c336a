#include "trireme/data/preference_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/data/from_settings.h"
#include "trireme/data/held_out.h"

namespace trireme::data {
namespace {

int64_t common_start(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

struct Pairs {
  std::vector<TokenPair> pairs;
  int64_t read = 0, same = 0, no_room = 0, cut = 0;
  uint64_t hash = 0;
};

uint64_t hash_of(uint64_t before, const TokenPair& pair) {
  std::string key = fmt::format("{} {} {}", before, pair.chosen.prompt_tokens, pair.rejected.prompt_tokens);
  for (const ReplyText* text : {&pair.chosen, &pair.rejected}) {
    key += fmt::format(" {} ", text->tokens.size());
    key.append(reinterpret_cast<const char*>(text->tokens.data()), text->tokens.size() * sizeof(int32_t));
  }
  return base::hash_text(key);
}

Pairs encoded(const std::vector<PreferencePair>& pairs, const PairEncoder& encoder) {
  Pairs all;
  for (const PreferencePair& pair : pairs) {
    const int64_t record = all.read++;
    if (pair.same()) {
      ++all.same;
      continue;
    }
    PairEncoder::Encoded e = encoder.encode(pair);
    if (e.no_room) {
      ++all.no_room;
      continue;
    }
    all.cut += e.cut ? 1 : 0;
    e.pair.record = record;
    all.hash = hash_of(all.hash, e.pair);
    all.pairs.push_back(std::move(e.pair));
  }
  return all;
}

// What was left out, with the reason; empty: nothing.
std::string left_out(const Pairs& p, const PairLimits& limits) {
  std::vector<std::string> words;
  if (p.same > 0) words.push_back(fmt::format("{} left out because both replies are equal", base::human_count(p.same)));
  if (p.no_room > 0)
    words.push_back(fmt::format("{} left out because the prompt alone has {} tokens or more",
                                base::human_count(p.no_room), limits.most_tokens));
  if (p.cut > 0)
    words.push_back(fmt::format("{} with a text longer than {} tokens, which is cut", base::human_count(p.cut),
                                limits.most_tokens));
  return base::join(words, "; ");
}

void require_some(const std::vector<TokenPair>& pairs, const Pairs& read, const std::filesystem::path& path,
                  const PairLimits& limits) {
  if (pairs.empty())
    throw UsageError(fmt::format("{} holds {}, and none is left: {}; name another file", path.string(),
                                 base::plural(read.read, "pair"), left_out(read, limits)));
}

bool has_conversations(const std::vector<PreferencePair>& pairs) {
  return std::ranges::any_of(pairs, &PreferencePair::is_conversation);
}

double filled(const PreferenceDataset& rows) {
  int64_t places = 0;
  for (const TokenPair& pair : rows.pairs()) places += pair.places();
  return static_cast<double>(places) / static_cast<double>(rows.num_samples() * rows.sequence());
}

}  // namespace

PairEncoder::PairEncoder(const text::Tokenizer& tokenizer, const text::ChatFamily* family, const PairLimits& limits)
    : tokenizer_(tokenizer), family_(family), limits_(limits) {
  if (family_ == nullptr) return;
  encoder_ = std::make_unique<const text::ChatEncoder>(tokenizer, *family_);
  encoder_->require_stop();
}

std::vector<int32_t> PairEncoder::plain(const std::string& text, bool ends) const {
  std::vector<int32_t> ids = tokenizer_.encode(text, text::kWholeText);
  const auto end = tokenizer_.eos_id();
  if (ends && end && (ids.empty() || ids.back() != *end)) ids.push_back(*end);
  return ids;
}

std::vector<int32_t> PairEncoder::chat(const PreferencePair& pair, const std::vector<text::ChatMessage>* reply) const {
  std::vector<text::ChatMessage> messages = pair.prompt;
  if (reply != nullptr) messages.insert(messages.end(), reply->begin(), reply->end());
  return encoder_->encode(text::render_chat(*family_, messages, {.for_reply = reply == nullptr, .thinks = pair.thinks}))
      .ids;
}

void PairEncoder::cut(ReplyText& text, Encoded& encoded) const {
  const int64_t over = std::ssize(text.tokens) - limits_.most_tokens;
  if (over > 0) {
    encoded.cut = true;
    if (limits_.keeps_end) {
      text.tokens.erase(text.tokens.begin(), text.tokens.begin() + over);
      text.prompt_tokens = std::max<int64_t>(0, text.prompt_tokens - over);
    } else {
      text.tokens.resize(static_cast<size_t>(limits_.most_tokens));
    }
  }
  encoded.no_room |= text.prompt_tokens >= std::ssize(text.tokens) || text.reply_targets() < 1;
}

PairEncoder::Encoded PairEncoder::encode(const PreferencePair& pair) const {
  std::vector<int32_t> prompt, chosen, rejected;
  try {
    prompt = pair.is_conversation ? chat(pair, nullptr) : plain(pair.prompt_text, false);
    chosen = pair.is_conversation ? chat(pair, &pair.chosen) : plain(pair.prompt_text + pair.chosen_text, true);
    rejected = pair.is_conversation ? chat(pair, &pair.rejected) : plain(pair.prompt_text + pair.rejected_text, true);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", pair.where, error.what()));
  }
  const int64_t prompt_tokens = std::min(common_start(prompt, chosen), common_start(prompt, rejected));
  for (const auto* text : {&chosen, &rejected})
    if (std::ssize(*text) <= prompt_tokens || text->size() < 2)
      throw UsageError(fmt::format("{}: a reply is empty; leave the pair out", pair.where));
  Encoded e{.pair = {.chosen = {std::move(chosen), prompt_tokens}, .rejected = {std::move(rejected), prompt_tokens}}};
  cut(e.pair.chosen, e);
  cut(e.pair.rejected, e);
  return e;
}

PreferenceData load_preference_data(const DataSettings& s, const PreferenceOptions& o, const text::Tokenizer& tokenizer,
                                    const std::filesystem::path& tokenizer_path) {
  const TrainingDataOptions sources = training_data_options(s);
  const std::filesystem::path first = sources.sources.front().path;
  std::vector<PreferencePair> read, held_out;
  for (const DataSource& source : sources.sources)
    std::ranges::move(read_preference_pairs(source.path), std::back_inserter(read));
  if (!sources.val_data_path.empty()) held_out = read_preference_pairs(sources.val_data_path);
  const text::ChatFamily* family = nullptr;
  if (has_conversations(read) || has_conversations(held_out)) {
    const std::vector<std::filesystem::path> files = {first};
    family = &conversation_source(s, tokenizer_path).family(files);
  }
  const PairEncoder encoder(tokenizer, family, o.limits);
  Pairs all = encoded(read, encoder), apart;
  std::vector<TokenPair> train, val;
  std::vector<bool> is_held_out(all.pairs.size());
  if (!held_out.empty()) {
    train = std::move(all.pairs);
    apart = encoded(held_out, encoder);
    val = std::move(apart.pairs);
    require_some(train, all, first, o.limits);
    require_some(val, apart, sources.val_data_path, o.limits);
  } else {
    is_held_out = held_out_records(std::ssize(all.pairs), s);
    for (size_t i = 0; i < all.pairs.size(); ++i) (is_held_out[i] ? val : train).push_back(std::move(all.pairs[i]));
  }
  const std::string lost = left_out(all, o.limits), lost_apart = left_out(apart, o.limits);
  if (train.empty() || val.empty())
    throw UsageError(fmt::format(
        "{} holds {}, too few to learn from some and to hold out data.val_split_fraction {:g}{}", first.string(),
        base::plural(all.read, "pair"), s.val_split_fraction, lost.empty() ? "" : ": " + lost));
  PreferenceData result;
  TrainingData& d = result.data;
  for (const TokenPair& pair : val) d.held_out_hash = hash_of(d.held_out_hash, pair);
  const bool shares_rows = s.packing == Packing::best_fit;
  const auto rows_of = [&](std::vector<TokenPair> pairs) {
    return std::make_shared<const PreferenceDataset>(std::move(pairs), o.sequence, shares_rows, o.learns_prompts,
                                                     first.string());
  };
  d.num_documents = std::ssize(train) + std::ssize(val);
  for (const TokenPair& pair : train) d.train_tokens += pair.places();
  for (const TokenPair& pair : val) d.val_tokens += pair.places();
  result.train = rows_of(std::move(train));
  result.val = rows_of(std::move(val));
  d.filled = filled(*result.train);
  d.train = std::make_shared<SampleStream>(std::vector<WeightedDataset>{{result.train}}, static_cast<uint64_t>(s.seed));
  d.val = result.val;
  const auto num_train = std::ssize(result.train->pairs()), num_val = std::ssize(result.val->pairs());
  d.identity.add("the data",
                 fmt::format("{} (fingerprint {})", base::plural(all.read, "pair"), base::checksum_text(all.hash)));
  d.identity.add(kPartFact, text_of_part(is_held_out));
  d.identity.add("the tokenizer",
                 fmt::format("{} (fingerprint {})", tokenizer.name(), base::checksum_text(tokenizer.fingerprint())));
  if (family != nullptr) d.identity.add("the chat template", family->name);
  if (family != nullptr) d.chat_template = family->name;
  d.identity.add("train.max_seq_length", fmt::format("{}", o.sequence));
  d.identity.add("data.packing", shares_rows ? "best_fit" : "none");
  d.identity.add("data.seed", fmt::format("{}", s.seed));
  result.about = fmt::format(
      "{}{}, {} for training, {} held out{}{}; order seed {}\n         {} a row of {} tokens, {:.1f} % of its places "
      "hold tokens",
      base::plural(all.read, "pair"), family == nullptr ? "" : fmt::format(" as {}", family->name),
      base::human_count(num_train), base::human_count(num_val),
      sources.val_data_path.empty()
          ? ""
          : fmt::format(" ({}{})", sources.val_data_path.string(), lost_apart.empty() ? "" : ": " + lost_apart),
      lost.empty() ? "" : "; " + lost, s.seed,
      shares_rows ? fmt::format("{:.1f} pairs",
                                static_cast<double>(num_train) / static_cast<double>(result.train->num_samples()))
                  : "one pair",
      o.sequence, 100 * d.filled);
  return result;
}

}  // namespace trireme::data
