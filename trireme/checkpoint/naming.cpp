#include "trireme/checkpoint/naming.h"

namespace trireme::checkpoint {

std::string Naming::name_of(const std::string& ours) const {
  return ours.starts_with(strip) ? add + ours.substr(strip.size()) : ours;
}

Naming naming_of(const Checkpoint& folder, const std::string& ours) {
  static const Naming kNamings[] = {{"", ""},
                                    {"transformer.", ""},
                                    {"model.", "", true},
                                    {"", "language_model.", true},
                                    {"model.", "model.language_model.", true}};
  for (const Naming& naming : kNamings)
    if (ours.starts_with(naming.strip) && folder.has_tensor(naming.name_of(ours))) return naming;
  return {};
}

}  // namespace trireme::checkpoint
