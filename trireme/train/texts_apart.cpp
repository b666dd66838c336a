#include "trireme/train/texts_apart.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::train {

void keep_texts_apart(ParsedSettings& parsed, std::string_view why) {
  plan::MeshSettings& mesh = parsed.settings.mesh;
  if (mesh.cp.value_or(1) == 1) return;
  if (parsed.given("mesh.context") && mesh.context == model::Context::ring)
    throw UsageError(
        fmt::format("{}, which mesh.context ring cannot; leave mesh.context out, or take mesh.context ulysses", why));
  mesh.context = model::Context::ulysses;
}

void keep_documents_apart(ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  if (s.task != Learning::language || !s.data.reset_attention_mask) return;
  keep_texts_apart(parsed, parsed.given("data.reset_attention_mask")
                               ? "data.reset_attention_mask keeps each document to itself"
                               : "fine-tuning keeps each conversation to itself (data.reset_attention_mask)");
}

}  // namespace trireme::train
