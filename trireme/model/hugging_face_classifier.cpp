// Reads the keys of BERT's relatives, and of classification heads.
#include <algorithm>
#include <initializer_list>

#include "trireme/model/hugging_face_keys.h"
#include "trireme/model/hugging_face_reader.h"

namespace trireme::model {
namespace {

using nlohmann::json;

// "0": "negative" for each number from 0 on.
std::vector<std::string> labels_of(const KeyReader& keys, const json& id2label) {
  if (!id2label.is_object()) keys.refuse("id2label", "an object of names: {\"0\": \"no\", \"1\": \"yes\"}");
  std::vector<std::string> labels(id2label.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto found = id2label.find(std::to_string(i));
    if (found == id2label.end())
      throw UsageError(
          fmt::format("{}: id2label has {} entries and no name for \"{}\"; it must name each label from 0 on",
                      keys.source(), labels.size(), i));
    if (!found->is_string())
      throw UsageError(fmt::format("{}: id2label names \"{}\" by {}, which is no text; write it in quotes",
                                   keys.source(), i, found->dump()));
    labels[i] = found->get<std::string>();
  }
  return labels;
}

Activation encoder_activation(KeyReader& keys, const char* key) {
  const auto word = keys.take<std::string>(key, "gelu");
  const auto found = std::ranges::find(kActivations, word, &ActivationWord::word);
  if (found == std::end(kActivations)) keys.refuse(key, "gelu, gelu_new, gelu_pytorch_tanh or relu");
  return found->activation;
}

template <typename Enum, size_t kCount>
Enum one_of(KeyReader& keys, const char* key, const EnumWord<Enum> (&words)[kCount], Enum fallback, const char* rule) {
  const auto word = keys.take<std::string>(key, word_of(words, fallback));
  for (const EnumWord<Enum>& known : words)
    if (word == known.word) return known.value;
  keys.refuse(key, rule);
}

}  // namespace

ModelConfig read_encoder(KeyReader& keys, ModelConfig c) {
  const Architecture a = c.architecture;
  const auto drop_nothing = [&](std::initializer_list<const char*> rates) {
    for (const char* key : rates)
      if (keys.take(key, 0.0, 0.0) > 0) c.passed_over.emplace_back(key);
  };
  if (a == Architecture::distilbert) {
    for (const auto& [key, field] : kDistilBertSizes) c.*field = keys.take(key, c.*field);
    keys.take("sinusoidal_pos_embds", false, false);  // how positions begin; they are read from the file
    drop_nothing({"dropout", "attention_dropout", "seq_classif_dropout"});
    for (const char* of_others : {"qa_dropout", "tie_weights_"}) keys.know(of_others);
  } else {
    for (const auto& [key, field] : kSizes)
      if (field != &ModelConfig::num_key_value_heads && field != &ModelConfig::head_dim &&
          field != &ModelConfig::max_position_embeddings)
        c.*field = keys.take(key, c.*field);
    c.max_position_embeddings =
        keys.take("max_position_embeddings", c.max_position_embeddings + c.first_position) - c.first_position;
    c.norm_eps = keys.take(norm_key(a), c.norm_eps);
    keys.require_or_null("position_embedding_type", "absolute");
    drop_nothing({"hidden_dropout_prob", "attention_probs_dropout_prob"});
    for (const char* of_others :
         {"gradient_checkpointing", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
          "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"})
      keys.know(of_others);
  }
  if (a == Architecture::bert || a == Architecture::roberta)
    c.token_types = keys.take("type_vocab_size", c.token_types);
  if (c.token_types < 0) keys.refuse("type_vocab_size", "at least 0");
  // A text's positions begin behind that of padding.
  if (a == Architecture::roberta && keys.has("pad_token_id") && keys.at("pad_token_id") != c.first_position - 1)
    keys.refuse("pad_token_id", "1, behind which a model of type roberta begins to count positions");
  if (a == Architecture::encoder) {
    place_norms(c, one_of(keys, "norm_placement", kPlacements, NormPlacement::pre, "pre or post"));
    c.classifier.pooling = one_of(keys, "pooling", kPoolings, c.classifier.pooling, "mean, cls or last");
  }
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  c.activation = encoder_activation(keys, a == Architecture::distilbert ? "activation" : "hidden_act");
  return c;
}

void read_labels(KeyReader& keys, ModelConfig& c) {
  keys.know("architectures");
  const json classes = keys.has("architectures") ? keys.at("architectures") : json::array();
  const std::string name =
      classes.is_array() && !classes.empty() && classes.front().is_string() ? classes.front().get<std::string>() : "";
  if (!name.ends_with("ForSequenceClassification")) return;
  keys.require_or_null("problem_type", "single_label_classification");
  for (const char* key : {"id2label", "label2id", "num_labels"}) keys.know(key);
  if (keys.has("id2label")) return set_labels(c, labels_of(keys, keys.at("id2label")));
  std::vector<std::string> labels;
  const int64_t count = keys.take("num_labels", int64_t{2}, int64_t{2});  // as transformers' classes
  if (count < 2 || count > 1 << 16) keys.refuse("num_labels", "from 2 to 65536");
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  set_labels(c, std::move(labels));
}

}  // namespace trireme::model
