#include "trireme/train/trained_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/files.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/train/run_data.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

bool is_family(const std::string& name) {
  return std::ranges::any_of(text::chat_families(), [&](const text::ChatFamily& f) { return name == f.name; });
}

std::optional<KnownTemplate> trained_template(const fs::path& named) {
  if (named.empty()) return std::nullopt;
  const fs::path folder = checkpoint::newest_or_itself(named);
  const fs::path file = folder / checkpoint::kStateName;
  if (!base::is_file(file)) return std::nullopt;
  const std::string name = parse_run_state(base::read_file(file), folder).chat_template;
  if (!is_family(name)) return std::nullopt;  // trained on plain text, or saved before templates were
  return KnownTemplate{.name = name, .trained = folder};
}

// That of an adapter which another program trained.
std::optional<KnownTemplate> template_in_files(const fs::path& adapter, const fs::path& weights) {
  if (adapter.empty()) return std::nullopt;
  const fs::path folder = checkpoint::newest_or_itself(adapter);
  auto name = text::chat_family_of(folder);
  if (!name || name == text::chat_family_of(checkpoint::newest_or_itself(weights))) return std::nullopt;
  return KnownTemplate{.name = *std::move(name), .trained = folder};
}

// What the run starts from was trained in it; "": in none, or the run brings a tokenizer with a template of its own.
std::string template_at_start(const Settings& s, const std::string& of_files) {
  if (s.data.tokenizer && !of_files.empty()) return "";
  const fs::path weights = starting_weights(s);
  if (weights.empty()) return "";
  const auto known = template_of_model(weights, s.lora.initial_adapter.value_or(""));
  return known && !known->trained.empty() ? known->name : "";
}

}  // namespace

std::string KnownTemplate::remark(const fs::path& weights) const {
  if (trained.empty() || text::chat_family_of(checkpoint::newest_or_itself(weights)) == name) return "";
  return fmt::format("template {}, in which {} was trained", name, trained.string());
}

std::optional<KnownTemplate> template_of_model(const fs::path& weights, const fs::path& adapter) {
  if (auto known = trained_template(adapter)) return known;
  if (auto known = template_in_files(adapter, weights)) return known;
  if (auto known = trained_template(weights)) return known;
  if (auto name = text::chat_family_of(checkpoint::newest_or_itself(weights)))
    return KnownTemplate{*std::move(name), {}};
  return std::nullopt;
}

void keep_template(Session& session, const std::string& learned, RunState& state) {
  if (!learned.empty()) state.chat_template = learned;
  checkpoint::agree(session.world(), [&] {
    if (!session.is_first_rank()) return;  // its texts are saved
    std::map<std::string, std::string>& files = state.source.side_files;
    const std::string of_files = text::chat_template_of(files);
    if (state.chat_template.empty()) state.chat_template = template_at_start(session.settings, of_files);
    if (!is_family(state.chat_template)) return;
    const text::ChatFamily& family = text::find_chat_family(state.chat_template);
    const auto tokenizer = resolve_tokenizer(session.settings, session.model.config);
    if (const auto id = text::end_of_reply(family, *tokenizer)) stop_at(session, *tokenizer, *id, state);
    if (text::chat_family_of_template(of_files) == state.chat_template) return;
    text::set_chat_template(files, text::jinja_of(family, text::ChatEncoder(*tokenizer, family).begins()));
  });
}

}  // namespace trireme::train
