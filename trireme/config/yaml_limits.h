// Bounds for YAML that strangers wrote, checked before a tree is made of it: a few hundred bytes of aliases to aliases
// can stand for a billion values, and a tree takes a hundred bytes for each.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::config {

struct YamlLimits {
  int64_t values = 20'000;  ///< scalars, lists and maps; an alias counts as all that it stands for
  int64_t bytes = int64_t{1} << 20;
};

/// The number of documents in `text`, counted up to 2.
///
/// Memory    a few copies of `text`
/// Errors    YAML::Exception with the place: not YAML, more than the limits, an alias inside of what it stands for
int count_yaml_documents(const std::string& text, const YamlLimits& limits = {});

}  // namespace trireme::config
