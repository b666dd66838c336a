// trireme bench: its topics, and the job that each of them starts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/compare.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/start.h"
#include "trireme/cli/training.h"
#include "trireme/cli/until_stopped.h"
#include "trireme/settings/validate.h"
#include "trireme/train/foresight.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

struct Topic {
  const char* name;
  const char* help;     ///< one line
  const char* example;  ///< a command to try
  const char* lesson;   ///< what is measured, against which limit, with which formulas; ends with a newline
  int (*run)(const Topic& topic, Arguments arguments);  ///< everything after the topic's name
  std::vector<std::string> settings;                    ///< of bench.*, that it reads; --help lists them
  std::vector<std::pair<std::string, std::string>> defaults = {};
  bool takes_model = true;
  /// Settings; null: it takes steps, and reads all.
  std::optional<std::vector<std::string_view>> read_of_training = {};
};

config::Overlay overlay(const Topic& topic) {
  config::Overlay o{
      .values = {{"out_dir", "out/bench"}}, .command = fmt::format("bench {}", topic.name), .section = "bench"};
  o.values.insert(o.values.end(), topic.defaults.begin(), topic.defaults.end());
  if (!topic.takes_model) o.positional = "";
  if (!topic.read_of_training) return o;
  o.unread_groups = groups_of_training();
  if (topic.takes_model)
    std::erase_if(o.unread_groups, [](std::string_view group) { return group == "model" || group == "free"; });
  o.unread_keys = {"task", "resume", "overwrite"};
  o.read_keys = *topic.read_of_training;
  return o;
}

int run_generate(const Topic& topic, Arguments arguments);

// Refuses what was typed and has no effect, and the settings of other tasks. Files and the environment may hold more
// than the topic reads.
void refuse_other_topics(const Topic& topic, const ParsedSettings& parsed) {
  for (const auto& [key, source] : parsed.provenance) {
    if (!parsed.typed(key) || !key.starts_with("bench.") ||
        std::ranges::find(topic.settings, key) != topic.settings.end())
      continue;
    throw UsageError(fmt::format(
        "error: trireme bench {} does not read {} ({})\n  {}; it reads {}", topic.name, key, source.place,
        key == "bench.threads" && std::string_view(topic.name) != "calibrate" ? "give launch.threads_per_rank"
                                                                              : "leave it out",
        base::join(topic.settings, ", ")));
  }
  for (const char* key : {"quantize", "quantize_head"})
    if (parsed.typed(key) && topic.read_of_training && topic.run != run_generate)
      throw UsageError(fmt::format("error: trireme bench {} does not read {}\n  leave it out; bench generate reads it",
                                   topic.name, key));
  refuse_unread(parsed);
}

// Nothing is resumed. If the model is a run's folder, the newest checkpoint in it is meant.
void use_newest_of_a_run(ParsedSettings& parsed) {
  parsed.settings.resume = {};
  train::take_over_run(parsed);
}

ParsedSettings read_topic(const Topic& topic, Arguments arguments) {
  ParsedSettings parsed = read_settings(arguments, overlay(topic));
  refuse_other_topics(topic, parsed);
  use_newest_of_a_run(parsed);
  return parsed;
}

std::string command_line(const Topic& topic, Arguments arguments) {
  std::string line = fmt::format("trireme bench {}", topic.name);
  for (const std::string& word : arguments) line += " " + base::shell_quoted(word);
  return line;
}

// One micro-batch a rank, unless the settings say otherwise.
void complete(const Topic& topic, ParsedSettings& parsed) {
  refuse_other_topics(topic, parsed);
  use_newest_of_a_run(parsed);
  if (!parsed.given("train.global_batch_size"))
    parsed.settings.train.global_batch_size = parsed.settings.train.micro_batch_size * world_size(parsed.settings);
}

void check_model(const Settings& settings) {
  train::sequence_length(settings, model::config_of(settings.model));
  train::check_foresight(settings);
  if (settings.profile.measure)
    throw UsageError(
        "error: bench times its steps anyway, and profile belongs to training: leave it out, or give "
        "--bench.operations");
}

// Runs in this process, without starting ranks.
int run_here(const Topic& topic, Arguments arguments, int (*run)(const Settings&, const std::string&)) {
  const ParsedSettings parsed = read_topic(topic, arguments);
  refuse_gpus(parsed.settings, fmt::format("bench {}", topic.name));
  check_model(parsed.settings);
  bench::BenchSettings options = parsed.settings.bench;
  validate_places(std::vector<config::Section>{section(options)});
  return run(parsed.settings, command_line(topic, arguments));
}

