#include "trireme/train/generate.h"

#include <cstdio>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/cli/command.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"

namespace trireme::cli {

int run_generate(Arguments arguments) {
  const config::ParsedSettings parsed =
      config::parse(arguments, {.command = "generate", .positional = "generate.checkpoint", .section = "generate"});
  if (parsed.help) {
    fmt::print("trireme generate CHECKPOINT --prompt TEXT\n\n{}", config::help_text({"generate"}));
    return 0;
  }
  if (parsed.settings.generate.checkpoint.empty())
    throw UsageError("error: no checkpoint is named\n  trireme generate out/austen --prompt \"It is\"");
  return train::generate(parsed.settings, [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
}

}  // namespace trireme::cli
