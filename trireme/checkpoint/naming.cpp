#include "trireme/checkpoint/naming.h"

#include <algorithm>
#include <utility>

namespace trireme::checkpoint {

std::string Naming::name_of(const std::string& ours) const {
  std::string name = ours.starts_with(strip) ? add + ours.substr(strip.size()) : ours;
  if (!old_norms) return name;
  for (const auto& [newer, older] : {std::pair(".weight", ".gamma"), {".bias", ".beta"}})
    if (const std::string norm = std::string("LayerNorm") + newer; name.ends_with(norm))
      return name.substr(0, name.rfind(newer)) + older;
  return name;
}

Naming naming_of(const Checkpoint& folder, const std::string& ours) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : folder.tensors) names.push_back(name);
  return naming_of(names, ours);
}

Naming naming_of(const std::vector<std::string>& names, const std::string& ours) {
  static const Naming kNamings[] = {{"", ""},
                                    {"transformer.", ""},
                                    {"model.", "", true},
                                    {"bert.", "", true},
                                    {"roberta.", "", true},
                                    {"distilbert.", "", true},
                                    {"", "language_model.", true},
                                    {"model.", "model.language_model.", true}};
  for (Naming naming : kNamings) {
    if (!ours.starts_with(naming.strip) || std::ranges::count(names, naming.name_of(ours)) == 0) continue;
    naming.old_norms = std::ranges::any_of(names, [](const auto& name) { return name.ends_with("LayerNorm.gamma"); });
    naming.is_part = naming.is_part || naming.old_norms;
    return naming;
  }
  return {};
}

}  // namespace trireme::checkpoint
