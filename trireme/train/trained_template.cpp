#include "trireme/train/trained_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/files.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/text/chat_template.h"
#include "trireme/train/checkpointing.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

std::optional<KnownTemplate> trained_template(const fs::path& named) {
  if (named.empty()) return std::nullopt;
  const fs::path folder = checkpoint::newest_or_itself(named);
  const fs::path file = folder / checkpoint::kStateName;
  if (!base::is_file(file)) return std::nullopt;
  const std::string name = parse_run_state(base::read_side_file(file), folder).chat_template;
  const auto families = text::chat_families();
  if (std::ranges::find(families, name, [](const auto& family) { return std::string(family.name); }) == families.end())
    return std::nullopt;  // trained on plain text, or saved before templates were
  return KnownTemplate{.name = name, .trained = folder};
}

}  // namespace

std::string KnownTemplate::remark(const fs::path& weights) const {
  if (trained.empty() || text::chat_family_of(checkpoint::newest_or_itself(weights)) == name) return "";
  return fmt::format("template {}, in which {} was trained", name, trained.string());
}

std::optional<KnownTemplate> template_of_model(const fs::path& weights, const fs::path& adapter) {
  if (auto known = trained_template(adapter)) return known;
  if (auto known = trained_template(weights)) return known;
  if (auto name = text::chat_family_of(checkpoint::newest_or_itself(weights)))
    return KnownTemplate{*std::move(name), {}};
  return std::nullopt;
}

}  // namespace trireme::train
