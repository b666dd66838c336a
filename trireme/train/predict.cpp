#include "trireme/train/predict.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/named_file.h"
#include "trireme/base/parse_whole.h"
#include "trireme/base/text.h"
#include "trireme/data/labeled_data.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/classify.h"
#include "trireme/train/inference.h"
#include "trireme/train/measures.h"
#include "trireme/train/model_source.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

constexpr int64_t kTextsOfForward = 16;

struct Opened {
  checkpoint::Checkpoint folder;
  model::ModelConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
};

Opened open_for_labels(const Settings& settings) {
  Opened o{.folder = adapt::open_model(place_of(settings.evaluate))};
  o.config = model::parse_hugging_face_config(checkpoint::read_text(o.folder, "config.json"),
                                              (o.folder.path / "config.json").string());
  if (o.config.is_free())
    throw UsageError(
        fmt::format("{} is a Free Transformer, for which a classification head is not built; name a model "
                    "with labels",
                    o.folder.path.string()));
  const auto is_of_head = [](const auto& tensor) {
    return tensor.first.starts_with("score.") || tensor.first.starts_with("classifier.");
  };
  if (!o.config.is_classifier() && std::ranges::any_of(o.folder.tensors, is_of_head))
    throw UsageError(fmt::format(
        "{0} holds a classification head, and its config.json names no such class; write the class first in "
        "\"architectures\", for instance [\"LlamaForSequenceClassification\"]",
        o.folder.path.string()));
  if (!o.config.is_classifier())
    throw UsageError(fmt::format("{} has no classification head; train one: trireme finetune_full {} --task classify",
                                 o.folder.path.string(), base::shell_quoted(o.folder.path.string())));
  o.tokenizer = checkpoint_tokenizer(o.folder.path, o.config);
  return o;
}

std::vector<data::LabeledText> texts_of(const Settings& settings) {
  std::vector<data::LabeledText> texts =
      data::read_labeled_texts(*settings.evaluate.classify, settings.data.text_field, /*needs_labels=*/false);
  if (const auto limit = settings.evaluate.limit; limit && *limit < std::ssize(texts))
    texts.resize(static_cast<size_t>(*limit));
  return texts;
}

// As many as in training, so that both judge the same texts. `trained`: the setting of the run that saved the folder.
int64_t most_tokens(const Settings& settings, const Opened& o) {
  const int64_t longest = o.config.longest_sequence();
  const std::string trained = saved_setting(o.folder, "train.max_seq_length");
  const int64_t usual = base::parse_whole<int64_t>(trained).value_or(default_text_tokens(o.config));
  const int64_t most = std::min(settings.evaluate.max_seq_length.value_or(usual), longest);
  if (settings.evaluate.max_seq_length.value_or(0) > most)
    base::info("evaluate.max_seq_length {}: texts have at most {}, as the model has no more positions",
               *settings.evaluate.max_seq_length, base::plural(most, "token"));
  return most;
}

// What is said about a text with these logits.
std::string line_of(const at::Tensor& logits, const std::vector<std::string>& labels) {
  const at::Tensor p = at::softmax(logits, 0);
  const auto* values = logits.data_ptr<double>();
  const int64_t likeliest = std::max_element(values, values + labels.size()) - values;
  return nlohmann::ordered_json{{"label", labels[static_cast<size_t>(likeliest)]},
                                {"probability", p.data_ptr<double>()[likeliest]},
                                {"logits", std::vector<double>(values, values + labels.size())}}
      .dump();
}

}  // namespace

void check_predict(const Settings& settings) {
  if (world_size(settings) > 1) throw UsageError("labels are predicted on one rank; leave out devices and mesh.*");
  for (const auto& [setting, format] :
       {std::pair{"quantize", settings.model.quantize}, {"quantize_head", settings.model.quantize_head}})
    if (format != base::BlockFormat::none)
      throw UsageError(fmt::format("labels are predicted with all bits of the matrices; leave out {}", setting));
  if (settings.evaluate.adapter)
    throw UsageError("labels are predicted by a model without an adapter; leave out evaluate.adapter");
  const Opened o = open_for_labels(settings);
  describe_source(o.folder, model::build_model(o.config, inference_precision(settings)));
  for (const data::LabeledText& text : texts_of(settings))
    if (text.label) data::number_of_label(text, o.config.classifier.labels);
}

nlohmann::ordered_json predict_labels(const Settings& settings) {
  const Opened o = open_for_labels(settings);
  const auto classifier = open_classifier(o.folder, inference_precision(settings));
  const std::vector<data::LabeledText> texts = texts_of(settings);
  const std::vector<std::string>& labels = o.config.classifier.labels;
  const int64_t most = most_tokens(settings, o);
  const data::TextEncoder encoder(*o.tokenizer, most, padding_at_ends(o.config));
  std::vector<model::Classifier::Text> inputs;
  int64_t cut = 0, judged = 0;
  for (const data::LabeledText& text : texts) {
    const data::TextEncoder::Encoded e = encoder.encode(text);
    inputs.push_back({.tokens = {e.tokens.begin(), e.tokens.end()}});
    cut += e.cut ? 1 : 0;
    if (!text.label) continue;
    inputs.back().label = data::number_of_label(text, labels);
    ++judged;
  }
  std::vector<size_t> order(texts.size());  // by length, so that little is padding
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return inputs[i].tokens.size(); });
  std::vector<std::string> lines(texts.size());
  std::vector<double> sums;
  observe::WorkBar bar("classifying");
  for (size_t first = 0; first < order.size(); first += kTextsOfForward) {
    const size_t count = std::min<size_t>(kTextsOfForward, order.size() - first);
    std::vector<model::Classifier::Text> batch;
    for (size_t i = 0; i < count; ++i) batch.push_back(inputs[order[first + i]]);
    const model::Classifier::Judged result = classifier->judge(batch);
    sums.resize(result.sums.size());
    std::ranges::transform(sums, result.sums, sums.begin(), std::plus());
    for (size_t i = 0; i < count; ++i)
      lines[order[first + i]] = line_of(result.logits[static_cast<int64_t>(i)].to(at::kDouble), labels);
    bar.show(double(first + count) / double(order.size()));
  }
  if (settings.evaluate.predictions)
    base::write_named_file(*settings.evaluate.predictions, base::join(lines, "\n") + "\n");
  nlohmann::ordered_json report = {
      {"texts", texts.size()}, {"labelled", judged}, {"max_seq_length", most}, {"cut", cut}};
  if (judged == 0) return report;
  for (double& sum : sums) sum /= double(judged);
  report["loss"] = sums.front();
  for (const base::Measured& m : measures_of(o.config, sums.front(), std::span(sums).subspan(1)))
    report[m.name] = m.value;
  return report;
}

}  // namespace trireme::train
