#include "trireme/train/evaluate.h"

#include <fmt/format.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/cli/start.h"
#include "trireme/cli/training.h"
#include "trireme/cli/until_stopped.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

int run_evaluate(Arguments arguments) {
  return start(
      {.subcommand = "evaluate",
       .overlay = {.values = {{"out_dir", "out/evaluate"}, {"strategy", "no_shard"}},
                   .command = "evaluate",
                   .positional = "evaluate.checkpoint",
                   .second = "evaluate.text",
                   .unread_groups = groups_of_training(),
                   .unread_keys = {"task", "resume", "overwrite"},
                   .read_keys = {"data.text_field", "free.latent", "free.latent_seed"},  // some refused below
                   .section = "evaluate"},
       .help = "trireme evaluate CHECKPOINT --text FILE\n"
               "trireme evaluate CHECKPOINT --classify TEXTS.jsonl --predictions LABELS.jsonl\n"
               "trireme evaluate CHECKPOINT --score REPLIES.jsonl --predictions LOGPS.jsonl\n"
               "trireme evaluate CHECKPOINT --tasks \"[hellaswag=hellaswag.jsonl, piqa=piqa.jsonl]\"\n"
               "trireme evaluate CHECKPOINT --tasks \"[gsm8k=gsm8k.jsonl, mine=mine.yaml]\"\n"
               "trireme evaluate CHECKPOINT --multiple_choice QUESTIONS.jsonl --devices 4 --mesh.tp 2\n\n"
               "mesh.tp and mesh.pp divide the model; further ranks are copies that share the work.\n\n",
       .help_groups = {"evaluate"},
       .also_takes =
           "devices, num_nodes, strategy, mesh.*, precision, quantize, quantize_head, data.text_field, comm.*, "
           "launch.*",
       .complete =
           [](ParsedSettings& parsed) {
             leave_out_optimizer(parsed.settings);
             // One rank predicts labels, also where there would be one for each NUMA node.
             if (parsed.settings.evaluate.classify && !parsed.given("devices") && !launch::rank_environment().launched)
               parsed.settings.devices = 1;
             const train::EvaluateSettings& e = parsed.settings.evaluate;
             if (parsed.typed("data.text_field") && !e.classify)
               throw UsageError("error: data.text_field has no effect: only evaluate.classify reads it; leave it out");
             for (const char* key : {"free.latent", "free.latent_seed"})
               if (parsed.typed(key))
                 throw UsageError(
                     fmt::format("error: {} has no effect: evaluate draws all codes at random; leave it out", key));
             if (parsed.typed("evaluate.max_seq_length") && e.max_seq_length && !e.text && !e.classify)
               throw UsageError(
                   "error: evaluate.max_seq_length has no effect: only windows of a text and labelled texts have such "
                   "a length; name a text with --text FILE, or leave it out");
           },
       .check =
           [](const Settings& settings) {
             if (settings.evaluate.checkpoint.empty())
               throw UsageError("error: no checkpoint is named\n  trireme evaluate out/austen --text my.txt");
             train::check_evaluate(settings);
           },
       .run =
           [](const Settings& settings, const launch::RankEnvironment& environment) {
             return run_until_stopped(
                 environment, [&] { return train::evaluate(settings, environment); },
                 [] { return std::string("nothing was written"); });
           },
       .when_asked = [](const Settings&) { return launch::WhenStopped::ends; }},
      arguments);
}

}  // namespace trireme::cli
