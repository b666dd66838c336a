// What the tests of dialects share: files of other systems, read as a command reads them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dialects/systems.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

namespace trireme::dialects {

using testing::HasSubstr;

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-dialect-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& contents) const {
    const auto path = std::filesystem::path(path_) / name;
    std::ofstream(path) << contents;
    return path.string();
  }
  std::string operator/(const std::string& name) const { return (std::filesystem::path(path_) / name).string(); }

 private:
  std::string path_;
};

inline const Systems& systems_of_tests() {
  static const Systems kSystems({.world_size =
                                     [](const Reading& reading) {
                                       return reading.known_count("devices").value_or(1) *
                                              reading.known_count("num_nodes").value_or(1);
                                     },
                                 .run_begins = [](const Reading&) { return "2026-01-02/03-04-05"; }});
  return kSystems;
}

inline std::vector<std::string> split(const std::string& words) {
  std::istringstream in(words);
  return {std::istream_iterator<std::string>(in), {}};
}

inline ParsedSettings read(const std::string& words, const std::string& command = "pretrain") {
  return parse_settings(split(words), {.command = command,
                                       .others = &systems_of_tests(),
                                       .environment = [](const char*) -> const char* { return nullptr; }});
}

/// Reads one file, after these words.
inline ParsedSettings read_text(const std::string& name, const std::string& contents, const std::string& words = "",
                                const std::string& command = "pretrain") {
  const Folder folder;
  return read("--config " + folder.write(name, contents) + " " + words, command);
}

/// The refusal of a file, without the path of its folder; "" if it is accepted.
inline std::string refusal_of(const std::string& name, const std::string& contents, const std::string& words = "",
                              const std::string& command = "pretrain") {
  const Folder folder;
  const std::string path = folder.write(name, contents);
  try {
    read("--config " + path + " " + words, command);
    return "";
  } catch (const UsageError& error) {
    std::string text = error.what();
    for (size_t at = text.find(path); at != std::string::npos; at = text.find(path))
      text.replace(at, path.size(), name);
    return text;
  }
}

/// "zero_optimization.stage: strategy full_shard" for each key.
inline std::string accounts_of(const ParsedSettings& parsed) {
  std::string text;
  for (const config::Account& account : parsed.accounts)
    text += account.key + ": " + (account.is_ignored ? "ignored: " : "") + account.text + "\n";
  return text;
}

}  // namespace trireme::dialects
