#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/compare.h"
#include "trireme/cli/bench_topics.h"
#include "trireme/cli/start.h"
#include "trireme/config/validate.h"
#include "trireme/train/host_plan.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

config::Overlay overlay(const std::string& topic, const std::string& model) {
  config::Overlay o{.values = {{"out_dir", "out/bench"}}, .command = "bench " + topic, .section = "bench"};
  if (!model.empty()) o.values.insert(o.values.end(), {{"model", model}, {"train.micro_batch_size", "2"}});
  return o;
}

std::string command_line(const std::string& topic, Arguments arguments) {
  return "trireme bench " + topic + (arguments.empty() ? "" : " ") +
         base::join(std::vector<std::string>(arguments.begin(), arguments.end()), " ");
}

// One micro-batch a rank, unless told otherwise.
void one_micro_batch(config::ParsedSettings& parsed) {
  if (!parsed.given("train.global_batch_size"))
    parsed.settings.train.global_batch_size =
        parsed.settings.train.micro_batch_size * config::world_size(parsed.settings);
}

// In this process: nothing is started.
int run_here(const std::string& topic, const std::string& model, Arguments arguments,
             int (*run)(const config::Settings&, const std::string&)) {
  const config::ParsedSettings parsed = config::parse(arguments, overlay(topic, model));
  refuse_gpus(parsed.settings, "bench " + topic);
  train::sequence_length(parsed.settings, train::resolve_model(parsed.settings));
  return run(parsed.settings, command_line(topic, arguments));
}

void check_model(const config::Settings& settings) { train::sequence_length(settings, train::resolve_model(settings)); }

}  // namespace

int run_bench_train(Arguments arguments) {
  return start({.subcommand = "bench train",
                .overlay = overlay("train", ""),
                .complete = one_micro_batch,
                .plan = train::plan_host,
                .check = check_model,
                .run = bench::bench_train,
                .uses_gpus = true},
               arguments);
}

int run_bench_ops(Arguments arguments) { return run_here("ops", "llama-32m", arguments, bench::bench_ops); }
int run_bench_gemm(Arguments arguments) { return run_here("gemm", "llama-32m", arguments, bench::bench_gemm); }
int run_bench_data(Arguments arguments) { return run_here("data", "llama-5m", arguments, bench::bench_data); }

int run_bench_collectives(Arguments arguments) {
  config::Overlay o = overlay("collectives", "");
  o.values.emplace_back("devices", "2");
  o.positional = "";
  return start(
      {.subcommand = "bench collectives",
       .overlay = o,
       .complete = one_micro_batch,
       .check =
           [](const config::Settings& settings) { bench::check_collectives(settings, launch::rank_environment()); },
       .run =
           [=](const config::Settings& settings, const launch::RankEnvironment& environment) {
             return bench::bench_collectives(settings, environment, command_line("collectives", arguments));
           }},
      arguments);
}

int run_bench_checkpoint(Arguments arguments) {
  return start({.subcommand = "bench checkpoint",
                .overlay = overlay("checkpoint", "llama-32m"),
                .complete = one_micro_batch,
                .plan = train::plan_host,
                .check = check_model,
                .run =
                    [=](const config::Settings& settings, const launch::RankEnvironment& environment) {
                      return bench::bench_checkpoint(settings, environment, command_line("checkpoint", arguments));
                    }},
               arguments);
}

int run_bench_scaling(Arguments arguments) {
  config::ParsedSettings parsed = config::parse(arguments, overlay("scaling", ""));
  if (parsed.given("train.global_batch_size"))
    throw UsageError(
        "error: bench scaling gives every rank one micro-batch, however many ranks there are: leave "
        "train.global_batch_size out and set train.micro_batch_size");
  check_model(parsed.settings);
  config::BenchSettings& b = parsed.settings.bench;
  if (!parsed.given("bench.steps")) b.steps = b.quick ? 2 : 5;
  if (!parsed.given("bench.warmup")) b.warmup = b.quick ? 1 : 2;
  return bench::bench_scaling(parsed.settings, arguments, command_line("scaling", arguments));
}

int run_bench_compare(Arguments arguments) {
  if (arguments.size() != 2)
    throw UsageError(
        "error: bench compare takes two results: trireme bench compare before.json after.json (bench ... --json FILE "
        "writes them)");
  return bench::compare_files(arguments[0], arguments[1]);
}

}  // namespace trireme::cli
