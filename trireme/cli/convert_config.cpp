// trireme convert_config: writes another system's file of settings as Trireme's YAML.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/named_file.h"
#include "trireme/cli/command.h"
#include "trireme/cli/read_settings.h"
#include "trireme/dialects/systems.h"
#include "trireme/settings/validate.h"

namespace trireme::cli {
namespace {

constexpr const char* kConvertConfigUsage =
    "trireme convert_config --config FILE [--output FILE] [settings]: another system's settings as Trireme's YAML\n"
    "  trireme convert_config --config ds.json --devices 8 --output run.yaml\n"
    "  Files of DeepSpeed, Accelerate, LitGPT and others (docs/dialects.md). Keys that have no effect here, and why,\n"
    "  stand above the settings as comments.\n";

}  // namespace

int run_convert_config(Arguments arguments) {
  if (const auto code = answer_help(arguments, kConvertConfigUsage)) return *code;
  std::optional<std::string> output;
  const config::Section own{.name = "",
                            .title = "converting",
                            .rows = {{"output",
                                      &output,
                                      "file for the YAML",
                                      {.absent = "none", .when_absent = "standard output", .writes_file = true}}}};
  ParsedSettings parsed = read_settings(arguments, {.command = "convert_config", .own = {own}});
  if (parsed.help) {
    fmt::print("{}", kConvertConfigUsage);
    return 0;
  }
  const bool has_settings = std::ranges::any_of(parsed.provenance, [&](const auto& setting) {
    return setting.first != "model" && setting.first != "output" && parsed.given(setting.first);
  });
  if (!has_settings && parsed.accounts.empty())
    throw UsageError(
        "error: there is nothing to convert; name the other system's file: trireme convert_config --config ds.json");
  validate_places(std::vector<config::Section>{own});
  for (const std::string& file : parsed.files) {
    std::error_code ignored;
    if (output && std::filesystem::is_regular_file(file, ignored) &&
        std::filesystem::equivalent(file, *output, ignored))
      throw UsageError(fmt::format(
          "error: --output {} is a file that --config reads or names, and would be lost; name another --output",
          *output));
  }
  const bool replaces = parsed.typed("overwrite") && parsed.settings.overwrite;  // what the file says is of the run
  if (std::error_code ignored; output && !replaces && std::filesystem::is_regular_file(*output, ignored))
    throw UsageError(
        fmt::format("error: {} is there already; name another --output, or replace it with --overwrite true", *output));
  // Typed here it is meant for this command's own file. A run whose settings had it would replace earlier runs.
  if (parsed.typed("overwrite")) parsed.provenance["overwrite"] = {config::Source::Kind::built_in, "default", ""};
  std::string text;
  for (const config::Account& account : parsed.accounts)
    if (account.is_ignored)
      text += fmt::format("# {}: {} is ignored: {}\n", account.source.place, account.key, account.text);
  text += given_yaml(parsed);
  if (!output) {
    fmt::print("{}", text);
    return 0;
  }
  base::write_named_file(*output, text);
  fmt::print("wrote {}\n", *output);
  return 0;
}

}  // namespace trireme::cli
