#include "trireme/train/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/data/labeled_data.h"
#include "trireme/settings/derived.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/train/run_data.h"
#include "trireme/train/sample_task.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

constexpr int64_t kTokens = 128, kTextsAtOnce = 4;  // unless the user gives others

data::LabeledData load_texts(const Settings& settings, const model::ModelConfig& model,
                             const text::Tokenizer& tokenizer) {
  return data::load_labeled_data(settings.data, sequence_length(settings, model), model.classifier.labels, tokenizer,
                                 padding_at_ends(model));
}

class Classification : public SampleTask {
 public:
  Classification(Session& session, std::unique_ptr<text::Tokenizer> tokenizer, data::LabeledData texts)
      : SampleTask(session, std::move(texts.data)),
        tokenizer_(std::move(tokenizer)),
        about_(std::move(texts.about)),
        ends_(std::move(texts.ends)) {}

  std::string restore(RunState& state) override {
    std::string changed = SampleTask::restore(state);
    if (session().is_first_rank()) name_padding(state.source.side_files);  // its config.json is saved
    return changed;
  }

  std::vector<std::string> introduction() const override {
    std::vector<std::string> lines = {"data     " + about_};
    if (lacks_padding_)
      lines.push_back(
          "         neither config.json nor the tokenizer names a token for padding (pad_token): transformers will "
          "take "
          "one text at a time");
    return lines;
  }
  std::string loss_unit() const override { return "nats a text"; }

 private:
  // transformers finds the last token of a decoder's texts by it, and refuses batches without one.
  void name_padding(const std::map<std::string, std::string>& files) {
    model::ModelConfig& config = session().model.config;
    if (config.bidirectional) return;
    const auto known = base::parse_json_if_sound<nlohmann::ordered_json>(config.source_json);
    if (known.is_object() && known.contains("pad_token_id") && !known["pad_token_id"].is_null()) return;
    const auto id = text::pad_token_in(files, *tokenizer_);
    // One that ends a text of this run was judged at; named, transformers would judge before it.
    if (id && *id < config.vocab_size && !ends_.contains(*id)) config.pad_token_id = *id;
    lacks_padding_ = !config.pad_token_id;
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string about_;
  std::set<int32_t> ends_;  ///< tokens that texts end with
  bool lacks_padding_ = false;
};

void refuse_meaningless(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  const auto refuse = [](const char* key, const char* why) {
    throw UsageError(fmt::format("{} has no meaning with task classify: {}; leave it out", key, why));
  };
  for (const char* key : {"data.packing", "data.reset_attention_mask", "data.reset_position_ids"})
    if (parsed.given(key)) refuse(key, "each text has a row of its own, and sees only itself");
  for (const char* key : {"data.mixture", "data.format", "data.chat_template", "data.learn", "data.long_conversations"})
    if (parsed.given(key)) refuse(key, "the data are texts with labels");
  if (parsed.typed("data.append_eos")) refuse("data.append_eos", "a text has the tokenizer's own marks around it");
  if (s.eval.max_new_tokens) refuse("eval.max_new_tokens", "such a model writes no text");
  if (s.lora.r || s.lora.initial_adapter)
    throw UsageError(
        "adapters (lora.*) are not built for task classify; train all weights: trireme finetune_full FOLDER --task "
        "classify");
}

std::vector<std::string> labels_of_data(const Settings& s) try {
  return data::labels_of(data::labeled_texts_of(s.data));
} catch (const UsageError& error) {
  if (!s.dry_run) throw;
  throw UsageError(fmt::format("{}; or say how many labels there are: --model.num_labels 2", error.what()));
}

// The head's labels: those of the settings, of the model's folder, or of the data.
void find_labels(Settings& s) {
  if (s.model.labels) return;
  model::ModelSettings without_count = s.model;
  without_count.num_labels.reset();
  const std::vector<std::string> of_folder = model::config_of(without_count).classifier.labels;
  const int64_t wanted = s.model.num_labels.value_or(std::ssize(of_folder));
  if (!of_folder.empty() && wanted == std::ssize(of_folder)) {
    s.model.labels = of_folder;
    return;
  }
  if (s.dry_run && s.model.num_labels) return;  // which reads no data
  if (!s.data.mixture && !s.data.train_data_path) {
    if (s.model.num_labels) return;  // enough for a plan; a run asks for its data later
    throw UsageError(
        "task classify: the labels are in the data, and no data are named; give model.num_labels for a plan, and "
        "--data JSON --data.json_path FILE for a run");
  }
  std::vector<std::string> labels = labels_of_data(s);
  if (s.model.num_labels && std::ssize(labels) != wanted) {
    const std::vector<std::string> numbers = model::config_of(s.model).classifier.labels;  // need not all occur
    if (std::ranges::any_of(labels,
                            [&](const auto& label) { return std::ranges::find(numbers, label) == numbers.end(); }))
      throw UsageError(fmt::format("model.num_labels is {}, but the data have {} ({}); leave it out", wanted,
                                   base::plural(std::ssize(labels), "label"), data::shown_labels(labels)));
    labels = numbers;
  }
  s.model.labels = std::move(labels);
}

// As many as give every rank the same number of micro-batches.
int64_t texts_at_once(const Settings& s) {
  const int64_t ranks = mesh_shape(s, world_size(s)).data_parallel_ranks(), batch = s.train.global_batch_size;
  return batch % ranks == 0 ? std::gcd(batch / ranks, kTextsAtOnce) : 1;
}

}  // namespace

std::optional<int64_t> padding_at_ends(const model::ModelConfig& model) {
  const bool is_decoder = !model.bidirectional && model.classifier.pooling == model::Pooling::last;
  return is_decoder ? model.padding() : std::nullopt;
}

int64_t default_text_tokens(const model::ModelConfig& model) { return std::min(kTokens, model.longest_sequence()); }

void complete_classification(ParsedSettings& parsed) {
  Settings& s = parsed.settings;
  if (s.task != Learning::classify || s.model.name.empty()) return;
  refuse_meaningless(parsed);
  find_labels(s);
  const auto is_default = [&](const char* key) {
    const auto found = parsed.provenance.find(key);
    return !parsed.given(key) &&
           (found == parsed.provenance.end() || found->second.kind != config::Source::Kind::checkpoint);
  };
  if (!s.train.max_seq_length) s.train.max_seq_length = default_text_tokens(model::config_of(s.model));
  if (is_default("train.micro_batch_size")) s.train.micro_batch_size = texts_at_once(s);
}

std::unique_ptr<Task> make_classification(Session& session, const std::filesystem::path&, const StopCheck& stops) {
  auto tokenizer = load_run_tokenizer(session);
  data::LabeledData texts = checkpoint::made_on_all(
      session.world(), [&] { return load_texts(session.settings, session.model.config, *tokenizer); });
  stops();
  require_same_data(session, texts.data);
  return std::make_unique<Classification>(session, std::move(tokenizer), std::move(texts));
}

data::TrainingData check_classification(const Settings& settings, const model::ModelConfig& model,
                                        const text::Tokenizer& tokenizer) {
  return load_texts(settings, model, tokenizer).data;
}

}  // namespace trireme::train