int run_train(const Topic& topic, Arguments arguments) {
  return start({.subcommand = "bench train",
                .overlay = overlay(topic),
                .complete = [&](ParsedSettings& parsed) { complete(topic, parsed); },
                .plan = train::plan_host,
                .check = check_model,
                .run = bench::bench_train,
                .uses_gpus = true},
               arguments);
}

int run_ops(const Topic& topic, Arguments arguments) { return run_here(topic, arguments, bench::bench_ops); }
int run_gemm(const Topic& topic, Arguments arguments) { return run_here(topic, arguments, bench::bench_gemm); }
int run_generate(const Topic& topic, Arguments arguments) { return run_here(topic, arguments, bench::bench_generate); }
int run_data(const Topic& topic, Arguments arguments) { return run_here(topic, arguments, bench::bench_data); }

int run_collectives(const Topic& topic, Arguments arguments) {
  return start(
      {.subcommand = "bench collectives",
       .overlay = overlay(topic),
       .complete = [&](ParsedSettings& parsed) { complete(topic, parsed); },
       .check = [](const Settings& settings) { bench::check_collectives(settings, launch::rank_environment()); },
       .run =
           [&](const Settings& settings, const launch::RankEnvironment& environment) {
             return bench::bench_collectives(settings, environment, command_line(topic, arguments));
           }},
      arguments);
}

int run_checkpoint(const Topic& topic, Arguments arguments) {
  return start(
      {.subcommand = "bench checkpoint",
       .overlay = overlay(topic),
       .complete = [&](ParsedSettings& parsed) { complete(topic, parsed); },
       .plan = train::plan_host,
       .check = check_model,
       .run =
           [&](const Settings& settings, const launch::RankEnvironment& environment) {
             return run_until_stopped(
                 environment,
                 [&] { return bench::bench_checkpoint(settings, environment, command_line(topic, arguments)); },
                 [&] {
                   bench::remove_checkpoint_folder(settings, environment);
                   return std::string("nothing is left of it");
                 });
           },
       .when_asked = [](const Settings&) { return launch::WhenStopped::ends; }},
      arguments);
}

int run_scaling(const Topic& topic, Arguments arguments) {
  ParsedSettings parsed = read_topic(topic, arguments);
  if (parsed.given("train.global_batch_size"))
    throw UsageError(
        "error: bench scaling gives every rank one micro-batch, however many ranks there are: leave "
        "train.global_batch_size out and set train.micro_batch_size");
  check_model(parsed.settings);
  train::check_task(parsed.settings, model::config_of(parsed.settings.model));  // no run of several begins
  validate_places(parsed.settings);
  bench::BenchSettings& b = parsed.settings.bench;
  if (b.quick && !parsed.given("bench.steps")) b.steps = 2;
  if (b.quick && !parsed.given("bench.warmup")) b.warmup = 1;
  return bench::bench_scaling(parsed.settings, given_yaml(parsed), command_line(topic, arguments));
}

int run_calibrate(const Topic& topic, Arguments arguments) {
  const ParsedSettings parsed = read_topic(topic, arguments);
  validate_places(parsed.settings);
  if (parsed.settings.accelerator == engine::Accelerator::cuda) base::require_gpus(1);
  return bench::bench_calibrate(parsed.settings);
}

int run_compare(const Topic&, Arguments arguments) {
  if (arguments.size() != 2)
    throw UsageError(
        "error: bench compare takes two results: trireme bench compare before.json after.json (bench ... --json FILE "
        "writes them)");
  return bench::compare_files(arguments[0], arguments[1]);
}

using Values = std::vector<std::pair<std::string, std::string>>;
// Of topics that measure parts of a model.
Values measured_model(const char* name) { return {{"model", name}, {"train.micro_batch_size", "2"}}; }

const std::vector<std::string_view> kRowsOfTraining = {"train.micro_batch_size", "train.max_seq_length"},
                                    kNothingOfTraining = {};

