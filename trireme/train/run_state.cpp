#include "trireme/train/run_state.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/problems.h"
#include "trireme/config/yaml_file.h"
#include "trireme/settings/settings.h"

namespace trireme::train {
namespace {

optim::LossScaleState parse_loss_scale(const nlohmann::ordered_json& j) {
  const optim::LossScaleState s{.scale = j.at("scale").get<double>(),
                                .good_steps = base::whole_number(j.at("good_steps")),
                                .overflows_left = base::whole_number(j.at("overflows_left")),
                                .skipped = base::whole_number(j.at("skipped"))};
  int exponent = 0;
  if (std::frexp(s.scale, &exponent) != 0.5 || s.good_steps < 0 || s.overflows_left < 1 || s.skipped < 0)
    throw Error("loss_scale is not the state of a loss scale");
  return s;
}

}  // namespace

std::string to_json(const RunState& s) {
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& [name, value] : s.data.facts()) data[name] = value;
  nlohmann::ordered_json json{{"step", s.step},
                              {"samples", s.samples},
                              {"tokens", s.tokens},
                              {"run", s.run},
                              {"data", std::move(data)},
                              {"data_fingerprint", base::checksum_text(s.data.fingerprint())},
                              {"settings", s.settings_yaml}};
  if (const optim::LossScaleState& l = s.loss_scale; l.scale > 0)
    json["loss_scale"] = {
        {"scale", l.scale}, {"good_steps", l.good_steps}, {"overflows_left", l.overflows_left}, {"skipped", l.skipped}};
  if (s.evaluation_due) json["evaluation_due"] = true;
  if (!s.untrained_steps.empty()) json["untrained_steps"] = s.untrained_steps;
  if (!s.base_path.empty()) json["base"] = {{"path", s.base_path}, {"fingerprint", s.base_fingerprint}};
  if (!s.chat_template.empty()) json["chat_template"] = s.chat_template;
  if (!s.reference.empty()) json["reference"] = s.reference;
  if (!s.task.empty()) json["task"] = s.task;
  return base::json_text(json, 2);
}

RunState parse_run_state(const std::string& text, const std::filesystem::path& path) try {
  const nlohmann::ordered_json j = base::parse_json<nlohmann::ordered_json>(text);
  RunState s;
  if (j.empty()) return s;
  s.step = base::whole_number(j.at("step"));
  s.samples = base::whole_number(j.at("samples"));
  s.tokens = base::whole_number(j.at("tokens"));
  s.evaluation_due = j.value("evaluation_due", false);
  s.run = j.value("run", "");
  if (j.contains("data"))
    for (const auto& [name, value] : j.at("data").items()) s.data.add(name, value.get<std::string>());
  s.settings_yaml = j.at("settings").get<std::string>();
  s.chat_template = j.value("chat_template", "");
  s.reference = j.value("reference", "");
  s.task = j.value("task", "");
  if (j.contains("loss_scale")) s.loss_scale = parse_loss_scale(j.at("loss_scale"));
  if (j.contains("untrained_steps"))
    for (const auto& [name, value] : j.at("untrained_steps").items()) {
      const int64_t steps = base::whole_number(value);
      if (steps < 1 || steps > s.step - s.loss_scale.skipped)
        throw Error(fmt::format("untrained_steps of {} are {}, which are no steps of the run", name, steps));
      s.untrained_steps[name] = steps;
    }
  return s;
} catch (const std::exception& e) {
  throw CheckpointError(
      fmt::format("the checkpoint {} has an unusable trireme_state.json: {}", path.string(), e.what()), path.string());
}

std::string saved_setting(const checkpoint::Checkpoint& c, std::string_view key) {
  config::Problems problems;
  const std::string settings = parse_run_state(c.state_json, c.path).settings_yaml;
  Settings of_any_run;
  for (const config::Given& given : config::read_yaml(settings, "settings", declare(of_any_run), problems))
    if (given.key == key) return given.text;
  return "";
}

}  // namespace trireme::train
