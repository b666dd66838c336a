// DeepSpeed's number formats: fp16, bf16, torch_autocast, and the dtypes of gradients. Sources: DeepSpeed 0.19
// (deepspeed/runtime/precision_config.py, engine.py: get_data_types, communication_data_type).
#include <fmt/format.h>

#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/number_formats.h"

namespace trireme::dialects::ds {

using config::Given;

namespace {

bool computes_in_fp16(const Reading& r) {
  return r.flag("fp16.enabled") || (r.is_left("fp16.enabled") && compute_dtype(r) == "fp16");
}

void mixed(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const bool half = entry.key.starts_with("fp16");
  if (const Given* other = r.find(half ? "bf16.enabled" : "fp16.enabled"); other != nullptr && r.flag(other->key)) {
    if (half) r.refuse_both(entry, *other, "fp16 and bf16 are both enabled", "keep one of them");
    return;
  }
  const bool whole = !half && r.flag("bf16.bf16_master_weights_and_grads");
  r.set("precision", half ? "16-mixed" : whole ? "bf16-true" : "bf16-mixed", entry);
}

// Without fp32 masters DeepSpeed keeps fp32 moments only on the processor, beside an offload.
void without_masters(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const Given* enabled = r.find("bf16.enabled");
  if (enabled == nullptr || !r.flag(enabled->key)) return r.ignore(entry, "bf16 is off");
  const Given* states = r.find("bf16.bf16_optimizer_states");
  if (states == nullptr || !r.flag(states->key))
    return r.refuse_open(entry, "fp32 moments of bf16 weights; say bf16_optimizer_states true too");
  if (stage_of(r) == 0)
    return r.refuse(entry, "bf16_master_weights_and_grads needs ZeRO's stage 1, 2 or 3",
                    "or say --precision bf16-true");
  r.tell(entry, "precision bf16-true");
}

void bf16_states(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  if (!r.flag("bf16.bf16_master_weights_and_grads"))
    return r.refuse(entry, "bf16_optimizer_states needs bf16_master_weights_and_grads",
                    "say it too, or leave both out");
  r.tell(entry, "precision bf16-true");
}

void loss_scale(Reading& r, const Given& entry) {
  if (!computes_in_fp16(r)) return r.ignore(entry, "fp16 is off");
  const std::string name = entry.key.substr(entry.key.rfind('.') + 1);
  if (name == "loss_scale" && r.number(entry.key) == 0.0) return r.ignore(entry, "0 means a dynamic loss scale");
  if (name == "initial_scale_power") {
    const int64_t power = r.count(entry.key).value_or(16);
    if (power < 0 || power > 60)
      return r.refuse(entry, fmt::format("fp16.initial_scale_power {} is not from 0 to 60", power),
                      "16 is the default");
    return r.set("precision.initial_loss_scale", std::to_string(int64_t{1} << power), entry);
  }
  r.set(name == "hysteresis" ? "precision.loss_scale_hysteresis" : "precision." + name, entry.text, entry);
}

void autocast(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const std::string_view format = mixed_format(r.text("torch_autocast.dtype", "bfloat16"));
  if (format.empty() || format == "32-true")
    return r.refuse(*r.find("torch_autocast.dtype"), "torch_autocast computes in bfloat16 or float16", "take bfloat16");
  // Beside fp16 or bf16 it says nothing more: weights have that dtype already, with fp32 masters or without.
  for (const std::string_view key : {"fp16.enabled", "bf16.enabled"}) {
    if (!r.flag(key)) continue;
    if (format != (key == "bf16.enabled" ? "bf16-mixed" : "16-mixed"))
      return r.refuse_both(entry, *r.find(key), fmt::format("torch_autocast computes in another dtype than {}", key),
                           "let both say the same, or leave torch_autocast out");
    return r.tell(entry, fmt::format("precision, as {} says it", key));
  }
  r.set("precision", format, entry);
}

// Gradients in fp32 may be sent in two bytes, as bf16 only.
void communication(Reading& r) {
  const Given* entry = r.find("communication_data_type");
  if (entry == nullptr) return;
  if (compute_dtype(r) == "fp32" && dtype_word(entry->text) == "bf16")
    r.set("comm.compression", "bf16", *entry);
  else
    set_gradient_dtype(r, "precision.reduce", *entry);
}

void data_types(Reading& r) {
  if (const Given* sums = r.find("data_types.grad_accum_dtype")) set_gradient_dtype(r, "precision.gradients", *sums);
  const Given* weights = r.find("data_types.param_dtype");
  if (weights == nullptr) return;
  if (dtype_word(weights->text) == compute_dtype(r)) return r.ignore(*weights, "precision says it");
  r.refuse(*weights, fmt::format("param_dtype {} contradicts fp16.enabled and bf16.enabled", weights->text),
           "enable the same, or leave param_dtype out");
}

}  // namespace

std::vector<Row> precision_rows() {
  using enum Takes;
  constexpr std::string_view kScale = "precision.loss_scale and its companions, with precision.scale_rule deepspeed";
  return {
      {.key = "fp16.enabled",
       .takes = flag,
       .becomes = "precision 16-mixed",
       .by = mixed,
       .automatic = "precision is left"},
      {.key = "fp16.auto_cast", .takes = flag, .ignored = "batches are tokens, which are not cast"},
      {.key = "fp16.loss_scale", .takes = number, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.initial_scale_power", .takes = count, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.loss_scale_window", .takes = count, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.hysteresis", .takes = count, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.consecutive_hysteresis", .takes = flag, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.min_loss_scale", .takes = number, .becomes = kScale, .by = loss_scale},
      {.key = "fp16.fp16_master_weights_and_grads",
       .takes = flag,
       .open = "fp16 masters, which DeepSpeed has beside an offload of the optimizer only"},
      {.key = "bf16.enabled",
       .takes = flag,
       .becomes = "precision bf16-mixed, or bf16-true with bf16_master_weights_and_grads",
       .by = mixed,
       .automatic = "precision is left"},
      {.key = "bf16.immediate_grad_update", .takes = flag, .ignored = "gradients are summed as they come"},
      {.key = "bf16.check_grad_overflow", .takes = flag, .ignored = "a gradient that is not finite is always told"},
      {.key = "bf16.bf16_master_weights_and_grads",
       .takes = flag,
       .becomes = "precision bf16-true, with bf16_optimizer_states",
       .by = without_masters},
      {.key = "bf16.bf16_optimizer_states",
       .takes = flag,
       .becomes = "precision bf16-true, with bf16_master_weights_and_grads",
       .by = bf16_states},
      {.key = "amp.enabled", .takes = flag, .refused = "apex is not used here; take bf16 or fp16 instead"},
      {.key = "amp.*", .ignored = "only amp reads it"},
      {.key = "torch_autocast.enabled",
       .takes = flag,
       .becomes = "precision bf16-mixed, or 16-mixed for float16",
       .by = autocast},
      {.key = "torch_autocast.dtype",
       .takes = text,
       .becomes = "precision, with torch_autocast.enabled",
       .by =
           [](Reading& r, const Given& entry) {
             r.flag("torch_autocast.enabled") ? r.tell(entry, "precision") : r.ignore(entry, "torch_autocast is off");
           }},
      {.key = "torch_autocast.lower_precision_safe_modules",
       .ignored = "products are computed in the lower precision, norms, softmax and losses in fp32"},
      {.key = "communication_data_type",
       .takes = text,
       .becomes =
           "precision.reduce: fp32, or compute for the dtype of units; comm.compression bf16 for bf16 beside fp32"},
      {.key = "seq_parallel_communication_data_type", .takes = text, .ignored = kSequenceDtype},
      {.key = "data_types.grad_accum_dtype",
       .takes = text,
       .becomes = "precision.gradients: fp32 (also the default here), or compute for the dtype of units"},
      {.key = "data_types.param_dtype", .takes = text, .becomes = "nothing: refused unless it is what precision says"},
      {.key = "data_types.buffer_dtype", .takes = text, .ignored = "rotary angles are computed in fp32"},
  };
}

void finish_precision(Reading& r) {
  if (computes_in_fp16(r)) {
    r.suggest("precision.scale_rule", "deepspeed");
    r.suggest("precision.initial_loss_scale", "65536");
    r.suggest("precision.loss_scale_window", "1000");
    r.suggest("precision.loss_scale_hysteresis", "2");
    r.suggest("precision.min_loss_scale", "1");
  }
  if (!r.is_left("fp16.enabled") && !r.is_left("bf16.enabled")) r.suggest("precision", "32-true");
  communication(r);
  data_types(r);
}

}  // namespace trireme::dialects::ds