const Topic kTopics[] = {
    {"train",
     "a whole training step: tokens/s, share of the peak, where the time goes",
     "trireme bench train llama-32m --devices 2 --train.micro_batch_size 2",
     "Times --steps optimizer steps after --warmup, on fixed random tokens, with no files and no evaluation.\n"
     "Every setting of trireme pretrain that changes a step works here too: --devices, --strategy, --mesh.tp, ...\n",
     run_train,
     {"bench.warmup", "bench.steps", "bench.json", "bench.operations"}},
    {"ops",
     "every fused operation beside copy bandwidth, products and attention beside the arithmetic peak",
     "trireme bench ops llama-32m --threads 2",
     "Calls each function of trireme/ops/ops.h, AdamW and the squared norm with the widths of the model.\n"
     "Operations that move memory run at two sizes: larger than all caches, and within one core's cache.\n"
     "Rate: the bytes they must move (each input read once, each output written once, both for updates in place)\n"
     "divided by their time. Limit: a copy of as many bytes, read plus written, with the best of memcpy, plain vector\n"
     "stores and non-temporal stores; for updates in place also a pass in place; for pure reads, a pass that reads.\n"
     "Products, attention and cross-entropy: rate counts operations (a multiply-add is 2; causal attention counts\n"
     "only the half that is not masked). Limit: multiply-adds on registers (AMX tiles).\n",
     run_ops,
     {"bench.threads", "bench.json", "bench.quick"},
     measured_model("llama-32m"),
     /*takes_model=*/true,
     kRowsOfTraining},
    {"gemm",
     "the matrix products of a model beside the arithmetic peak",
     "trireme bench gemm llama-32m --precision bf16-mixed --train.micro_batch_size 2",
     "Times each product of a block and the head in three directions: forward (NT: the weight is transposed), input\n"
     "gradient (NN), weight gradient (TN). Rows: the tokens of one micro-batch. Operations: 2 x tokens x in x out.\n"
     "Limit: independent multiply-adds on registers (AMX tiles where there are any), with as many threads: the\n"
     "median of runs in turn with the row's samples. A few rows of every result are checked.\n"
     "Then all products of one token, of 8 and of 32, with packed matrices as generation uses them, in the compute\n"
     "dtype and in nf4. Copies of the model take turns, eight times the last-level cache in all. Limit: the nearer "
     "one\n"
     "of reading the matrices and multiplying them.\n",
     run_gemm,
     {"bench.threads", "bench.json", "bench.quick"},
     measured_model("llama-32m"),
     /*takes_model=*/true,
     kRowsOfTraining},
    {"generate",
     "texts being written and a prompt being read, beside the memory's read rate",
     "trireme bench generate llama-3.2-1b --precision bf16-mixed --threads 2",
     "Runs the list of generation for 1, 8 and 32 texts of 256 tokens, and for a prompt of 512 tokens.\n"
     "Rate: the bytes of all weights and of the texts' keys and values, divided by the time of a run; or, where the\n"
     "arithmetic binds, the operations of the products. Limit: a pass that only reads; multiply-adds on registers.\n",
     run_generate,
     {"bench.threads", "bench.json", "bench.quick"},
     measured_model("llama-32m"),
     /*takes_model=*/true,
     kNothingOfTraining},
    {"collectives",
     "all_reduce, all_gather, ... between ranks, 4 KiB to 64 MiB",
     "trireme bench collectives --devices 2 --comm.backend shm",
     "Starts --devices ranks (default 2) and times each collective on shm and gloo (under mpirun on mpi too), or\n"
     "only on the --comm.backend given. Times are the slowest rank's. Size: the larger of input and output, as "
     "nccl-tests\n"
     "counts it. algbw = size / time; busbw = algbw x 2(N-1)/N for all_reduce, x (N-1)/N for reduce_scatter,\n"
     "all_gather, gather, scatter and all_to_all, x 1 for broadcast, reduce and send_receive (to the next rank).\n"
     "Rate: the bytes that a rank must read and write in shared memory, divided by the time: 2 x size for all_reduce,\n"
     "all_gather, broadcast, gather, all_to_all and send_receive, (1 + 1/N) for reduce_scatter and reduce, 2/N for\n"
     "scatter, and for all_gather into one buffer that all ranks share. Limit: the rate of a copy of that size while\n"
     "all ranks copy. Shared buffers are read in place by peers. Every result is checked before it is timed.\n",
     run_collectives,
     {"bench.json", "bench.quick"},
     {{"devices", "2"}},
     /*takes_model=*/false,
     kNothingOfTraining},
    {"checkpoint",
     "save and load of a model's training state beside plain file access",
     "trireme bench checkpoint llama-32m --devices 2",
     "Saves and loads the real training state (weights, masters, moments) with the real code, in a temporary folder\n"
     "below out_dir that is removed again. Limit: write() with fsync, and read(), of as many bytes in plain files, "
     "each\n"
     "rank its share; the limit of those is a copy in memory. The page cache is dropped before reading if possible.\n"
     "A save hashes what it writes; a load verifies what it reads, which includes the optimizer's files.\n"
     "Further columns: growth of a rank's private memory, bytes that ranks send each other, and how long training "
     "waits\n"
     "for a save in the background (save.mode async), as a share of the blocking save.\n",
     run_checkpoint,
     {"bench.json", "bench.quick"},
     measured_model("llama-32m")},
    {"data",
     "the batch loader's tokens/s beside what a training step consumes",
     "trireme bench data llama-5m",
     "Takes micro-batches from the real batch loader as fast as it delivers them, then trains one rank with it.\n"
     "Column 'steps fed at once': how many such ranks one loader could feed. Limits: a copy of the bytes that a token\n"
     "must move, and the model's operations at the arithmetic peak.\n",
     run_data,
     {"bench.threads", "bench.json", "bench.quick"},
     measured_model("llama-5m")},
    {"scaling",
     "bench train with several numbers of ranks: efficiency, and losses by cause, as a table and a picture",
     "trireme bench scaling llama-32m --ranks 1,2,4 --train.micro_batch_size 2",
     "Runs trireme bench train once for each number of ranks, with the settings given, one thread a rank unless\n"
     "launch.threads_per_rank says otherwise, and one micro-batch a rank. efficiency = tokens/s divided by (ranks x\n"
     "tokens/s of the first run); share = the same, but with no more ranks than there are cores for. 'lost to X' is "
     "how\n"
     "much longer X takes than in the first run, in per cent of the step (rank 0); negative: X takes less time.\n"
     "'cores lacking' = 1 - cores / threads, if there are more threads than cores; every cause takes longer then.\n"
     "With --predict, 'predicted ms' is the step that this machine's hardware file foretells (bench calibrate).\n",
     run_scaling,
     {"bench.ranks", "bench.warmup", "bench.steps", "bench.json", "bench.quick", "bench.picture"},
     {{"bench.warmup", "2"}, {"bench.steps", "5"}}},
    {"calibrate",
     "what operations take on this machine, for trireme plan --cluster Nxthis and --predict",
     "trireme bench calibrate",
     "Trains small models of several shapes for a few steps, on one rank with all cores and on a rank for each core, "
     "in\n"
     "fp32 and bf16, and notes the median time of each operation by its shape; times collectives likewise. Writes\n"
     "--hardware (~/.config/trireme/hardware.yaml). Takes about a minute and a half on two cores. With --accelerator "
     "cuda\n"
     "it measures one GPU, and writes gpu.yaml beside that file. A prediction for other\n"
     "shapes lies between the nearest ones. Figures are those of this moment, so end other work first.\n",
     run_calibrate,
     {"bench.hardware", "bench.quick"},
     {},
     /*takes_model=*/false},
    {"compare",
     "two results as JSON: what became faster or slower beyond its spread",
     "trireme bench compare before.json after.json",
     "Matches rows by what was measured and its size. ratio = time after / before; spread = the larger of the two\n"
     "runs' (third minus first quartile) / median; smaller differences are not marked. Takes the JSON of any bench\n"
     "subcommand; both files must come from the same one.\n",
     run_compare,
     {}},
};

