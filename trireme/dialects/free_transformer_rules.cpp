// What free-transformer's keys mean together: strategy, precision, batch, shape. Source: TrainingConfig, and the pages
// on multi-GPU training.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/units.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/free_transformer_rules.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/offload.h"

namespace trireme::dialects {

using config::Given;

namespace {

std::string number_text(double value) { return fmt::format("{}", value); }

void choose_precision(Reading& r) {
  const Given *fsdp = r.find("distributed.fsdp_param_dtype"), *mixed = r.find("distributed.fsdp_mixed_precision");
  const Given *bf16 = r.find("training.bf16"), *fp16 = r.find("training.fp16");
  const bool is_mixed = mixed == nullptr || r.flag(mixed->key);
  if (fsdp != nullptr && is_mixed)
    set_format(r, *fsdp);
  else if (bf16 != nullptr && r.flag(bf16->key))
    r.set("precision", "bf16-mixed", *bf16);
  else if (fp16 != nullptr && r.flag(fp16->key))
    r.set("precision", "16-mixed", *fp16);
  else if (const Given* off = mixed != nullptr && !is_mixed ? mixed : bf16 != nullptr ? bf16 : fp16; off != nullptr)
    r.set("precision", "32-true", *off);
  for (const Given* entry : {fsdp, mixed, bf16, fp16})
    if (entry != nullptr && !r.is_settled(*entry)) r.ignore(*entry, "precision has one source");
  const Given* reduced = r.find("distributed.fsdp_reduce_dtype");
  if (reduced == nullptr) return;
  if (!is_mixed) return r.ignore(*reduced, "fsdp_mixed_precision is false");
  set_gradient_dtype(r, "precision.reduce", *reduced);
}

void choose_strategy(Reading& r) {
  const Given* sharding = r.find("distributed.fsdp_sharding_strategy");
  const Given* use =
      r.find("distributed.use_fsdp") != nullptr ? r.find("distributed.use_fsdp") : r.find("training.use_fsdp");
  if (use == nullptr) use = r.find("use_fsdp");
  for (const std::string_view key : {"training.use_fsdp", "use_fsdp"})
    if (const Given* other = r.find(key); other != nullptr && other != use) r.tell(*other, "strategy full_shard");
  if (use != nullptr && !r.flag(use->key)) {
    r.set("strategy", "no_shard", *use);
    if (sharding != nullptr) r.ignore(*sharding, "use_fsdp is false");
    return;
  }
  const std::string name = sharding == nullptr ? "full_shard" : lower(sharding->text);
  if (name != "full_shard" && name != "shard_grad_op" && name != "no_shard") {
    r.refuse(*sharding, fmt::format("there is no fsdp_sharding_strategy {}", sharding->text),
             "there are full_shard, shard_grad_op and no_shard");
    return;
  }
  if (sharding != nullptr) r.set("strategy", name, *sharding);
  if (use != nullptr) sharding != nullptr ? r.tell(*use, "strategy") : r.set("strategy", name, *use);
  if (use == nullptr && sharding == nullptr && r.is_file()) r.suggest("strategy", "no_shard");
}

void choose_betas(Reading& r) {
  const Given *one = r.find("training.beta1"), *two = r.find("training.beta2");
  const std::string betas = fmt::format("[{}, {}]", r.text("training.beta1", "0.9"), r.text("training.beta2", "0.95"));
  if (one == nullptr && two == nullptr) return;
  r.set("optimizer.betas", betas, one != nullptr ? *one : *two);
  if (one != nullptr && two != nullptr) r.tell(*two, "optimizer.betas " + betas);
}

// Ratios of a run's length and of its rate, once both are known.
void choose_ratios(Reading& r) {
  if (const Given* warmup = r.find("training.warmup_ratio"))
    set_warmup_share(r, *warmup, "training.max_steps, or warmup_steps");
  if (const Given* lowest = r.find("training.min_lr_ratio")) {
    const double lr = base::parse_number(r.known("optimizer.lr").value_or("3e-4")).value_or(3e-4);
    r.set("train.min_lr", number_text(r.number(lowest->key).value_or(0) * lr), *lowest);
  }
}

void choose_shape(Reading& r) {
  const auto hidden = r.count("model.hidden_dim"), heads = r.count("model.num_heads");
  if (!hidden) return;
  r.suggest("model", "llama-5m");  // every number of its shape is replaced
  const int64_t n = std::max<int64_t>(heads.value_or(32), 1);
  const std::pair<std::string_view, std::string> defaults[] = {
      {"model.head_dim", std::to_string(std::max<int64_t>(*hidden / n, 1))},
      {"model.vocab_size", "32000"},
      {"model.num_hidden_layers", "32"},
      {"model.num_attention_heads", std::to_string(n)},
      {"model.num_key_value_heads", std::to_string(n)},
      {"model.intermediate_size", "11008"},
      {"model.max_position_embeddings", "2048"},
      {"model.rms_norm_eps", "1e-06"},
      {"model.rope_theta", "10000"},
      {"model.tie_word_embeddings", "true"},
      {"model.initializer_range", "0.02"}};
  for (const auto& [setting, value] : defaults) r.suggest(setting, value);
}

// What the code of free-transformer takes if a file of a Free Transformer does not say.
void choose_latent(Reading& r) {
  for (const std::string_view key : {"model.latent_dim", "model.split_layer", "training.beta_kl",
                                     "training.kappa_free_bits", "training.kl_weight", "training.free_bits"})
    if (r.find(key) != nullptr) {
      r.suggest("free.latent_bits", "16");
      r.suggest("free.free_bits", "0.5");
      return;
    }
}

}  // namespace

void finish_free_transformer(Reading& r) {
  choose_strategy(r);
  finish_offload(r);
  if (!r.is_file()) return;
  choose_precision(r);
  choose_betas(r);
  r.suggest("optimizer.lr", "3e-4");
  r.suggest("optimizer.weight_decay", "0.1");
  if (lower(r.known("optimizer").value_or("")).starts_with("adam")) r.suggest("optimizer.betas", "[0.9, 0.95]");
  r.suggest("train.lr_warmup_steps", "2000");
  choose_ratios(r);
  set_batch(r, "", "training.batch_size", "training.gradient_accumulation_steps");
  choose_shape(r);
  choose_latent(r);
}

}  // namespace trireme::dialects
