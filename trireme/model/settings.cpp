#include "trireme/model/settings.h"

#include "trireme/config/problems.h"

namespace trireme::model {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<NumberFormat>> choices_of(NumberFormat) {
  static const std::vector<config::Choice<NumberFormat>> kTable = {
      {NumberFormat::automatic, "auto", {}},
      {NumberFormat::fp32_true, "32-true", {"32", "fp32", "float32"}},
      {NumberFormat::bf16_mixed, "bf16-mixed", {"bf16", "bfloat16"}},
      {NumberFormat::fp64_true, "64-true", {"64", "fp64", "float64"}},
      {NumberFormat::automatic, "16-mixed", {"16", "fp16", "float16"}, false},
      {NumberFormat::automatic, "bf16-true", {}, false},
      {NumberFormat::automatic, "16-true", {}, false}};
  return kTable;
}

std::span<const config::Choice<Context>> choices_of(Context) {
  static const std::vector<config::Choice<Context>> kTable = {{Context::ring, "ring", {}},
                                                              {Context::ulysses, "ulysses", {}}};
  return kTable;
}

std::span<const config::Choice<AdapterInit>> choices_of(AdapterInit) {
  static const std::vector<config::Choice<AdapterInit>> kTable = {{AdapterInit::kaiming, "kaiming", {"true"}},
                                                                  {AdapterInit::gaussian, "gaussian", {}},
                                                                  {AdapterInit::random, "random", {"false"}}};
  return kTable;
}

std::span<const config::Choice<WrapBy>> choices_of(WrapBy) {
  static const std::vector<config::Choice<WrapBy>> kTable = {
      {WrapBy::block, "block", {}}, {WrapBy::layer, "layer", {}}, {WrapBy::parameter, "parameter", {}}};
  return kTable;
}

config::Section section(PrecisionSettings& s) {
  return {.name = "",
          .title = "the whole run",
          .resumed = Resumed::learned,
          .rows = {{"precision", &s.precision,
                    "number format: fp32 throughout, or bf16 compute with fp32 master weights; auto is bf16-mixed on a "
                    "GPU and where the processor has AVX512-BF16 or AMX, else 32-true"}},
          .others = {{{"dtype", "mixed_precision"}, "the number format is precision"},
                     {{"bf16", "amp"}, "the number format is precision bf16-mixed"},
                     {{"fp16"}, "16-bit floats are not built; the number format is precision bf16-mixed or 32-true"},
                     {{"fp32"}, "the number format is precision 32-true"},
                     {{"load_in_8bit", "load_in_4bit", "quantize"},
                      "quantised weights are not built yet: precision takes 32-true, bf16-mixed and 64-true",
                      true}}};
}

config::Section section(ModelSettings& s) {
  const auto shape = [](std::string_view example) {
    return Rules{.at_least = 1, .absent = "null", .when_absent = "the named model's", .example = example};
  };
  const auto scale = [](std::string_view example) {
    return Rules{.above = 0, .absent = "null", .when_absent = "the named model's", .example = example};
  };
  return {
      .name = "model",
      .title = "its shape",
      .own_leaf = "name",
      .resumed = Resumed::learned,
      .rows = {{"model", &s.name,
                "name of the model's shape, for instance llama-32m, or a Hugging Face folder, whose weights training "
                "starts from; may stand first, without --model",
                Rules{.may_be_empty = true, .example = "llama-32m"}},
               {"model.from_scratch", &s.from_scratch, "new weights, even if the model is a folder with weights",
                Rules{.resumed = Resumed::yes}},
               {"model.model_type", &s.model_type,
                "architecture: llama, mistral, qwen2, qwen3, gemma2, gemma3_text or gpt2",
                Rules{.absent = "null", .when_absent = "the named model's", .example = "llama"}},
               {"model.vocab_size", &s.vocab_size, "tokens in the vocabulary", shape("32000")},
               {"model.hidden_size", &s.hidden_size, "width of the residual stream", shape("512")},
               {"model.intermediate_size", &s.intermediate_size, "width inside the MLP", shape("1408")},
               {"model.num_hidden_layers", &s.num_hidden_layers, "number of blocks", shape("8")},
               {"model.num_attention_heads", &s.num_attention_heads, "query heads per block", shape("8")},
               {"model.num_key_value_heads", &s.num_key_value_heads, "key and value heads per block", shape("2")},
               {"model.head_dim", &s.head_dim, "width of one head", shape("64")},
               {"model.max_position_embeddings", &s.max_position_embeddings, "longest sequence the model is made for",
                shape("2048")},
               {"model.rms_norm_eps", &s.rms_norm_eps, "added to the mean square in RMSNorm", scale("1e-6")},
               {"model.rope_theta", &s.rope_theta, "base of the rotary frequencies", scale("1e6")},
               {"model.tie_word_embeddings", &s.tie_word_embeddings, "embedding and head share one matrix",
                Rules{.absent = "null", .when_absent = "the named model's"}},
               {"model.initializer_range", &s.initializer_range, "standard deviation of initial weights",
                scale("0.02")}},
      .others = {
          {{"model_name", "model_name_or_path"},
           "the model's name is the setting model, or the first word: trireme pretrain llama-32m"},
          {{"n_embd"}, "the width is model.hidden_size"},
          {{"n_layer", "num_layers"}, "the number of blocks is model.num_hidden_layers"},
          {{"n_head", "num_heads"}, "the number of heads is model.num_attention_heads"},
          {{"n_query_groups"}, "key and value heads are model.num_key_value_heads"},
          {{"tie_embeddings"}, "sharing the embedding with the head is model.tie_word_embeddings"},
          {{"init_from", "checkpoint_dir", "initial_checkpoint"},
           "to start from weights, name their folder as the model: trireme pretrain FOLDER; to continue a run, use "
           "resume"},
          {{"initial_checkpoint_dir"},
           "to start from weights, name their folder as the model: trireme pretrain FOLDER; to continue a run, use "
           "--resume FOLDER",
           true},
          {{"flash_attention", "use_flash_attn", "attn_implementation"},
           "attention is always computed in blocks that keep no scores; leave it out",
           true}}};
}

config::Section section(WrapSettings& s) {
  return {
      .name = "wrap",
      .title = "what is gathered and reduced as one",
      .rows = {{"wrap.by", &s.by,
                "smallest part of the model that is gathered and reduced by itself: a whole block, its attention "
                "and MLP separately (layer), or each weight (parameter)"},
               {"wrap.min_num_params", &s.min_num_params, "neighbours are grouped until they have this many parameters",
                Rules{.unit = "parameters", .at_least = 0}},
               {"wrap.units", &s.units,
                "units that are gathered and reduced by themselves, for instance [embedding, block 0, head]; all other "
                "units together are gathered and reduced as one",
                Rules{.absent = "null", .when_absent = "all units", .example = "[embedding, head]"}}},
      .others = {{{"auto_wrap_policy"},
                  "what is gathered and reduced as one is wrap.by, wrap.min_num_params or wrap.units"}},
      .check = [&s](config::Problems& problems) {
        if (!s.units || (s.by == WrapBy::block && s.min_num_params == 0)) return;
        problems.add("wrap.units names whole units, but wrap.by and wrap.min_num_params divide or join units", {},
                     "leave wrap.by at block and wrap.min_num_params at 0, or leave wrap.units out");
      }};
}

}  // namespace trireme::model
