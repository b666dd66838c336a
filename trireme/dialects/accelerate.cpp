// Accelerate's YAML (`accelerate config` writes it, `accelerate launch --config_file` reads it). Keys, defaults and
// meanings: Accelerate 1.15 (commands/config/cluster.py, commands/launch.py, utils/launch.py). The rows of its maps
// stand in accelerate_*.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <list>

#include "trireme/base/text.h"
#include "trireme/dialects/accelerate_parts.h"
#include "trireme/dialects/number_formats.h"
#include "trireme/dialects/offload.h"
#include "trireme/dialects/reasons.h"

namespace trireme::dialects {

using accelerate_parts::copies_of_whole_weights;
using accelerate_parts::deepspeed_rows;
using accelerate_parts::deepspeed_strategy;
using accelerate_parts::fsdp_rows;
using accelerate_parts::fsdp_strategy;
using accelerate_parts::in;
using accelerate_parts::megatron_strategy;
using accelerate_parts::mesh_rows;
using config::Given;

namespace {

constexpr std::string_view kUnread[] = {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"};

bool is_one_process(const Reading& r) { return lower(r.text("distributed_type")) == "no"; }

constexpr std::string_view kOneProcess = "as distributed_type NO starts one process";

void machine_count(Reading& r, const Given& entry) {
  if (!is_one_process(r)) return r.set("num_nodes", entry.text, entry);
  r.set("num_nodes", "1", entry);
  if (r.count(entry.key) != 1) r.tell(entry, kOneProcess);
}

void machine_rank(Reading& r, const Given& entry) {
  if (r.count("num_machines").value_or(1) > 1 && !is_one_process(r))
    return r.set("launch.node_rank", entry.text, entry);
  r.ignore(entry, "there is one machine");
}

// num_processes counts the ranks of all machines, whose number the command line may know better than the file.
void processes(Reading& r) {
  const Given* entry = r.find("num_processes");
  if (entry == nullptr) return is_one_process(r) ? r.suggest("devices", "1") : void();
  if (r.is_settled(*entry)) return;  // refused
  const int64_t total = r.count(entry->key).value_or(0);
  const auto machines = std::max<int64_t>(r.known_count("num_nodes").value_or(1), 1);
  if (r.counts_more("devices") && (total < 1 || total % machines != 0)) return r.ignore(*entry, "devices says it");
  if (total < 1)
    return r.refuse(*entry, fmt::format("num_processes {} is not a number of ranks", entry->text), "say --devices N");
  if (is_one_process(r)) {
    r.set("devices", "1", *entry);
    return total != 1 ? r.tell(*entry, kOneProcess) : void();
  }
  if (total % machines == 0) return r.set("devices", std::to_string(total / machines), *entry);
  const std::string what = fmt::format("{} processes cannot be divided among {} machines", total, machines);
  constexpr std::string_view kWay = "num_processes counts the ranks of all machines";
  const Given* number = r.find("num_machines");
  number != nullptr ? r.refuse_both(*entry, *number, what, kWay) : r.refuse(*entry, what, kWay);
}

void old_fp16(Reading& r, const Given& entry) {
  r.flag(entry.key) ? r.set("precision", "16-mixed", entry) : r.ignore(entry, "it is off");
}

void finish_accelerate(Reading& r) {
  const Given* type = r.find("distributed_type");
  if (type == nullptr) {
    r.refuse_file("the Accelerate file has no distributed_type",
                  fmt::format("it is one of {}", fmt::join(kUnread, ", ")));
    return r.ignore_rest("there is no distributed_type");
  }
  const std::string name = lower(type->text);
  if (std::ranges::none_of(kUnread, [&](std::string_view one) { return lower(one) == name; })) {
    r.refuse(*type, fmt::format("distributed_type {} is not for processors or NVIDIA GPUs", type->text),
             fmt::format("there are {}", fmt::join(kUnread, ", ")));
    return;
  }
  processes(r);
  r.suggest("precision", "32-true");  // without mixed_precision it is "no"
  if (const Given* copies = copies_of_whole_weights(r))
    return r.refuse(*copies, "copies of whole weights are not FSDP",
                    "Accelerate has MULTI_GPU for them: leave parallelism_config out");
  if (name == "no" || name == "multi_gpu" || name == "multi_cpu" || name == "tp") {
    r.set("strategy", "no_shard", *type);
  } else if (name == "fsdp") {
    r.tell(*type, "strategy, from fsdp_config");
    fsdp_strategy(r);
  } else if (name == "deepspeed") {
    r.tell(*type, "strategy, from deepspeed_config");
    deepspeed_strategy(r);
  } else {
    r.tell(*type, "strategy, from megatron_lm_config");
    megatron_strategy(r);
  }
  finish_offload(r);
  r.ignore_rest(fmt::format("distributed_type {} does not read it", type->text));
}

std::vector<Row> top_rows() {
  using enum Takes;
  constexpr std::string_view kTpu = "there are no TPUs";
  return {
      {.key = "compute_environment",
       .takes = text,
       .refused = "commands run on machines that you name",
       .off = {"LOCAL_MACHINE"}},
      {.key = "distributed_type",
       .takes = text,
       .becomes = "strategy: NO, MULTI_GPU, MULTI_CPU no_shard; FSDP, DEEPSPEED, MEGATRON_LM from their maps"},
      {.key = "mixed_precision",
       .takes = text,
       .becomes = "precision: no 32-true, bf16 bf16-mixed, fp16 16-mixed, fp8 fp8-mixed",
       .by = set_format},
      {.key = "fp16", .takes = flag, .becomes = "precision 16-mixed (the old form)", .by = old_fp16},
      {.key = "use_cpu", .takes = flag, .ignored = "accelerator says what ranks compute on"},
      {.key = "debug", .takes = flag, .ignored = "collectives are always compared between ranks"},
      {.key = "num_processes", .takes = count, .becomes = "devices: its share of num_machines; NO starts one"},
      {.key = "num_machines", .takes = count, .becomes = "num_nodes; NO starts one process", .by = machine_count},
      {.key = "machine_rank", .takes = count, .becomes = "launch.node_rank", .by = machine_rank},
      {.key = "gpu_ids", .ignored = "GPUs are chosen with CUDA_VISIBLE_DEVICES; ranks on processors have none"},
      {.key = "main_process_ip", .takes = text, .setting = "launch.master_addr"},
      {.key = "main_process_port", .takes = count, .setting = "launch.master_port"},
      {.key = "rdzv_backend", .takes = text, .ignored = "launchers have a store of their own"},
      {.key = "same_network", .takes = flag, .ignored = "ranks meet at launch.master_addr"},
      {.key = "main_training_function", .takes = text, .ignored = "the subcommand is what runs"},
      {.key = "enable_cpu_affinity", .takes = flag, .setting = "launch.pin"},
      {.key = "downcast_bf16", .takes = text, .ignored = kTpu},
      {.key = "tpu_name", .takes = text, .ignored = kTpu},
      {.key = "tpu_zone", .takes = text, .ignored = kTpu},
      {.key = "tpu_use_cluster", .takes = flag, .refused = kTpu},
      {.key = "tpu_use_sudo", .takes = flag, .ignored = kTpu},
      {.key = "tpu_vm", .ignored = kTpu},
      {.key = "tpu_env", .ignored = kTpu},
      {.key = "command_file", .takes = text, .ignored = kTpu},
      {.key = "commands", .ignored = kTpu},
      {.key = "dynamo_config.*", .ignored = kCompiled},
      {.key = "dynamo_backend", .takes = text, .ignored = kCompiled},  // the old form
      {.key = "fp8_config.*",
       .ignored = "numbers of 8 bits are e4m3 (gradients e5m2), with a new scale for every product"},
      {.key = "mpirun_config.*", .ignored = "mpirun starts trireme itself: docs/launching.md"},
      {.key = "ipex_config.*", .ignored = "kernels are Trireme's own"},
  };
}

// Beside compute_environment AMAZON_SAGEMAKER, which is refused.
std::vector<Row> sagemaker_rows() {
  std::vector<Row> rows;
  for (const char* key : {"ec2_instance_type", "iam_role_name", "image_uri", "profile", "region", "base_job_name",
                          "py_version", "pytorch_version", "transformers_version", "sagemaker_inputs_file",
                          "sagemaker_metrics_file", "additional_args"})
    rows.push_back({.key = key, .ignored = "it is SageMaker's"});
  return rows;
}

// `accelerate launch` puts fsdp_ before the keys of fsdp_config that lack it.
Row::Pairs without_prefix(const std::vector<Row>& rows) {
  static std::list<std::string> names;
  Row::Pairs pairs;
  for (const Row& row : rows) {
    constexpr std::string_view kHead = "fsdp_config.fsdp_";
    if (row.key.starts_with(kHead))
      pairs.emplace_back(names.emplace_back(in("fsdp_config.", row.key.substr(kHead.size()))), row.key);
  }
  return pairs;
}

}  // namespace

const Dialect& accelerate() {
  static const Dialect kDialect = [] {
    Dialect d{
        .name = "accelerate",
        .system = "Accelerate",
        .about =
            "The YAML of `accelerate config`: `trireme pretrain MODEL --config fsdp.yaml`, or `trireme launch "
            "--config_file fsdp.yaml -- pretrain MODEL` as with `accelerate launch`. What the script decides there, "
            "such as batches and the optimizer, is given by Trireme's settings.",
        .marks = {"compute_environment", "distributed_type", "fsdp_config", "deepspeed_config", "megatron_lm_config",
                  "parallelism_config", "num_processes", "main_process_ip"},
        .file_options = {"config_file"},
        .blank_is_null = true,
    };
    for (const auto& rows : {top_rows(), sagemaker_rows(), fsdp_rows(), deepspeed_rows(), mesh_rows()})
      d.rows.insert(d.rows.end(), rows.begin(), rows.end());
    d.renamed_maps = without_prefix(fsdp_rows());
    d.finish = finish_accelerate;
    return d;
  }();
  return kDialect;
}

}  // namespace trireme::dialects
