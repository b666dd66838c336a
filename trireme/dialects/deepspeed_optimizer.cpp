// DeepSpeed's optimizer: the keys, and what they mean here. Source: DeepSpeed 0.19 (deepspeed/runtime/config.py,
// engine.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/dialects/deepspeed_parts.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects::ds {

using config::Given;

namespace {

void optimizer(Reading& r, const Given& entry) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames = {{{"adam", "Adam"},
                                                                                    {"adamw", "AdamW"},
                                                                                    {"sgd", "SGD"},
                                                                                    {"lion", "Lion"},
                                                                                    {"adagrad", "Adagrad"},
                                                                                    {"lamb", "LAMB"},
                                                                                    {"muon", "Muon"}}};
  const std::string type = lower(entry.text);
  for (const auto& [theirs, ours] : kNames) {
    if (type != theirs) continue;
    const bool is_adamw = type == "adam" && r.flag("optimizer.params.adam_w_mode", true);
    const std::string_view name = is_adamw ? "AdamW" : ours;
    if (!r.can("optimizer", name)) return r.refuse_open(entry, fmt::format("the optimizer {}", name));
    return r.set("optimizer", name, entry);
  }
  constexpr std::string_view kCompressed[] = {"onebitadam", "zerooneadam", "onebitlamb"};
  r.refuse(entry, fmt::format("there is no optimizer {}", entry.text),
           std::ranges::find(kCompressed, type) != std::end(kCompressed)
               ? "momentum is not compressed here: take Adam, or Lamb for OneBitLamb"
               : "there are Adam, AdamW, SGD, Lion, Adagrad, Lamb and Muon");
}

// `optimizer` reads it.
void adam_mode(Reading& r, const Given& entry) {
  lower(r.text("optimizer.type")) == "adam" ? r.tell(entry, r.flag(entry.key) ? "optimizer AdamW" : "optimizer Adam")
                                            : r.ignore(entry, "only Adam reads it");
}

void bias_correction(Reading& r, const Given& entry) {
  if (r.flag(entry.key)) return r.ignore(entry, "moments are always corrected for their bias");
  r.refuse(entry, "moments are always corrected for their bias here", "say bias_correction true, or leave it out");
}

void state_dtype(Reading& r, const Given& entry) {
  if (r.flag(entry.key)) return r.ignore(entry, "moments are kept in fp32");
  r.refuse(entry, "moments are kept in fp32 here", "say fp32_optimizer_states true, or leave it out");
}

void norm_of_optimizer(Reading& r, const Given& entry) {
  r.refuse(entry, "DeepSpeed's optimizers have no max_grad_norm", "say gradient_clipping");
}

// Lamb's bounds of the ratio of norms, which stand in two keys.
void trust_bounds(Reading& r) {
  const Given *least = r.find("optimizer.params.min_coeff"), *most = r.find("optimizer.params.max_coeff");
  const bool is_lamb = lower(r.text("optimizer.type")) == "lamb";
  if (is_lamb && (least != nullptr || most != nullptr))
    r.set("optimizer.trust_bounds",
          fmt::format("[{}, {}]", r.text("optimizer.params.min_coeff", "0.01"),
                      r.text("optimizer.params.max_coeff", "10")),
          least != nullptr ? *least : *most);
  for (const Given* one : {least, most})
    if (one != nullptr && !r.is_settled(*one))
      is_lamb ? r.tell(*one, "optimizer.trust_bounds") : r.ignore(*one, "only Lamb reads it");
}

// The file's optimizer; "" if another one counts more.
std::string type_that_counts(const Reading& r) {
  const std::string type = lower(r.text("optimizer.type"));
  return lower(r.known("optimizer").value_or("")) == type ? type : "";
}

}  // namespace

