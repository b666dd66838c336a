#include "trireme/model/settings.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/units.h"
#include "trireme/config/problems.h"

namespace trireme::base {

std::span<const config::Choice<BlockFormat>> choices_of(BlockFormat) {
  static const std::vector<config::Choice<BlockFormat>> kTable = [] {
    std::vector<config::Choice<BlockFormat>> table;
    for (const BlockFormatTraits& row : kBlockFormats) table.push_back({row.format, row.name, {}});
    return table;
  }();
  return kTable;
}

}  // namespace trireme::base

namespace trireme::model {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<NumberFormat>> choices_of(NumberFormat) {
  static const std::vector<config::Choice<NumberFormat>> kTable = {
      {NumberFormat::automatic, "auto", {}},
      {NumberFormat::fp32_true, "32-true", {"32", "fp32", "float32"}},
      {NumberFormat::bf16_mixed, "bf16-mixed", {"bf16", "bfloat16"}},
      {NumberFormat::fp16_mixed, "16-mixed", {"16", "fp16", "float16"}},
      {NumberFormat::fp8_mixed, "fp8-mixed", {"fp8", "float8"}},
      {NumberFormat::bf16_true, "bf16-true", {}},
      {NumberFormat::fp16_true, "16-true", {}},
      {NumberFormat::fp64_true, "64-true", {"64", "fp64", "float64"}}};
  return kTable;
}

std::span<const config::Choice<GradientDtype>> choices_of(GradientDtype) {
  static const std::vector<config::Choice<GradientDtype>> kTable = {
      {GradientDtype::automatic, "auto", {}},
      {GradientDtype::fp32, "fp32", {"float32", "32"}},
      {GradientDtype::compute, "compute", {"bf16", "bfloat16", "fp16", "float16", "16"}}};
  return kTable;
}

std::span<const config::Choice<Rounding>> choices_of(Rounding) {
  static const std::vector<config::Choice<Rounding>> kTable = {
      {Rounding::nearest, "nearest", {}}, {Rounding::stochastic, "stochastic", {"sr"}}, {Rounding::kahan, "kahan", {}}};
  return kTable;
}

std::span<const config::Choice<ScaleRule>> choices_of(ScaleRule) {
  static const std::vector<config::Choice<ScaleRule>> kTable = {{ScaleRule::torch, "torch", {"pytorch"}},
                                                                {ScaleRule::deepspeed, "deepspeed", {}}};
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

std::span<const config::Choice<Injection>> choices_of(Injection) {
  static const std::vector<config::Choice<Injection>> kTable = {
      {Injection::automatic, "auto", {}}, {Injection::table, "table", {"codes"}}, {Injection::bits, "bits", {}}};
  return kTable;
}

std::span<const config::Choice<Pooling>> choices_of(Pooling) {
  static const std::vector<config::Choice<Pooling>> kTable = {
      {Pooling::last, "last", {}}, {Pooling::cls, "cls", {"first"}}, {Pooling::mean, "mean", {}}};
  return kTable;
}

std::span<const config::Choice<NormPlacement>> choices_of(NormPlacement) {
  static const std::vector<config::Choice<NormPlacement>> kTable = {{NormPlacement::pre, "pre", {"norm_first"}},
                                                                    {NormPlacement::post, "post", {}}};
  return kTable;
}

std::span<const config::Choice<EncoderActivation>> choices_of(EncoderActivation) {
  static const std::vector<config::Choice<EncoderActivation>> kTable = {
      {EncoderActivation::gelu, "gelu", {}},
      {EncoderActivation::gelu_new, "gelu_new", {"gelu_pytorch_tanh"}},
      {EncoderActivation::relu, "relu", {}}};
  return kTable;
}

std::span<const config::Choice<WrapBy>> choices_of(WrapBy) {
  static const std::vector<config::Choice<WrapBy>> kTable = {
      {WrapBy::block, "block", {}}, {WrapBy::layer, "layer", {}}, {WrapBy::parameter, "parameter", {}}};
  return kTable;
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return x > 0 && std::frexp(x, &exponent) == 0.5;
}

namespace {

void check_precision(const PrecisionSettings& s, config::Problems& problems) {
  const auto power = [&](const char* name, double value) {
    if (!is_power_of_two(value))
      problems.add(fmt::format("{} {} is not a power of two", name, base::format_number(value)), {},
                   "a power of two scales without rounding: 65536, 1024, 1, 0.5");
  };
  if (s.loss_scale) power("precision.loss_scale", *s.loss_scale);
  power("precision.initial_loss_scale", s.initial_loss_scale);
  power("precision.min_loss_scale", s.min_loss_scale);
  if (!s.loss_scale && s.min_loss_scale > s.initial_loss_scale)
    problems.add("precision.min_loss_scale exceeds precision.initial_loss_scale", {},
                 "the scale begins at initial_loss_scale and never falls below min_loss_scale");
  if (s.scale_rule == ScaleRule::torch && (s.loss_scale_hysteresis.value_or(1) > 1 || s.consecutive_hysteresis))
    problems.add("PyTorch's scale falls at every overflow: it knows no hysteresis", {},
                 "precision.loss_scale_hysteresis and precision.consecutive_hysteresis need precision.scale_rule "
                 "deepspeed");
  if (s.rounding != Rounding::nearest && !has_narrow_weights(s.format))
    problems.add(fmt::format("precision.rounding {} is for weights of two bytes", config::name_of(s.rounding)), {},
                 "set precision bf16-true, or leave precision.rounding out: weights in fp32 lose nothing");
  if (s.rounding == Rounding::stochastic && s.format == NumberFormat::fp16_true)
    problems.add("halves are not rounded stochastically", {},
                 "with precision 16-true, precision.rounding is nearest or kahan; stochastic needs bf16-true");
}

}  // namespace

config::Section section(PrecisionSettings& s) {
  const Rules scale{.above = 0};
  return {.name = "precision",
          .title = "number formats",
          .own_leaf = "format",
          .resumed = Resumed::learned,
          .rows = {{"precision", &s.format,
                    "number format: fp32 throughout (32-true); bf16 or fp16 compute with fp32 master weights "
                    "(bf16-mixed, 16-mixed); bf16-mixed whose blocks multiply numbers of 8 bits (fp8-mixed); "
                    "bf16 or fp16 weights and optimizer state (bf16-true, 16-true); auto is bf16-mixed on a GPU and "
                    "where the processor has AVX512-BF16 or AMX, else 32-true"},
                   {"precision.reduce", &s.reduce,
                    "dtype of a micro-batch's gradients, between ranks: auto and compute are the dtype of weights in "
                    "units"},
                   {"precision.gradients", &s.gradients,
                    "dtype in which gradients are summed, over ranks and micro-batches, and kept for the optimizer; "
                    "auto is fp32, and with bf16-true and 16-true compute"},
                   {"precision.rounding", &s.rounding,
                    "how bf16-true and 16-true keep an update: rounded to nearest; up or down at random "
                    "(stochastic); or with what was lost in a second tensor (kahan)"},
                   {"precision.scale_rule", &s.scale_rule,
                    "how the loss scale of 16-mixed changes: as in PyTorch's GradScaler, or as in DeepSpeed, where the "
                    "learning rate does not move on either when a step is skipped"},
                   {"precision.loss_scale", &s.loss_scale, "a loss scale that never changes, a power of two",
                    Rules{.above = 0, .absent = "null", .when_absent = "dynamic", .example = "1024"}},
                   {"precision.initial_loss_scale", &s.initial_loss_scale, "the loss scale of the first step", scale},
                   {"precision.loss_scale_window", &s.loss_scale_window, "good steps before the loss scale doubles",
                    Rules{.unit = "steps",
                          .at_least = 1,
                          .absent = "null",
                          .when_absent = "2000 as PyTorch, 1000 as DeepSpeed",
                          .example = "1000"}},
                   {"precision.loss_scale_hysteresis", &s.loss_scale_hysteresis,
                    "overflows before the loss scale halves; needs precision.scale_rule deepspeed",
                    Rules{.unit = "steps",
                          .at_least = 1,
                          .absent = "null",
                          .when_absent = "1 as PyTorch, 2 as DeepSpeed",
                          .example = "2"}},
                   {"precision.consecutive_hysteresis", &s.consecutive_hysteresis,
                    "a good step refills precision.loss_scale_hysteresis; needs precision.scale_rule deepspeed"},
                   {"precision.min_loss_scale", &s.min_loss_scale,
                    "the run stops if gradients overflow even at this loss scale", scale}},
          .others = {{{"dtype", "mixed_precision"}, "the number format is precision"},
                     {{"bf16", "amp"}, "the number format is precision bf16-mixed"},
                     {{"fp16"}, "the number format is precision 16-mixed"},
                     {{"fp32"}, "the number format is precision 32-true"},
                     {{"param", "param_dtype"}, "the dtype of weights in units is precision: bf16-mixed or 16-mixed"},
                     {{"reduce_dtype"}, "the dtype of gradients between ranks is precision.reduce"},
                     {{"buffer_dtype"}, "rotary tables and statistics are always float32; leave it out"},
                     {{"buffer"},
                      "rotary tables and statistics are always float32; the blocks that a disk moves at a time are "
                      "offload.buffers"},
                     {{"grad_accum_dtype"}, "the dtype of summed gradients is precision.gradients"},
                     {{"hysteresis"}, "the overflows before the scale halves are precision.loss_scale_hysteresis"},
                     {{"init_scale"}, "the first scale is precision.initial_loss_scale"},
                     {{"initial_scale_power"}, "the first scale is precision.initial_loss_scale, 2 to this power"},
                     {{"growth_interval"}, "good steps before the scale doubles are precision.loss_scale_window"},
                     {{"load_in_8bit"},
                      "LLM.int8 is not built; frozen weights in 8 bits are quantize q8_0 (in 4 bits: bnb.nf4), and "
                      "precision takes 32-true, bf16-mixed, 16-mixed, bf16-true, 16-true and 64-true",
                      true}},
          .check = [&s](config::Problems& problems) { check_precision(s, problems); }};
}

config::Section section(ModelSettings& s) {
  const auto shape = [](std::string_view example) {
    return Rules{.at_least = 1, .absent = "null", .when_absent = "the named model's", .example = example};
  };
  const auto scale = [](std::string_view example) {
    return Rules{.above = 0, .absent = "null", .when_absent = "the named model's", .example = example};
  };
  const Rules rate{.at_least = 0, .below = 1, .absent = "null", .when_absent = "the folder's, or 0", .example = "0.1"};
  return {
      .name = "model",
      .title = "its shape",
      .own_leaf = "name",
      .resumed = Resumed::learned,
      .rows =
          {{"model", &s.name,
            "name of the model's shape, for instance llama-32m, or a Hugging Face folder, whose weights training "
            "starts from; may stand first, without --model",
            Rules{.may_be_empty = true, .example = "llama-32m"}},
           {"model.from_scratch", &s.from_scratch, "new weights, even if the model is a folder with weights",
            Rules{.resumed = Resumed::yes}},
           {"model.model_type", &s.model_type,
            "architecture: llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, gpt2, gpt_neox, granite, olmo2, "
            "phi3, smollm3 or starcoder2; with task classify also bert, roberta, distilbert or encoder",
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
           {"model.initializer_range", &s.initializer_range,
            "standard deviation of initial weights; of the matrices that end attention and MLP, divided by sqrt(2 x "
            "blocks)",
            scale("0.02")},
           {"model.bidirectional", &s.bidirectional,
            "a token sees later ones too: makes the named shape an encoder (model_type encoder, "
            "docs/classification.md)",
            Rules{.absent = "null", .when_absent = "the named model's"}},
           {"model.norm_placement", &s.norm_placement,
            "norms of an encoder's blocks: before attention and MLP (pre), or behind the sums as in BERT (post)",
            Rules{.absent = "null", .when_absent = "the named model's, or pre", .example = "pre"}},
           {"model.hidden_act", &s.hidden_act, "activation of an encoder's MLP",
            Rules{.absent = "null", .when_absent = "the named model's, or gelu", .example = "relu"}},
           {"model.pooling", &s.pooling,
            "what an encoder's classification head reads of a text: its first token (cls), its last one, or the mean",
            Rules{.absent = "null", .when_absent = "the named model's, or mean", .example = "cls"}},
           {"model.num_labels", &s.num_labels, "labels of the classification head",
            Rules{
                .at_least = 2, .at_most = 65536, .absent = "null", .when_absent = "those of the data", .example = "3"}},
           {"model.labels", &s.labels, "names of these labels, in the order of their numbers",
            Rules{.absent = "null",
                  .when_absent = "those of the model's folder, or of the data, sorted",
                  .example = "[no, yes]"}},
           {"model.attention_dropout", &s.attention_dropout, "share of attention weights that training drops", rate},
           {"model.residual_dropout", &s.residual_dropout,
            "share of the outputs of attention and MLP that training drops before it adds them", rate},
           {"model.mlp_dropout", &s.mlp_dropout, "the same of the MLP alone",
            Rules{.at_least = 0,
                  .below = 1,
                  .absent = "null",
                  .when_absent = "as model.residual_dropout, or the folder's",
                  .example = "0"}},
           {"model.embedding_dropout", &s.embedding_dropout, "share of the first block's input that training drops",
            rate}},
      .others = {
          {{"model_name", "model_name_or_path"},
           "the model's name is the setting model, or the first word: trireme pretrain llama-32m"},
          {{"n_embd", "hidden_dim", "d_model"}, "the width is model.hidden_size"},
          {{"n_layer", "num_layers"}, "the number of blocks is model.num_hidden_layers"},
          {{"n_head", "num_heads"}, "the number of heads is model.num_attention_heads"},
          {{"n_query_groups"}, "key and value heads are model.num_key_value_heads"},
          {{"attn_pdrop", "attention_probs_dropout_prob"}, "dropout of attention weights is model.attention_dropout"},
          {{"resid_pdrop", "hidden_dropout"}, "dropout of what attention and MLP add is model.residual_dropout"},
          {{"embd_pdrop"}, "dropout of embeddings is model.embedding_dropout"},
          {{"hidden_dropout_prob", "dropout"},
           "dropout is model.attention_dropout, model.residual_dropout and model.embedding_dropout"},
          {{"tie_embeddings"}, "sharing the embedding with the head is model.tie_word_embeddings"},
          {{"init_from", "initial_checkpoint"},
           "to start from weights, name their folder as the model: trireme pretrain FOLDER; to continue a run, use "
           "resume"},
          {{"flash_attention", "use_flash_attn", "attn_implementation"},
           "attention is always computed in blocks that keep no scores; leave it out",
           true}}};
}

config::Section section(FreeSettings& s) {
  constexpr std::string_view kAsModel = "the named model's";
  return {
      .name = "free",
      .title = "the Free Transformer: a latent of bits for each token",
      .resumed = Resumed::learned,
      .rows =
          {{"free.latent_bits", &s.latent_bits,
            "bits of each token's latent; makes a Llama a Free Transformer (docs/free-transformer.md)",
            Rules{.unit = "bits",
                  .at_least = 1,
                  .at_most = kMostLatentBits,
                  .absent = "null",
                  .when_absent = "the named model's, or no latent",
                  .example = "16"}},
           {"free.split_layer", &s.split_layer,
            "blocks before the latent: the encoder reads what they compute, and the next block sees the latent",
            Rules{.unit = "blocks",
                  .at_least = 1,
                  .absent = "null",
                  .when_absent = "the named model's, or half of the blocks",
                  .example = "3"}},
           {"free.injection", &s.injection,
            "how bits become a vector: a row of a table of 2^bits rows, up to 20 bits; or W (2 bits - 1); auto is the "
            "named model's, or table, and bits above 20 bits"},
           {"free.free_bits", &s.free_bits,
            "divergence of a token's bits from the uniform prior that costs nothing (kappa)",
            Rules{.unit = "bits", .at_least = 0, .absent = "null", .when_absent = kAsModel, .example = "0.5"}},
           {"free.kl_weight", &s.kl_weight, "weight of what exceeds free.free_bits, in the loss",
            Rules{.at_least = 0, .absent = "null", .when_absent = kAsModel, .example = "1"}},
           {"free.latent", &s.latent, "generate with this code for every new token, instead of drawing one for each",
            Rules{.at_least = 0, .absent = "null", .when_absent = "drawn", .example = "5", .resumed = Resumed::yes}},
           {"free.latent_seed", &s.latent_seed,
            "draw the codes of new tokens from this seed: texts with the same one share their codes, and differ by "
            "generate.seed",
            Rules{.at_least = 0,
                  .absent = "null",
                  .when_absent = "generate.seed",
                  .example = "5",
                  .resumed = Resumed::yes}}},
      .others = {{{"latent_dim"}, "the bits of a token's latent are free.latent_bits"},
                 {{"kappa", "kappa_free_bits"}, "the divergence that costs nothing is free.free_bits, in bits"},
                 {{"beta_kl"}, "the weight of the divergence is free.kl_weight"},
                 {{"beta", "kl_coef"},
                  "the weight of the distance to the reference is dpo.beta for pairs and grpo.beta for rewards; of a "
                  "latent's divergence it is free.kl_weight"}},
      .check = [&s](config::Problems& problems) {
        if (s.latent && s.latent_seed)
          problems.add("free.latent gives all new tokens one code, and free.latent_seed draws a code for each", {},
                       "give one of the two");
      }};
}

config::Section quantize_section(ModelSettings& s) {
  return {
      .name = "",
      .title = "the whole run",
      .resumed = Resumed::learned,
      .rows =
          {{"quantize",
            &s.quantize,
            "keep the matrices of all blocks in few bits: bnb.* as bitsandbytes does in 4 bits, -dq with scales in 8 "
            "bits; q8_0 and q4_0 as GGUF does in 8 and 4 bits. finetune_lora then trains adapters beside them "
            "(QLoRA)",
            {.other_values = {{"bnb.int8", "LLM.int8 is not built; q8_0 keeps the matrices in 8 bits"},
                              {"int8", "LLM.int8 is not built; q8_0 keeps the matrices in 8 bits"}}}},
           {"quantize_head", &s.quantize_head,
            "generate and evaluate: keep the head's matrix in few bits too, and the embedding's if they are one. It "
            "is read for each token: fewer bytes are faster, but q4_0 changes more of what is written than q8_0"}},
      .others = {{{"load_in_4bit", "bnb_4bit_quant_type", "bnb_"}, "weights in 4 bits are quantize bnb.nf4"}}};
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