std::string bench_overview() {
  std::string text =
      "trireme bench measures each part of training beside the limit of this machine in the same run.\n\n";
  for (const Topic& t : kTopics) text += fmt::format("  {:<12} {}\n", t.name, t.help);
  text += "\nExamples\n";
  for (const Topic& t : kTopics) text += fmt::format("  {}\n", t.example);
  return text +
         "\n--json FILE writes the result; --quick only checks that it works. trireme bench SUBCOMMAND --help explains "
         "more, and lists which of them it takes.\n";
}

int print_help(const Topic& t) {
  fmt::print("trireme bench {}: {}\n  {}\n\n{}", t.name, t.help, t.example, t.lesson);
  if (!t.settings.empty())
    fmt::print("\n{}\nAll other settings: trireme explain settings.\n", settings_help(t.settings, overlay(t)));
  return 0;
}

}  // namespace

int run_bench(Arguments arguments) {
  if (const auto code = answer_help(arguments, bench_overview())) return *code;
  std::vector<std::string> names;
  for (const Topic& t : kTopics) {
    names.emplace_back(t.name);
    if (arguments[0] != t.name) continue;
    const Arguments rest = arguments.subspan(1);
    return std::ranges::any_of(rest, is_help) ? print_help(t) : t.run(t, rest);
  }
  throw UsageError(fmt::format("error: there is no trireme bench {}{}; there is {}", arguments[0],
                               base::did_you_mean(arguments[0], names), base::join(names, ", ")));
}

}  // namespace trireme::cli
