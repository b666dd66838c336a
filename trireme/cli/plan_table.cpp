// trireme plan --table: which layout the models of several sizes need on several clusters. Each cell is planned.
#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/bench/measure.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/plan.h"
#include "trireme/cli/read_settings.h"
#include "trireme/costs/report.h"

namespace trireme::cli {
namespace {

/// A way to divide a model.
struct Way {
  const char* name;
  std::vector<std::string> words;
};

/// Ways that do the same work. Groups stand in the order of what they cost beside memory. Of the first group of which
/// one fits, the fastest one is the advice.
std::vector<std::vector<Way>> ways_on(const costs::Cluster& cluster) {
  const std::vector<std::string> again = {"--recompute", "full"},
                                 adapters = {"--lora.r", "8", "--lora.dropout", "0"};  // which GPUs have none of
  const auto joined = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  if (cluster.ranks() == 1)
    return {{{"one device", {}}},
            {{"recompute full", again}},
            {{"lora.r 8, lora.dropout 0", adapters}},
            {{"lora.r 8, lora.dropout 0, recompute full", joined(adapters, again)}}};
  const std::vector<std::string> shards = {"--strategy", "full_shard"};
  return {{{"no_shard (DDP)", {"--strategy", "no_shard"}},
           {"shard_grad_op (ZeRO-2)", {"--strategy", "shard_grad_op"}},
           {"full_shard (FSDP)", shards}},
          {{"full_shard, recompute full", joined(shards, again)},
           {"full_shard, recompute full, mesh.tp of a machine",
            joined(joined(shards, again), {"--mesh.tp", std::to_string(cluster.devices)})}},
          {{"full_shard, lora.r 8, lora.dropout 0", joined(shards, adapters)}},
          {{"full_shard, lora.r 8, lora.dropout 0, recompute full", joined(joined(shards, adapters), again)}}};
}

/// Seconds for a sequence, in steps of one micro-batch; nothing where it does not fit.
std::optional<double> seconds_of_sequence(const std::string& model, const costs::Cluster& cluster, const Way& way) try {
  std::vector<std::string> words = {model, "--train.max_seq_length", "4096", "--train.micro_batch_size", "1"};
  words.insert(words.end(), way.words.begin(), way.words.end());
  ParsedSettings parsed = read_settings(words, {.command = "plan"});
  settle(parsed, cluster, {});
  round_batch(parsed.settings, 1);
  const costs::Machines machines{.hardware = cluster.hardware, .ranks = cluster.devices};
  const ExplainedStages stages = plans_of_stages(parsed.settings, stages_that_count(parsed.settings, machines));
  if (!costs::fits(stages_of(stages.plans), machines)) return std::nullopt;
  return costs::predict(*stages.plans.front().model, stages.plans.front(), machines).step /
         static_cast<double>(parsed.settings.train.global_batch_size);
} catch (const UsageError&) {
  return std::nullopt;  // heads that the devices do not divide
}

std::string advice(const std::string& model, const costs::Cluster& cluster) {
  for (const std::vector<Way>& group : ways_on(cluster)) {
    const char* fastest = nullptr;
    double least = 0;
    for (const Way& way : group) {
      const auto seconds = seconds_of_sequence(model, cluster, way);
      if (!seconds || (fastest != nullptr && *seconds >= least)) continue;
      fastest = way.name;
      least = *seconds;
    }
    if (fastest != nullptr) return fastest;
  }
  return "does not fit";
}

}  // namespace

std::string strategy_table() {
  constexpr const char* kModels[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3-8b", "llama-2-13b", "llama-3-70b"};
  constexpr const char* kClusters[] = {"1xRTX-4090", "2xRTX-4090", "8xA100-80", "8x8xH100"};
  std::string out = "| 4,096 tokens, micro-batch 1 |", rule = "|---|";
  for (const char* cluster : kClusters) out += fmt::format(" {} |", cluster), rule += "---|";
  out += "\n" + rule + "\n";
  bench::Progress progress("plan");
  int64_t done = 0;
  for (const char* model : kModels) {
    out += fmt::format("| {} |", model);
    for (const char* name : kClusters) {
      const costs::Cluster cluster = costs::parse_cluster(name);
      progress.step(++done, std::ssize(kModels) * std::ssize(kClusters), fmt::format("{} on {}", model, name));
      out += fmt::format(" {} |", advice(model, cluster));
    }
    out += "\n";
  }
  return out;
}

}  // namespace trireme::cli
