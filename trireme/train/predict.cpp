#include "trireme/train/predict.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/data/labeled_data.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
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
  if (!o.config.is_classifier())
    throw UsageError(fmt::format("{} has no classification head; train one: trireme finetune_full {} --task classify",
                                 o.folder.path.string(), o.folder.path.string()));
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

}  // namespace

void check_predict(const Settings& settings) {
  if (world_size(settings) > 1) throw UsageError("labels are predicted on one rank; leave out devices and mesh.*");
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
  const int64_t most =
      std::min(settings.evaluate.max_seq_length.value_or(o.config.longest_sequence()), o.config.longest_sequence());
  const data::TextEncoder encoder(*o.tokenizer, most);
  std::vector<std::vector<int64_t>> tokens;
  int64_t cut = 0;
  for (const data::LabeledText& text : texts) {
    const data::TextEncoder::Encoded e = encoder.encode(text);
    tokens.emplace_back(e.tokens.begin(), e.tokens.end());
    cut += e.cut ? 1 : 0;
  }
  std::vector<size_t> order(texts.size());  // by length, so that little is padding
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return tokens[i].size(); });
  std::vector<std::string> lines(texts.size());
  std::vector<double> sums(static_cast<size_t>(1 + 3 * std::ssize(labels)));
  double loss = 0;
  int64_t judged = 0;
  observe::WorkBar bar("classifying");
  for (size_t first = 0; first < order.size(); first += kTextsOfForward) {
    const size_t count = std::min<size_t>(kTextsOfForward, order.size() - first);
    std::vector<std::vector<int64_t>> batch;
    for (size_t i = 0; i < count; ++i) batch.push_back(tokens[order[first + i]]);
    const at::Tensor logits = classifier->logits(batch).to(at::kDouble), log_p = at::log_softmax(logits, 1);
    for (size_t i = 0; i < count; ++i) {
      const size_t text = order[first + i];
      const at::Tensor row = logits[static_cast<int64_t>(i)].contiguous();
      const double *values = row.data_ptr<double>(), *p = log_p.data_ptr<double>() + i * labels.size();
      const int64_t likeliest = std::max_element(values, values + labels.size()) - values;
      lines[text] = nlohmann::ordered_json{{"label", labels[static_cast<size_t>(likeliest)]},
                                           {"probability", std::exp(p[likeliest])},
                                           {"logits", std::vector<double>(values, values + labels.size())}}
                        .dump();
      if (!texts[text].label) continue;
      const int64_t label = data::number_of_label(texts[text], labels);
      ++judged;
      loss -= p[label];
      sums[static_cast<size_t>(1 + 3 * label)] += 1;
      sums[static_cast<size_t>(2 + 3 * likeliest)] += 1;
      if (label != likeliest) continue;
      sums[0] += 1;
      sums[static_cast<size_t>(3 + 3 * label)] += 1;
    }
    bar.show(double(first + count) / double(order.size()));
  }
  if (settings.evaluate.predictions)
    base::write_file_atomic(*settings.evaluate.predictions, base::join(lines, "\n") + "\n");
  nlohmann::ordered_json report = {{"texts", texts.size()}, {"labelled", judged}, {"cut", cut}};
  if (judged == 0) return report;
  for (double& sum : sums) sum /= double(judged);
  report["loss"] = loss / double(judged);
  for (const base::Measured& m : measures_of(o.config, loss, sums)) report[m.name] = m.value;
  return report;
}

}  // namespace trireme::train
