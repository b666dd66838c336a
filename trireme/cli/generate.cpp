#include "trireme/train/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/cli/start.h"
#include "trireme/cli/training.h"
#include "trireme/cli/until_stopped.h"
#include "trireme/settings/validate.h"
#include "trireme/train/generate_many.h"
#include "trireme/train/prompt_file.h"

namespace trireme::cli {
namespace {

// Texts in a file stay, and the same command writes the others. Other texts are for whoever reads them: a signal ends
// them.
launch::WhenStopped when_asked(const Settings& settings) {
  return settings.generate.prompts && settings.generate.output ? launch::WhenStopped::goes_on
                                                               : launch::WhenStopped::dies;
}

int run_ranks(const Settings& settings, const launch::RankEnvironment& environment) {
  const auto work = [&] {
    return train::generate(settings, environment, [](std::string_view text) {
      if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        base::throw_file_error("write", "standard output", errno);
    });
  };
  if (when_asked(settings) == launch::WhenStopped::dies) return work();
  return run_until_stopped(environment, work,
                           [&] { return fmt::format("{}; give the command again", train::texts_written(settings)); });
}

// What is typed and would not be read; files hold settings of several ways to write.
void refuse_ignored_by_one_text(const ParsedSettings& parsed) {
  const train::GenerateSettings& g = parsed.settings.generate;
  const auto is_typed = [&](const char* key, bool says_something) { return parsed.typed(key) && says_something; };
  const char* of_conversations = is_typed("generate.system", g.system.has_value())                 ? "--system"
                                 : is_typed("generate.chat_template", g.chat_template.has_value()) ? "--chat_template"
                                                                                                   : nullptr;
  if (g.prompts) {
    const auto is_talk = [](const train::Prompt& prompt) { return !prompt.messages.empty(); };
    if (of_conversations != nullptr &&
        std::ranges::none_of(train::read_prompts(*g.prompts, "generate.prompts"), is_talk))
      throw UsageError(
          fmt::format("{} is of conversations, and {} holds plain texts; give it lines with \"messages\", or leave it "
                      "out",
                      of_conversations, *g.prompts));
    return;
  }
  if (parsed.typed("generate.batch_size"))
    throw UsageError(
        "--generate.batch_size goes with a file of prompts; name one with --prompts FILE.jsonl, or leave it out");
  if (of_conversations != nullptr && !g.chat)
    throw UsageError(
        fmt::format("{} is of conversations; hold one with --chat, name a file of them with --prompts, or leave it out",
                    of_conversations));
}

}  // namespace

int run_generate(Arguments arguments) {
  return start(
      {.subcommand = "generate",
       .overlay = {.values = {{"out_dir", "out/generate"}, {"strategy", "no_shard"}},
                   .command = "generate",
                   .positional = "generate.checkpoint",
                   .second = "generate.prompt",
                   .unread_groups = groups_of_training(),
                   .unread_keys = {"task", "resume", "overwrite"},
                   .read_keys = {"free.latent", "free.latent_seed"},
                   .section = "generate"},
       .help = "trireme generate CHECKPOINT --prompt TEXT\n"
               "trireme generate CHECKPOINT --prompt TEXT --devices 2 --mesh.tp 2\n"
               "trireme generate CHECKPOINT --prompts FILE.jsonl --samples 4 --output TEXTS.jsonl --devices 2\n\n",
       .help_groups = {"generate"},
       .also_takes = "devices, num_nodes, strategy, mesh.*, precision, quantize, quantize_head, comm.*, launch.*",
       .complete =
           [](ParsedSettings& parsed) {
             Settings& s = parsed.settings;
             refuse_ignored_by_one_text(parsed);
             leave_out_optimizer(s);
             if (!parsed.given("devices") && !launch::rank_environment().launched) s.devices = 1;
             // Many texts are divided among copies of the model, which share its weights; one text by its matrices.
             if (s.generate.prompts && !parsed.given("strategy")) s.strategy = plan::Strategy::shard_grad_op;
             if (!s.mesh.tp && !s.mesh.pp && !s.mesh.cp && !s.generate.prompts) s.mesh.tp = world_size(s);
           },
       .check =
           [](const Settings& settings) {
             if (settings.generate.checkpoint.empty())
               throw UsageError("error: no checkpoint is named\n  trireme generate out/austen --prompt \"It is\"");
             train::check_generate(settings);
           },
       .run = run_ranks,
       .when_asked = when_asked},
      arguments);
}

}  // namespace trireme::cli
