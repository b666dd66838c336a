#include <string>

#include "targets.h"
#include "trireme/base/error.h"
#include "trireme/config/problems.h"
#include "trireme/dialects/systems.h"
#include "trireme/settings/settings.h"

namespace trireme::fuzz {

/// A file of another system, as YAML and as JSON, recognised by its content and read as each of them.
void fuzz_dialect(std::string_view bytes) {
  static Settings settings;
  static const config::Table table = declare(settings);
  static const dialects::Systems others({.world_size = [](const dialects::Reading&) { return int64_t{4}; }});
  const std::string contents(bytes);
  std::vector<std::string> names = {""};
  for (const dialects::Dialect* dialect : dialects::all_dialects()) names.emplace_back(dialect->name);
  std::string error;
  for (const char* path : {"fuzz.json", "fuzz.yaml"})
    for (const std::string& name : names) {
      config::Problems problems;
      const auto file = others.recognise(contents, path, name, problems);
      if (!file || !problems.empty()) continue;
      const auto found = others.read(*file, table, {}, "pretrain", problems);
      for (const config::Given& given : found.settings) require(!given.key.empty(), "a setting has a key");
      if (problems.empty())
        require(found.accounts.size() >= file->entries.size(), "every key of an accepted file has an account");
      try {
        problems.throw_if_any();
      } catch (const Error& refused) {
        error = refused.what();
      }
    }
  require(error.size() <= 16384, "an error is one clear message");
}

}  // namespace trireme::fuzz
