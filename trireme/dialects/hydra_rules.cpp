#include "trireme/dialects/hydra_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/dialects/batch.h"

namespace trireme::dialects {

using config::Given;

bool learns_from_rewards(const Reading& r) {
  return r.command() == "grpo" || r.known("task").value_or("") == "rewards";
}

namespace {

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

}  // namespace

void set_mesh(Reading& r, std::string_view text, const Given& entry) {
  const auto lists = two_lists(text);
  if (!lists || (*lists)[0].size() != (*lists)[1].size() || (*lists)[0].empty())
    return r.refuse(entry, fmt::format("{} is no mesh", text),
                    "a mesh is [[4,2],[fsdp,tp]]: a number of ranks for each axis");
  int64_t product = 1;
  bool divides = false, copies = false;
  std::set<std::string_view> named;
  for (size_t i = 0; i < (*lists)[0].size(); ++i) {
    const auto size = base::parse_count((*lists)[0][i]);
    const std::string_view axis = axis_of((*lists)[1][i]);
    if (!size || *size < 1 || *size > 100'000 || product > 100'000)
      return r.refuse(entry, fmt::format("{} is not a number of ranks", (*lists)[0][i]), "");
    if (axis.empty())
      return r.refuse(entry, fmt::format("there is no axis {}", (*lists)[1][i]), "there are fsdp, tp, sp, dp and pp");
    product *= *size;
    named.insert(axis);
    divides |= axis == "mesh.shard" && *size > 1;
    copies |= axis == "mesh.replicate" && *size > 1;
    r.set(axis, std::to_string(*size), entry);
  }
  // It is the whole mesh, also behind another file's.
  for (const char* axis : {"mesh.replicate", "mesh.shard", "mesh.tp", "mesh.cp", "mesh.pp"})
    if (!named.contains(axis) && r.known_count(axis).value_or(1) != 1) r.set(axis, "1", entry);
  if (copies) r.set("strategy", divides ? "hybrid_shard" : "no_shard", entry);
  if (!divides && copies) r.set("mesh.shard", "1", entry);
  const int64_t machines = std::max<int64_t>(r.known_count("num_nodes").value_or(1), 1);
  if (r.world_size() == product) return;  // a launcher started them
  if (product % machines != 0)
    return r.refuse(entry, fmt::format("a mesh of {} ranks cannot be divided among {} machines", product, machines),
                    "");
  r.set("devices", std::to_string(product / machines), entry);
}

namespace {

// Of rewards, a batch is prompts: each is answered grpo.num_generations times, and a step learns from all of them.
void prompts(Reading& r, const Given* size, const Given* steps) {
  const int64_t prompts =
                    size != nullptr ? r.count(size->key).value_or(1) : r.known_count("grpo.batch_size").value_or(1),
                accumulation = steps != nullptr ? r.count(steps->key).value_or(1) : 1;
  constexpr int64_t kMost = int64_t{1} << 30;
  if (prompts < 1 || accumulation < 1 || prompts > kMost || accumulation > kMost)
    return r.refuse(size != nullptr ? *size : *steps, "batches are at least 1 and at most 2^30", "");
  r.set("grpo.batch_size", std::to_string(prompts * accumulation), size != nullptr ? *size : *steps);
  if (size != nullptr && steps != nullptr) r.tell(*steps, "grpo.batch_size");
}

// The batch is divided over the data-parallel ranks, as JAX shards its first axis.
void batch(Reading& r) {
  const Given *size = r.find("training.micro_batch_size"), *steps = r.find("training.gradient_accumulation_steps");
  if (size == nullptr && steps == nullptr) return;
  for (const Given* entry : {size, steps})
    if (entry != nullptr && !r.count(entry->key)) return;  // refused already
  if (learns_from_rewards(r)) return prompts(r, size, steps);
  const int64_t ranks = r.data_ranks(), accumulation = r.count("training.gradient_accumulation_steps").value_or(1);
  const int64_t whole =
      size == nullptr ? r.known_count("train.micro_batch_size").value_or(1) * ranks : r.count(size->key).value_or(1);
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
  if (batches != nullptr && !r.count(batches->key)) return;  // refused already
  if (batches != nullptr) {
    const double steps =
        static_cast<double>(r.count(batches->key).value_or(1)) * share *
        static_cast<double>(r.count("training.num_epochs").value_or(1)) *
        (learns_from_rewards(r) ? static_cast<double>(r.known_count("grpo.num_iterations").value_or(1)) : 1);
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
    set_warmup_share(r, *ratio, "train.max_steps, or train.lr_warmup_steps", PartOfStep::nothing);
  }
}

// Whoever gives a rate or a warm-up means agent-tunix's schedule: optax's warmup_cosine_decay_schedule, whose first
// step and end have rate 0.
void tunix_schedule(Reading& r) {
  const bool is_meant = r.is_typed_as("optimizer.lr", "optimizer.learning_rate") ||
                        r.find("optimizer.learning_rate") != nullptr || r.find("optimizer.warmup_ratio") != nullptr ||
                        r.find("scheduler.warmup_steps_ratio") != nullptr;
  if (!is_meant || r.known("train.lr_decay") != "cosine") return;
  r.suggest("train.min_lr", "0");
  suggest_first_step_0(r);
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
    const auto file = r.named_file(hydra(), path, *entry);
    if (!file) return;
    r.include(hydra(), *file);
    return r.tell(*entry, fmt::format("the settings of {}", path));
  }
  r.refuse(*entry, fmt::format("there is no experiment {}", entry->text),
           fmt::format("conf/experiment/{}.yaml is looked for here; for another file say --config FILE", entry->text));
}

// tunix: {shape: "(2,4)", axis_names: "('fsdp','tp')"}.
void tunix_mesh(Reading& r) {
  const Given *shape = r.find("mesh.shape"), *names = r.find("mesh.axis_names");
  if (shape == nullptr && names == nullptr) return;
  if (shape == nullptr || names == nullptr)
    return r.refuse(shape != nullptr ? *shape : *names, "a mesh has a shape and axis_names",
                    "for instance shape: (2,4) and axis_names: ('fsdp','tp')");
  set_mesh(r, fmt::format("[{},{}]", shape->text, names->text), *shape);
  if (r.is_settled(*shape)) r.tell(*names, "the mesh's axes");
}

// Where Hydra puts a run, unless a key says it, and what it names the run's log.
void run_folder(Reading& r) {
  r.suggest("launch.log_link", "train.log");
  r.suggest("train.loggers", "[tensorboard]");
  const Given *project = r.find("project_name"), *of_wandb = r.find("training.wandb_project");
  if (project != nullptr && of_wandb != nullptr) r.ignore(*of_wandb, "project_name names the folder");
  if (project == nullptr) project = of_wandb;
  const std::string begins = r.run_begins(), name = project != nullptr ? project->text : "tunix-grpo";
  const bool is_placed = r.is_given("out_dir");
  if (!begins.empty()) r.suggest("out_dir", fmt::format("outputs/{}/{}", name, begins));
  if (project == nullptr || r.is_settled(*project)) return;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return r.refuse(*project, fmt::format("{} is no name of a folder", name),
                    "a project is one word, for instance my-grpo");
  if (is_placed) return r.ignore(*project, "out_dir says where the run is");
  if (r.command() == "convert_config")
    return r.ignore(*project, fmt::format("a run of this file has the out_dir outputs/{}/DATE/TIME; give one", name));
  r.tell(*project, fmt::format("out_dir outputs/{}/{}", name, begins.empty() ? "DATE/TIME of a run" : begins));
}

void profile_communication(Reading& r) {
  const Given* entry = r.find("training.profile_communication");
  if (entry == nullptr || r.is_settled(*entry)) return;
  if (!r.flag(entry->key)) return r.ignore(*entry, "it is off");
  r.set("profile.schedule", r.known("out_dir").value_or("out") + "/communication.json", *entry);
}

}  // namespace

void finish_hydra(Reading& r) {
  tunix_mesh(r);
  batch(r);
  length(r);
  warmup(r);
  tunix_schedule(r);
  betas(r);
  experiment(r);
  run_folder(r);
  if (learns_from_rewards(r)) r.suggest("grpo.kl_loss_mode", "kl");
  profile_communication(r);
}

}  // namespace trireme::dialects
