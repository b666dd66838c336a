#include "trireme/cli/read_settings.h"

#include <utility>

#include "trireme/dialects/litgpt.h"
#include "trireme/dialects/torchrun.h"

namespace trireme::cli {
namespace {

const std::vector<config::Dialect> kDialects = {dialects::litgpt, dialects::torchrun};

}  // namespace

ParsedSettings read_settings(Arguments arguments, config::Overlay overlay) {
  overlay.dialects = kDialects;
  return parse_settings(arguments, overlay);
}

std::string settings_help(const std::vector<std::string>& words, const std::string& section) {
  return help_text(words, {.section = section, .dialects = kDialects});
}

}  // namespace trireme::cli
