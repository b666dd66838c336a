// Hydra's overrides as agent-tunix prints them: `model=gemma3_1b model.mesh_shape=[[4,2],[fsdp,tp]] training.*`.
// Sources: agent-tunix conf/, and its page on distributed training, four of whose keys are not in conf/.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/dialects/deepspeed_rules.h"
#include "trireme/dialects/systems.h"

namespace trireme::dialects {
namespace {

using config::Given;

// "[[4, 2], ["fsdp", "tp"]]" as words: 4, 2, fsdp, tp; nothing if brackets do not pair up in two lists.
std::optional<std::array<std::vector<std::string>, 2>> two_lists(std::string_view text) {
  std::array<std::vector<std::string>, 2> lists;
  int depth = 0, list = -1;
  std::string word;
  for (const char c : text) {
    if (c == '[' || c == '(') {
      if (++depth > 2 || (depth == 2 && ++list > 1)) return std::nullopt;
    } else if (c == ']' || c == ')' || c == ',') {
      if (!word.empty()) {
        if (depth != 2) return std::nullopt;
        lists[static_cast<size_t>(list)].push_back(word);
        word.clear();
      }
      if (c != ',' && --depth < 0) return std::nullopt;
    } else if (c != ' ' && c != '"' && c != '\'') {
      word += c;
    }
  }
  if (depth != 0 || list != 1 || !word.empty()) return std::nullopt;
  return lists;
}

std::string_view axis_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kAxes[] = {
      {"fsdp", "mesh.shard"}, {"tp", "mesh.tp"},        {"tensor", "mesh.tp"},      {"sp", "mesh.cp"},
      {"cp", "mesh.cp"},      {"dp", "mesh.replicate"}, {"data", "mesh.replicate"}, {"pp", "mesh.pp"}};
  for (const auto& [theirs, ours] : kAxes)
    if (name == theirs) return ours;
  return {};
}

void mesh_shape(Reading& r, const Given& entry) {
  const auto lists = two_lists(entry.text);
  if (!lists || (*lists)[0].size() != (*lists)[1].size() || (*lists)[0].empty())
    return r.refuse(entry, fmt::format("{} is no mesh", entry.text),
                    "a mesh is [[4,2],[fsdp,tp]]: a number of ranks for each axis");
  int64_t product = 1;
  bool divides = false, copies = false;
  for (size_t i = 0; i < (*lists)[0].size(); ++i) {
    const auto size = base::parse_count((*lists)[0][i]);
    const std::string_view axis = axis_of((*lists)[1][i]);
    if (!size || *size < 1 || *size > 100'000 || product > 100'000)
      return r.refuse(entry, fmt::format("{} is not a number of ranks", (*lists)[0][i]), "");
    if (axis.empty())
      return r.refuse(entry, fmt::format("there is no axis {}", (*lists)[1][i]), "there are fsdp, tp, sp, dp and pp");
    product *= *size;
    divides |= axis == "mesh.shard" && *size > 1;
    copies |= axis == "mesh.replicate" && *size > 1;
    r.set(axis, std::to_string(*size), entry);
  }
  if (copies) r.set("strategy", divides ? "hybrid_shard" : "no_shard", entry);
  if (!divides && copies) r.set("mesh.shard", "1", entry);
  const int64_t machines = std::max<int64_t>(r.known_count("num_nodes").value_or(1), 1);
  if (r.world_size() == product) return;  // a launcher started them
  if (product % machines != 0)
    return r.refuse(entry, fmt::format("a mesh of {} ranks cannot be divided among {} machines", product, machines),
                    "");
  r.set("devices", std::to_string(product / machines), entry);
}

void size_of_family(Reading& r, const Given& entry) {
  r.set("model", fmt::format("{}_{}", r.text("model.model_family", "gemma3"), entry.text), entry);
}

void mixed_precision(Reading& r, const Given& entry) {
  const std::string name = lower(entry.text);
  const std::string_view format = name == "bf16" || name == "bfloat16"  ? "bf16-mixed"
                                  : name == "fp16" || name == "float16" ? "16-mixed"
                                  : name == "no" || name == "fp32" || name == "float32" || name == "false" ? "32-true"
                                                                                                           : "";
  if (format.empty())
    return r.refuse(entry, fmt::format("there is no mixed_precision {}", entry.text), "there are bf16, fp16 and no");
  if (!r.can("precision", format)) return r.refuse_open(entry, "precision 16-mixed; take bf16");
  r.set("precision", format, entry);
}

void profile_communication(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  r.set("profile.schedule", r.known("out_dir").value_or("out") + "/communication.json", entry);
}

// Gradients add up on their rank for k micro-batches: 1 and all of a step's can be had.
void sync_every(Reading& r, const Given& entry) {
  const int64_t every = r.count(entry.key).value_or(0),
                steps = r.count("training.gradient_accumulation_steps").value_or(1);
  if (every < 1 || steps % every != 0)
    return r.refuse(entry,
                    fmt::format("{} {} does not divide the {} micro-batches of a step", entry.key, entry.text, steps),
                    "it must divide training.gradient_accumulation_steps");
  if (every == 1) return r.set("accumulation", "sharded", entry);
  if (every != steps)
    return r.refuse_open(
        entry, fmt::format("reducing more than once a step, but not after each micro-batch; say 1 or {}", steps));
  r.set("reduce", "fast", entry);
  r.set("accumulation", "local", entry);
}

// The batch is divided over the data-parallel ranks, as JAX shards its first axis.
void batch(Reading& r) {
  const Given *size = r.find("training.micro_batch_size"), *steps = r.find("training.gradient_accumulation_steps");
  if (size == nullptr && steps == nullptr) return;
  const int64_t ranks = r.data_ranks(), accumulation = r.count("training.gradient_accumulation_steps").value_or(1);
  const int64_t whole =
      size == nullptr ? r.known_count("train.micro_batch_size").value_or(1) * ranks : *r.count(size->key);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (whole < 1 || accumulation < 1 || whole > kMost || accumulation > kMost)
    return r.refuse(size != nullptr ? *size : *steps, "batches are at least 1 and at most 2^30", "");
  if (whole % ranks != 0)
    return r.refuse(*size, fmt::format("a batch of {} cannot be divided over {} data-parallel ranks", whole, ranks),
                    fmt::format("training.micro_batch_size {} fits", base::near_multiples(whole, ranks)));
  if (size != nullptr) r.set("train.micro_batch_size", std::to_string(whole / ranks), *size);
  r.set("train.global_batch_size", std::to_string(whole * accumulation), steps != nullptr ? *steps : *size);
}

void length(Reading& r) {
  const Given *batches = r.find("training.num_batches"), *epochs = r.find("training.num_epochs");
  const double share = std::clamp(r.number("training.train_fraction").value_or(1), 0.0, 1.0);
  if (batches != nullptr) {
    const double steps = static_cast<double>(*r.count(batches->key)) * share *
                         static_cast<double>(r.count("training.num_epochs").value_or(1));
    if (steps < 1 || steps > 1e15) return r.refuse(*batches, "a run has at least one step and at most 1e15", "");
    r.set("train.max_steps", std::to_string(static_cast<int64_t>(steps)), *batches);
    if (epochs != nullptr) r.tell(*epochs, "train.max_steps");
  } else if (epochs != nullptr) {
    r.set("train.epochs", epochs->text, *epochs);
  }
  if (const Given* fraction = r.find("training.train_fraction")) {
    if (share < 1 && batches == nullptr && share > 0)
      r.set("data.val_split_fraction", fmt::format("{}", 1 - share), *fraction);
    else
      r.tell(*fraction, "train.max_steps");
  }
}

void warmup(Reading& r) {
  for (const std::string_view key : {"optimizer.warmup_ratio", "scheduler.warmup_steps_ratio"}) {
    const Given* ratio = r.find(key);
    if (ratio == nullptr || r.is_settled(*ratio)) continue;
    const auto steps = r.known_count("train.max_steps");
    if (!steps)
      r.refuse(*ratio, "a warm-up as a share of the run needs the run's length",
               "give train.max_steps, or train.lr_warmup_steps");
    else
      r.set("train.lr_warmup_steps",
            std::to_string(std::llround(std::clamp(r.number(key).value_or(0), 0.0, 1.0) * static_cast<double>(*steps))),
            *ratio);
  }
}

void betas(Reading& r) {
  const Given *one = r.find("optimizer.beta1"), *two = r.find("optimizer.beta2");
  if (one == nullptr && two == nullptr) return;
  const std::string both = fmt::format("[{}, {}]", r.text("optimizer.beta1", "0.9"), r.text("optimizer.beta2", "0.99"));
  r.set("optimizer.betas", both, one != nullptr ? *one : *two);
  if (one != nullptr && two != nullptr) r.tell(*two, "optimizer.betas " + both);
}

// +experiment=quick_test: the group's file, as Hydra finds it below the folder of its configuration.
void experiment(Reading& r) {
  const Given* entry = r.find("experiment");
  if (entry == nullptr) return;
  if (entry->text.find("..") != std::string::npos)
    return r.refuse(*entry, fmt::format("{} is no name of an experiment", entry->text), "");
  for (const std::string_view folder : {"conf", "configs", "config"}) {
    const std::string path = fmt::format("{}/experiment/{}.yaml", folder, entry->text);
    if (!base::is_file(path)) continue;
    const auto file = read_named_file(hydra(), path, r.problems());
    if (!file) return r.refuse(*entry, fmt::format("the experiment {} cannot be read", entry->text), "");
    r.include(hydra(), *file);
    return r.tell(*entry, fmt::format("the settings of {}", path));
  }
  r.refuse(*entry, fmt::format("there is no experiment {}", entry->text),
           fmt::format("conf/experiment/{}.yaml is looked for here; for another file say --config FILE", entry->text));
}

void finish_hydra(Reading& r) {
  batch(r);
  length(r);
  warmup(r);
  betas(r);
  experiment(r);
}

}  // namespace