std::vector<Row> optimizer_rows() {
  using enum Takes;
  return {
      {.key = "optimizer.type",
       .takes = text,
       .becomes = "optimizer: Adam (AdamW unless adam_w_mode is false), AdamW, SGD, Lion, Adagrad, Lamb (LAMB), Muon",
       .by = optimizer},
      {.key = "optimizer.legacy_fusion", .takes = flag, .ignored = kFused},
      {.key = "optimizer.params.lr", .takes = number, .setting = "optimizer.lr", .automatic = "optimizer.lr is left"},
      {.key = "optimizer.params.betas",
       .takes = numbers,
       .setting = "optimizer.betas",
       .automatic = "optimizer.betas is left"},
      {.key = "optimizer.params.eps",
       .takes = number,
       .setting = "optimizer.eps",
       .automatic = "optimizer.eps is left"},
      {.key = "optimizer.params.weight_decay",
       .takes = number,
       .setting = "optimizer.weight_decay",
       .automatic = "optimizer.weight_decay is left"},
      {.key = "optimizer.params.momentum", .takes = number, .setting = "optimizer.momentum"},
      {.key = "optimizer.params.nesterov", .takes = flag, .setting = "optimizer.nesterov"},
      {.key = "optimizer.params.adam_w_mode",
       .takes = flag,
       .becomes = "optimizer: Adam is AdamW, or Adam if false",
       .by = adam_mode},
      {.key = "optimizer.params.torch_adam", .takes = flag, .ignored = "the kernel of an optimizer is not chosen here"},
      {.key = "optimizer.params.fused", .takes = flag, .ignored = kFused},
      {.key = "optimizer.params.foreach", .takes = flag, .ignored = kFused},
      {.key = "optimizer.params.capturable", .takes = flag, .ignored = kNoGraph},
      {.key = "optimizer.params.bias_correction",
       .takes = flag,
       .becomes = "nothing: refused unless true",
       .by = bias_correction},
      {.key = "optimizer.params.fp32_optimizer_states",
       .takes = flag,
       .becomes = "nothing: refused unless true",
       .by = state_dtype},
      {.key = "optimizer.params.eps_inside_sqrt",
       .takes = flag,
       .refused = "LAMB adds eps to the root, not inside of it; leave it out"},
      {.key = "optimizer.params.ns_method", .takes = text, .ignored = "Muon's iteration has one form here"},
      {.key = "optimizer.params.max_grad_norm",
       .takes = number,
       .becomes = "nothing: refused, as by DeepSpeed",
       .by = norm_of_optimizer},
      {.key = "optimizer.params.amsgrad", .takes = flag, .refused = kNoAmsgrad},
      {.key = "optimizer.params.dampening", .takes = number, .refused = kNoDampening},
      {.key = "optimizer.params.maximize", .takes = flag, .refused = kMinimised},
      {.key = "optimizer.params.max_coeff", .takes = number, .becomes = "optimizer.trust_bounds of LAMB"},
      {.key = "optimizer.params.min_coeff", .takes = number, .becomes = "optimizer.trust_bounds of LAMB"},
      {.key = "optimizer.params.muon_lr", .takes = number, .setting = "optimizer.lr"},
      {.key = "optimizer.params.adam_lr", .takes = number, .setting = "optimizer.adam_lr"},
      {.key = "optimizer.params.freeze_step", .takes = count, .ignored = "only 1-bit optimizers read it"},
      {.key = "optimizer.params.cuda_aware", .takes = flag, .ignored = "only 1-bit optimizers read it"},
      {.key = "optimizer.params.comm_backend_name",
       .takes = text,
       .ignored = "comm.backend chooses how ranks communicate"},
      {.key = "optimizer.params.var_freeze_step", .takes = count, .ignored = "only 1-bit optimizers read it"},
      {.key = "optimizer.params.var_update_scaler", .takes = count, .ignored = "only 1-bit optimizers read it"},
      {.key = "optimizer.params.local_step_scaler", .takes = count, .ignored = "only 1-bit optimizers read it"},
      {.key = "optimizer.params.local_step_clipper", .takes = count, .ignored = "only 1-bit optimizers read it"},
  };
}

void suggest_rate(Reading& r) {
  constexpr std::string_view kRate = "optimizer.params.lr";
  const std::string type = type_that_counts(r);
  if (r.find(kRate) != nullptr || r.is_left(kRate) || sets_all_rates(r)) return;
  if (type == "adagrad") r.suggest("optimizer.lr", "0.01");
  if (type != "muon") return;
  r.suggest("optimizer.lr", "0.02");
  r.suggest("optimizer.adam_lr", "3e-4");
}

// Where the defaults of DeepSpeed's optimizers are not Trireme's: FusedLion, and what Muon leaves to Adam.
void finish_optimizer(Reading& r) {
  trust_bounds(r);
  const std::string type = type_that_counts(r);
  if ((type == "lion" || type == "muon") && !r.is_left("optimizer.params.betas"))
    r.suggest("optimizer.betas", type == "lion" ? "[0.9, 0.999]" : "[0.9, 0.95]");
  if (type == "muon" && !r.is_left("optimizer.params.eps")) r.suggest("optimizer.eps", "1e-10");
  if (r.find("optimizer.type") != nullptr && !r.is_left("optimizer.params.weight_decay"))
    r.suggest("optimizer.weight_decay", "0");
}

}  // namespace trireme::dialects::ds
