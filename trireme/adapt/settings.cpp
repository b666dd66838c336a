#include "trireme/adapt/settings.h"

#include "trireme/config/problems.h"

namespace trireme::adapt {

using config::Resumed;
using config::Rules;

config::Section section(LoraSettings& s) {
  const auto names = [](std::string_view when_absent, std::string_view example) {
    return Rules{.absent = "null", .when_absent = when_absent, .example = example};
  };
  return {
      .name = "lora",
      .title = "low-rank adapters",
      .resumed = Resumed::learned,
      .rows =
          {{"lora.r", &s.r, "rank of the adapters; the model's own weights are then frozen",
            Rules{.at_least = 1,
                  .at_most = 1 << 20,
                  .absent = "none",
                  .when_absent = "no adapters: all weights are trained",
                  .example = "8"}},
           {"lora.alpha", &s.alpha, "adapters are scaled by alpha / r", Rules{.above = 0}},
           {"lora.dropout", &s.dropout, "share of an adapter's input that is dropped",
            Rules{.at_least = 0, .below = 1}},
           {"lora.query", &s.query, "adapters on the query projections"},
           {"lora.key", &s.key, "adapters on the key projections"},
           {"lora.value", &s.value, "adapters on the value projections"},
           {"lora.projection", &s.projection, "adapters on the attention's output projections"},
           {"lora.mlp", &s.mlp, "adapters on the matrices of the MLP"},
           {"lora.head", &s.head, "an adapter on the head"},
           {"lora.target_modules", &s.target_modules,
            "modules with adapters, as PEFT names them: names or ends of names, all-linear, or one regular expression",
            names("what lora.query to lora.head say", "[q_proj, v_proj]")},
           {"lora.exclude_modules", &s.exclude_modules, "modules without adapters, although they are targets",
            names("none", "[layers.0.self_attn.q_proj]")},
           {"lora.layers_to_transform", &s.layers_to_transform, "numbers of the blocks that have adapters",
            names("all blocks", "[0, 1]")},
           {"lora.modules_to_save", &s.modules_to_save, "modules that are trained whole beside the adapters",
            names("none", "[norm]")},
           {"lora.rank_pattern", &s.rank_pattern, "ranks that differ from lora.r, as ends of names with a rank",
            names("none", "[q_proj=16]")},
           {"lora.alpha_pattern", &s.alpha_pattern, "values that differ from lora.alpha, as ends of names with a value",
            names("none", "[q_proj=32]")},
           {"lora.rslora", &s.rslora, "adapters are scaled by alpha / sqrt(r) instead"},
           {"lora.dora", &s.dora, "each output of an adapted matrix has a trained magnitude (DoRA)"},
           {"lora.bias", &s.bias,
            "B of each adapter has a trained bias (PEFT's lora_bias); generate, evaluate, merge_lora and convert then "
            "need a base with biases"},
           {"lora.init", &s.init,
            "first values of A: uniform as in PEFT (kaiming), or gaussian with deviation 1 / r; B is zero, except with "
            "random"},
           {"lora.plus_ratio", &s.plus_ratio, "the learning rate of B is this many times that of A (LoRA+)",
            Rules{.above = 0, .absent = "none", .when_absent = "the same rate", .example = "16"}},
           {"lora.initial_adapter", &s.initial_adapter,
            "folder of an adapter that training starts from; its configuration counts instead of these settings",
            Rules{.absent = "none",
                  .when_absent = "new adapters",
                  .example = "out/finetune/lora",
                  .resumed = Resumed::yes}}},
      .others = {{{"rank", "lora_rank", "lora_dim"}, "the rank of adapters is lora.r"},
                 {{"use_rslora"}, "scaling by alpha / sqrt(r) is lora.rslora"},
                 {{"use_dora"}, "magnitudes (DoRA) are lora.dora"},
                 {{"lora_bias"}, "a bias of each B is lora.bias"},
                 {{"initial_adapter"}, "the adapter to start from is lora.initial_adapter"},
                 {{"loraplus_lr_ratio"}, "the ratio of LoRA+ is lora.plus_ratio"},
                 {{"qlora", "peft"}, "adapters go with lora.r, and weights in 4 bits with quantize bnb.nf4"}}};
}

}  // namespace trireme::adapt
