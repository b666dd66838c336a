// LitGPT's flags and YAML (jsonargparse). Most of its names are Trireme's too, so a key that is in no row is Trireme's.
// Sources: litgpt/args.py, pretrain.py, finetune/{full,lora}.py, config_hub, extensions/thunder.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/dialects/batch.h"
#include "trireme/dialects/litgpt_model.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reading.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects {
namespace {

using config::Given;

// torch.optim.AdamW, litgpt.data.Alpaca; my.txt is a file.
void last_part(Given& given) {
  constexpr std::string_view kModules[] = {"torch.",        "torchao.",      "litgpt.",       "lit_gpt.",
                                           "lightning.",    "bitsandbytes.", "galore_torch.", "deepspeed.",
                                           "transformers.", "thunder."};
  const std::string name = given.text.substr(given.text.rfind('.') + 1);
  const bool is_class = !name.empty() && std::isupper(static_cast<unsigned char>(name[0])) != 0;  // of a user's module
  if (!is_class &&
      std::ranges::none_of(kModules, [&](std::string_view module) { return given.text.starts_with(module); }))
    return;
  const bool is_name =
      std::ranges::all_of(given.text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
  if (is_name) given.text.erase(0, given.text.rfind('.') + 1);
}

void strategy(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  const bool hybrid = name == "hybrid_shard" || name == "_hybrid_shard_zero2";
  const bool zero2 = name == "zero2" || name == "shard_grad_op" || name == "_hybrid_shard_zero2";
  if (hybrid && r.known_count("num_nodes").value_or(1) > 1)
    return r.set("strategy", zero2 ? "hybrid_shard_zero2" : "hybrid_shard", entry);
  if (hybrid || name == "zero3" || name == "full_shard")
    return r.set("strategy", zero2 ? "shard_grad_op" : "full_shard", entry);
  if (zero2) return r.set("strategy", "shard_grad_op", entry);
  if (name == "no_shard") return r.set("strategy", "no_shard", entry);
  r.refuse(entry, fmt::format("there is no sharding strategy {}", entry.text),
           "there are ZERO2, ZERO3, FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD and NO_SHARD");
}

// Whether the file is one of LitGPT's fine-tuning commands. A command that does not train goes by the file's keys.
bool tunes_adapters(const Reading& r) {
  if (r.command() == "pretrain" || r.command().starts_with("finetune")) return r.command() == "finetune_lora";
  for (const char* key : {"lora_r", "lora_alpha", "lora_dropout", "lora_query", "lora_key", "lora_value",
                          "lora_projection", "lora_mlp", "lora_head"})
    if (r.has(key)) return true;
  return false;
}

bool tunes_weights(const Reading& r) {
  return r.command().starts_with("finetune") || (r.command() != "pretrain" && r.find("checkpoint_dir") != nullptr);
}

// LitGPT's finetune/*.py: step / warmup, then a cosine to 0, whatever train.min_lr says. The first step has rate 0.
void tuning_schedule(Reading& r) {
  if (r.known("train.lr_decay") != "cosine") return;
  if (const Given* entry = r.find("train.min_lr")) {
    r.take_back(*entry, entry->key);
    r.ignore(*entry, "LitGPT does not read it when it tunes: rates fall to 0");
  }
  suggest_first_step_0(r);
}

// LitGPT's pretrain.py counts micro-batches from 0, and a step has the rate of its last one. Step k of a warm-up has
// (k - 1/g) / warmup with g micro-batches a step. That is k - 1 for one, and nearest to k for more.
void pretraining_schedule(Reading& r) {
  const auto global = r.known_count("train.global_batch_size"), micro = r.known_count("train.micro_batch_size");
  const bool accumulates = !global || !micro || *global != *micro * r.data_ranks();
  if (!accumulates && r.known("train.lr_decay") == "cosine") suggest_first_step_0(r);
}

// LitGPT's data modules put each conversation into a row of its own, so a batch counts conversations. They learn
// prompts too, unless mask_prompt says another. They write a conversation in Alpaca's form unless prompt_style says
// another, whatever the model was trained in.
void tuning_data(Reading& r) {
  const bool is_placed = r.known("data.train_data_path").has_value() || r.known("data.mixture").has_value();
  if (!is_placed) r.suggest("data", "Alpaca");  // what it tunes on without data
  r.suggest("data.packing", "none");
  r.suggest("data.learn", "all");
  constexpr std::string_view kOthers[] = {"flan", "longform", "textfiles", "austen"};  // these have a form of their own
  const std::string set = lower(r.known("data").value_or(""));
  if (!r.is_given("data") || std::ranges::find(kOthers, set) == std::end(kOthers))
    r.suggest("data.chat_template", "alpaca");
}

// Each of LitGPT's classes of data holds out a share of its own; the others have files for it, or none here.
void held_out_share(Reading& r, bool tunes) {
  constexpr std::pair<std::string_view, std::string_view> kShares[] = {{"alpaca", "0.03865"},     {"alpaca2k", "0.05"},
                                                                       {"alpacagpt4", "0.03847"}, {"dolly", "0.1"},
                                                                       {"lima", "0.1"},           {"json", "0.05"}};
  if (r.known("data.mixture") || r.known("data.val_data_path")) return;
  const bool is_named = r.is_given("data") || !r.known("data.train_data_path");
  if (!is_named && !tunes) return;
  const std::string set = is_named ? lower(r.known("data").value_or("")) : "json";  // a file alone is JSON's
  for (const auto& [name, share] : kShares)
    if (set == name) r.suggest("data.val_split_fraction", share);
}

// PyTorch's Adafactor multiplies the rate by the size of each tensor. It decays weights by the rate alone, and holds
// the rate below 1 / sqrt(step). Neither is built, so a file that needs it is refused. A file may also name the class
// of transformers, whose rate follows from the step and from the size of each tensor.
void adafactor(Reading& r) {
  if (r.known("optimizer") != "Adafactor") return;
  const bool is_plain = r.is_given("optimizer.scale_parameter") || r.is_given("optimizer.relative_step");
  r.suggest("optimizer.scale_parameter", "true");
  if (r.text("optimizer").starts_with("transformers.")) {
    if (!r.is_given("optimizer.lr")) r.suggest("optimizer.relative_step", "true");
    return;
  }
  if (is_plain) return;
  constexpr std::string_view kDecay = "optimizer.weight_decay";
  if (const Given* decay = r.find(kDecay);
      decay != nullptr && !r.counts_more(kDecay) && r.number(kDecay).value_or(0) > 0)
    r.refuse(*decay, "PyTorch's Adafactor decays by the rate, and here its decay also follows the size of each tensor",
             "set weight_decay 0, or take AdamW");
  if (r.counts_more("optimizer.lr")) return;
  for (const std::string_view key : {"optimizer.lr", "train.learning_rate"})
    if (const Given* rate = r.find(key); rate != nullptr && r.number(key).value_or(0) > 0.01)
      r.refuse(
          *rate,
          fmt::format("PyTorch's Adafactor holds its rate below 1 / sqrt(step), and here {} counts always", rate->text),
          "give a rate of at most 0.01");
}

// torch.optim's own rates, which count where a file has none.
void rate(Reading& r) {
  const std::string rule = r.known("optimizer").value_or("");
  r.suggest("optimizer.lr", rule == "Adagrad" || rule == "Adafactor" ? "0.01" : "0.001");
}

// A length that is null is none.
void tuning_length(Reading& r) {
  const bool ends = std::ranges::any_of(std::to_array({"train.max_steps", "train.max_tokens", "train.max_time"}),
                                        [&](const char* key) { return r.known(key).value_or("null") != "null"; });
  if (!ends) r.suggest("train.epochs", "5");
}

// Defaults of `litgpt pretrain` and of its fine-tuning commands where they differ from Trireme's. Flags alone are not
// enough to say that LitGPT's are meant, because they are Trireme's too.
void finish_litgpt(Reading& r) {
  finish_litgpt_model(r);
  finish_offload(r);
  if (!r.is_file()) return;
  const bool adapts = tunes_adapters(r), tunes = adapts || tunes_weights(r);
  if (tunes) tuning_schedule(r);
  if (tunes && r.known("task") == "language") {  // labels, pairs and rewards are not LitGPT's
    tuning_data(r);
    tuning_length(r);
  }
  if (r.known("task") == "language") held_out_share(r, tunes);
  if (adapts) r.suggest("lora.r", "8");
  r.suggest("save.keep_last", "0");
  r.suggest("train.global_batch_size", tunes ? "16" : "512");
  r.suggest("train.micro_batch_size", tunes ? "1" : "4");
  if (!tunes) pretraining_schedule(r);
  r.suggest("train.lr_warmup_steps", tunes ? "100" : "2000");
  r.suggest("train.max_norm", tunes ? "null" : "1.0");
  r.suggest("train.min_lr", tunes ? "0" : "4e-5");
  r.suggest("eval.interval", !tunes ? "1000" : adapts ? "100" : "600");
  adafactor(r);
  rate(r);
  if (r.known_count("num_nodes").value_or(1) > 1 && !tunes) r.suggest("strategy", "hybrid_shard");
}

}  // namespace

const Dialect& litgpt() {
  using enum Takes;
  static constexpr std::string_view kDownload = "nothing is downloaded: name the file with data.json_path";
  // Templates by the names of models. LitGPT puts a system message of its own into some of them; here data have it.
  static const Row::Pairs kTemplates = {{"codellama", "mistral"}, {"phi-3", "phi3"},   {"tinyllama", "zephyr"},
                                        {"qwen2.5", "chatml"},    {"qwen3", "chatml"}, {"smollm2", "chatml"}};
  static const Dialect kDialect = [] {
    Dialect d{
        .name = "litgpt",
        .system = "LitGPT",
        .about =
            "LitGPT's flags, and the YAML of its config hub: `trireme pretrain --config pythia.yaml`, or any "
            "`litgpt` command line with `trireme` in its place. Keys that are not in this table are Trireme's own. "
            "LitGPT decays all parameters. Norms and biases are not decayed here, unless `optimizer.groups` gives them "
            "a decay. Without accumulation the warm-up begins at rate 0, so there the number of ranks counts. "
            "PyTorch's Adafactor also holds its rate below 1 / sqrt(step), which a rate of 0.01 meets after 10,000 "
            "steps. Here it goes on.",
        .marks = {"data.class_path", "data.init_args", "optimizer.class_path", "optimizer.init_args", "model_name",
                  "model_config", "initial_checkpoint_dir", "checkpoint_dir", "tokenizer_dir", "logger_name", "lora_r",
                  "lora_alpha", "access_token", "train.tie_embeddings", "sharding_strategy", "bucketing_strategy"},
        .words = Words::all,
        .renamed_maps = {{"data.class_path", "data"},
                         {"data.init_args", "data"},
                         {"optimizer.class_path", "optimizer"},
                         {"optimizer.init_args", "optimizer"}},
        .rows =
            {
                {.key = "data", .takes = text, .setting = "data", .adapt = last_part},
                {.key = "optimizer", .takes = text, .setting = "optimizer", .adapt = last_part},
                {.key = "data.json_path", .takes = text, .setting = "data.train_data_path"},
                {.key = "data.download_dir", .takes = text, .setting = "data.train_data_path"},
                {.key = "data.prompt_style", .takes = text, .setting = "data.chat_template", .words = kTemplates},
                {.key = "data.mask_prompt",
                 .takes = flag,
                 .setting = "data.learn",
                 .words = {{"true", "replies"}, {"false", "all"}}},
                {.key = "lora_r", .takes = count, .setting = "lora.r"},
                {.key = "lora_alpha", .takes = number, .setting = "lora.alpha"},
                {.key = "lora_dropout", .takes = number, .setting = "lora.dropout"},
                {.key = "lora_query", .takes = flag, .setting = "lora.query"},
                {.key = "lora_key", .takes = flag, .setting = "lora.key"},
                {.key = "lora_value", .takes = flag, .setting = "lora.value"},
                {.key = "lora_projection", .takes = flag, .setting = "lora.projection"},
                {.key = "lora_mlp", .takes = flag, .setting = "lora.mlp"},
                {.key = "lora_head", .takes = flag, .setting = "lora.head"},
                {.key = "initial_adapter", .takes = text, .setting = "lora.initial_adapter"},
                {.key = "model_name",
                 .takes = text,
                 .becomes = "model, unless a folder of weights or a model_config says it",
                 .by = name_of_model},
                {.key = "initial_checkpoint_dir", .takes = text, .setting = "model"},
                {.key = "checkpoint_dir", .takes = text, .setting = "model"},
                {.key = "tokenizer_dir", .takes = text, .setting = "data.tokenizer"},
                {.key = "train.learning_rate", .takes = number, .setting = "optimizer.lr"},
                {.key = "train.tie_embeddings", .takes = flag, .setting = "model.tie_word_embeddings"},
                {.key = "convert.checkpoint_path", .takes = text, .setting = "convert.source"},
                {.key = "convert.output_dir", .takes = text, .setting = "convert.out"},
                {.key = "optimizer.fused", .takes = flag, .ignored = kFused},
                {.key = "optimizer.foreach", .takes = flag, .ignored = kFused},
                {.key = "optimizer.capturable", .takes = flag, .ignored = kNoGraph},
                {.key = "optimizer.differentiable",
                 .takes = flag,
                 .refused = "no gradient goes through an update; leave it out"},
                {.key = "optimizer.amsgrad", .takes = flag, .refused = kNoAmsgrad},
                {.key = "optimizer.dampening", .takes = number, .refused = kNoDampening},
                {.key = "optimizer.maximize", .takes = flag, .refused = kMinimised},
                {.key = "optimizer.decoupled_weight_decay", .takes = flag, .refused = "take optimizer AdamW"},
                {.key = "optimizer.lr_decay",
                 .takes = number,
                 .refused = "Adagrad has no decay of its own; take a train.lr_decay"},
                {.key = "optimizer.initial_accumulator_value",
                 .takes = number,
                 .refused = "Adagrad's sums begin at 0; leave it out"},
                {.key = "optimizer.beta2_decay",
                 .takes = number,
                 .refused = "Adafactor's second moments decay by step^-0.8; leave it out",
                 .off = {"-0.8"}},
                {.key = "optimizer.d",
                 .takes = number,
                 .refused = "Adafactor clips its steps to a size of 1; leave it out",
                 .off = {"1"}},
                {.key = "logger_name",
                 .takes = text,
                 .becomes = "train.loggers, if it names tensorboard or csv",
                 .by = loggers_named},
                {.key = "log.run", .takes = text, .setting = "train.run_name"},
                {.key = "log.*", .ignored = kMetrics},
                {.key = "access_token", .takes = text, .ignored = kDownload},
                {.key = "quantize", .takes = text, .setting = "quantize"},
                {.key = "train.lr_warmup_fraction",
                 .takes = number,
                 .open = "a warm-up as a fraction of an epoch: give it in optimizer steps, train.lr_warmup_steps"},
                {.key = "data.ignore_index",
                 .takes = count,
                 .refused = "tokens that are not learned are marked in the data; leave it out",
                 .off = {"-100"}},
                {.key = "data.include_multiturn_conversations",
                 .takes = flag,
                 .ignored = "conversations are learned whole, with all of their turns"},
                {.key = "data.file_url", .takes = text, .ignored = kDownload},
                {.key = "data.file_name", .takes = text, .ignored = kDownload},
                {.key = "data.repo_id", .takes = text, .ignored = kDownload},
                {.key = "compiler", .takes = text, .ignored = kCompiled},
                {.key = "executors", .ignored = kCompiled},
                {.key = "jit", .takes = flag, .ignored = kCompiled},
                {.key = "profile", .takes = flag, .setting = "profile"},
                {.key = "sharding_strategy",
                 .takes = text,
                 .becomes = "strategy: ZERO3 full_shard, ZERO2 shard_grad_op, HYBRID_SHARD on several machines",
                 .by = strategy},
                {.key = "bucketing_strategy",
                 .takes = text,
                 .setting = "wrap.by",
                 .words = {{"NONE", "parameter"}, {"LAYER", "layer"}, {"BLOCK", "block"}}},
                {.key = "state_dict_type", .takes = text, .ignored = kOneFolder},
                {.key = "auto_wrap_policy", .ignored = "wrap.by says it: a block, as LitGPT's Block"},
                {.key = "cpu_offload", .takes = flag, .becomes = kOffloadAll},
            },
        .takes_native_keys = true,
        .finish = finish_litgpt};
    for (const Row& row : litgpt_model_rows()) d.rows.push_back(row);
    return d;
  }();
  return kDialect;
}

}  // namespace trireme::dialects