const Dialect& hydra() {
  using enum Takes;
  constexpr std::string_view kGrpo = "learning from rewards (GRPO); leave it out";
  constexpr std::string_view kMetrics =
      "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg";
  constexpr std::string_view kBatch =
      "train.micro_batch_size: its share of a data-parallel rank; train.global_batch_size: times the accumulation";
  static const Dialect kDialect{
      .name = "hydra",
      .system = "agent-tunix",
      .about =
          "Hydra's overrides as agent-tunix has them, on the command line or as YAML: `trireme pretrain "
          "model=gemma3_1b model.mesh_shape=[[4,2],[fsdp,tp]]`. The number of ranks follows from the mesh.",
      .marks = {"grpo", "model.mesh_shape", "model.model_family", "model.model_size", "scheduler.warmup_steps_ratio",
                "training.num_batches", "training.micro_batch_size", "training.sync_gradients_every"},
      .words = Words::all,
      .rows =
          {
              {.key = "experiment", .takes = text, .becomes = "the keys of conf/experiment/NAME.yaml"},
              {.key = "defaults", .ignored = "groups are files: give each with --config"},
              {.key = "debug", .takes = flag, .ignored = "every plan is checked"},
              {.key = "model.mesh_shape",
               .becomes = "mesh.shard (fsdp), mesh.tp (tp), mesh.cp (sp), mesh.replicate (dp), and devices",
               .by = mesh_shape},
              {.key = "model.model_family", .takes = text, .ignored = "model.model_size reads it"},
              {.key = "model.model_size", .takes = text, .becomes = "model", .by = size_of_family},
              {.key = "model.lora_rank", .takes = count, .setting = "lora.r"},
              {.key = "model.lora_alpha", .takes = number, .setting = "lora.alpha"},
              {.key = "model.lora_module_path", .takes = text, .setting = "lora.target_modules"},
              {.key = "optimizer.learning_rate", .takes = number, .setting = "optimizer.lr"},
              {.key = "optimizer.beta1", .takes = number, .becomes = "optimizer.betas"},
              {.key = "optimizer.beta2", .takes = number, .becomes = "optimizer.betas"},
              {.key = "optimizer.weight_decay", .takes = number, .setting = "optimizer.weight_decay"},
              {.key = "optimizer.warmup_ratio",
               .takes = number,
               .becomes = "train.lr_warmup_steps, of train.max_steps"},
              {.key = "optimizer.max_grad_norm", .takes = number, .becomes = "train.max_norm", .by = ds::clip},
              {.key = "scheduler.warmup_steps_ratio",
               .takes = number,
               .becomes = "train.lr_warmup_steps, of train.max_steps"},
              {.key = "scheduler.decay_steps_ratio", .takes = number, .ignored = "the decay ends with the run"},
              {.key = "grpo.*", .open = kGrpo},
              {.key = "generation.*", .ignored = "only learning from rewards samples while training"},
              {.key = "training.train_data_dir", .takes = text, .setting = "data.train_data_path"},
              {.key = "training.test_data_dir", .takes = text, .setting = "data.val_data_path"},
              {.key = "training.data_source", .takes = text, .ignored = "the data is given by data.train_data_path"},
              {.key = "training.train_fraction",
               .takes = number,
               .becomes = "train.max_steps, or data.val_split_fraction"},
              {.key = "training.micro_batch_size", .takes = count, .becomes = kBatch},
              {.key = "training.gradient_accumulation_steps", .takes = count, .becomes = kBatch},
              {.key = "training.sync_gradients_every",
               .takes = count,
               .becomes = "accumulation: 1 sharded; all micro-batches of a step local, with reduce fast",
               .by = sync_every},
              {.key = "training.mixed_precision",
               .takes = text,
               .becomes = "precision: bf16 bf16-mixed, fp16 16-mixed, no 32-true",
               .by = mixed_precision},
              {.key = "training.profile_communication",
               .takes = flag,
               .becomes = "profile.schedule: communication.json in out_dir",
               .by = profile_communication},
              {.key = "training.num_batches", .takes = count, .becomes = "train.max_steps"},
              {.key = "training.num_epochs", .takes = count, .becomes = "train.max_steps, or train.epochs"},
              {.key = "training.max_steps", .takes = count, .setting = "train.max_steps"},
              {.key = "training.num_test_batches", .takes = count, .setting = "eval.max_iters"},
              {.key = "training.eval_every_n_steps", .takes = count, .setting = "eval.interval"},
              {.key = "training.checkpoint_dir", .takes = text, .setting = "out_dir"},
              {.key = "training.save_interval_steps", .takes = count, .setting = "train.save_interval"},
              {.key = "training.max_checkpoints_to_keep", .takes = count, .setting = "save.keep_last"},
              {.key = "training.log_dir", .takes = text, .ignored = kMetrics},
              {.key = "training.flush_every_n_steps", .takes = count, .ignored = kMetrics},
              {.key = "training.wandb_project", .takes = text, .ignored = kMetrics},
              {.key = "hydra.*", .ignored = "Hydra's own settings say where it writes"},
          },
      .takes_native_keys = true,
      .finish = finish_hydra};
  return kDialect;
}

}  // namespace trireme::dialects
