// What the tests of config/ and settings/ share: parsing a line of arguments without the process's environment, and the
// text of refusals.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dialects/systems.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

namespace trireme {

using namespace config;  // NOLINT: the mechanism's names, in tests alone
using comm::Backend;
using comm::Compression;
using engine::Accelerator;
using model::Context;
using model::NumberFormat;
using model::WrapBy;
using optim::LrDecay;
using optim::LrScaling;
using plan::Accumulation;
using plan::Reduce;
using plan::Strategy;
using schedule::PrefetchBackward;
using schedule::Recompute;

inline const char* no_environment(const char*) { return nullptr; }

/// All dialects, on as many ranks as the settings say.
inline const dialects::Systems& other_systems() {
  static const dialects::Systems kSystems({.world_size = [](const dialects::Reading& reading) {
    return reading.known_count("devices").value_or(1) * reading.known_count("num_nodes").value_or(1);
  }});
  return kSystems;
}

/// The table of all settings, in Trireme's words and those of the dialects.
inline const Table& all_settings() {
  static Settings settings;
  static const Table kTable = [] {
    Table table = declare(settings);
    table.others = &other_systems();
    return table;
  }();
  return kTable;
}
inline const std::vector<std::string>& all_keys() { return all_settings().keys(); }
inline std::string canonical_key(const std::string& key) { return all_settings().canonical_key(key); }

inline ParsedSettings parse_line(const std::vector<std::string>& arguments, Overlay overlay = {}) {
  if (!overlay.environment) overlay.environment = no_environment;
  overlay.others = &other_systems();
  return parse_settings(arguments, overlay);
}

/// The text of the UsageError that these arguments cause; "" when they are accepted.
inline std::string refusal(const std::vector<std::string>& arguments, const Overlay& overlay = {}) {
  try {
    parse_line(arguments, overlay);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// Settings from arguments separated by blanks: "mesh.pp=2 reduce=fast".
inline Settings settings_from(const std::string& arguments) {
  std::istringstream words(arguments);
  return parse_line({std::istream_iterator<std::string>(words), {}}).settings;
}

/// The text of the UsageError with which `ranks` ranks refuse these settings; "" when they are accepted.
inline std::string verdict(const Settings& settings, int64_t ranks) {
  try {
    validate(settings, ranks);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// A YAML file that lives as long as this object.
class YamlFile {
 public:
  explicit YamlFile(const std::string& contents) {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-config-XXXXXX.yaml").string();
    const int descriptor = ::mkstemps(name.data(), 5);
    if (descriptor < 0) throw std::runtime_error("no temporary file");
    ::close(descriptor);
    path_ = name;
    std::ofstream(path_) << contents;
  }
  ~YamlFile() { std::filesystem::remove(path_); }
  YamlFile(const YamlFile&) = delete;
  YamlFile& operator=(const YamlFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trireme
