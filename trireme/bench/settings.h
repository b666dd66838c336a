// The settings of `trireme bench`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::bench {

struct BenchSettings {
  int64_t warmup = 3;
  int64_t steps = 10;
  std::optional<std::string> json;
  bool quick = false;
  bool operations = false;
  std::optional<std::string> hardware;
  std::optional<int64_t> threads;
  std::optional<std::vector<int64_t>> ranks;
  std::optional<std::string> picture;
  bool operator==(const BenchSettings&) const = default;
};
config::Section section(BenchSettings& settings);

}  // namespace trireme::bench
