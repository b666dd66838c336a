#include "trireme/launch/machines/same_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/config/choices.h"
#include "trireme/config/value.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/supervise/headline.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/settings/derived.h"

namespace trireme::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kShownKeys = 3;
constexpr size_t kShownBytes = 200;  // of a value

// Of how a machine takes part, what leaves its memory (which changes no number), and of commands without ranks.
// launch.homogeneous decides about a collective, and offload.prefetch about their order.
constexpr std::string_view kOwnSections[] = {"launch", "offload", "prepare", "convert", "doctor"};
constexpr std::string_view kYetCommon[] = {"launch.homogeneous", "offload.prefetch"};
// Where a run lies and where it goes on (all take rank 0's answer), what rank 0 alone does, and a machine's own limits.
constexpr std::string_view kOwn[] = {"devices",
                                     "num_nodes",
                                     "out_dir",
                                     "resume",
                                     "overwrite",
                                     "dry_run",
                                     "predict",
                                     "data.num_workers",
                                     "train.loggers",
                                     "train.logger_command",
                                     "train.run_name",
                                     "train.prometheus_port",
                                     "train.prometheus_address",
                                     "reward.command_memory",
                                     "comm.timeout",
                                     "bench.threads"};
constexpr std::string_view kFiles[] = {
    "data.train_data_path",     "data.val_data_path",   "data.tokenizer",   "data.mixture",
    "lora.initial_adapter",     "dpo.reference",        "grpo.prompts",     "grpo.val_prompts",
    "grpo.reference",           "reward.command",       "profile.schedule", "generate.checkpoint",
    "generate.adapter",         "generate.base",        "generate.prompts", "generate.output",
    "evaluate.checkpoint",      "evaluate.adapter",     "evaluate.base",    "evaluate.text",
    "evaluate.multiple_choice", "evaluate.tasks",       "evaluate.fewshot", "evaluate.classify",
    "evaluate.score",           "evaluate.predictions", "evaluate.json",    "bench.json",
    "bench.hardware",           "bench.picture"};

bool is_among(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string value_of(const config::Setting& setting, const Settings& settings) {
  if (is_among(setting.key, kFiles)) return config::is_absent(setting) ? "no file" : "a file";
  if (setting.key == "precision")
    return fmt::format("{}{}", config::name_of(number_format(settings)),
                       config::value_text(setting) == "auto" ? " (auto)" : "");
  if (setting.key == "model" && base::is_file(std::filesystem::path(settings.model.name) / "config.json"))
    return "a folder";
  return config::value_text(setting);
}

std::string with_common_settings(nlohmann::ordered_json values, const Settings& settings) {
  Settings shown = settings;
  declare(shown).for_each([&](const config::Section& section, const config::Setting& setting) {
    if (!is_among(setting.key, kYetCommon) && (is_among(section.name, kOwnSections) || is_among(setting.key, kOwn)))
      return;
    values[std::string(setting.key)] = value_of(setting, settings);
  });
  return base::json_text(values);
}

// A restarted attempt must not read the keys of the one before it.
std::string key_of(const RankEnvironment& e, std::string_view word) {
  return fmt::format("{}{}", word, e.restart_count > 0 ? fmt::format("#{}", e.restart_count) : "");
}
std::string settings_key(const RankEnvironment& e) { return key_of(e, "start/settings"); }
std::string refused_key(const RankEnvironment& e) { return key_of(e, "start/refused"); }
std::string knowing_key(const RankEnvironment& e, int rank) { return key_of(e, fmt::format("start/knows/{}", rank)); }

// What a rank leaves: "2 rank 1 was refused: ...".
[[noreturn]] void end_as_told(std::string_view told) {
  const size_t blank = told.find(' ');
  const std::string why(told.substr(blank == std::string_view::npos ? 0 : blank + 1));
  const std::string_view code = told.substr(0, blank);
  if (code == std::to_string(base::kRefused)) throw UsageError(why);
  if (code == std::to_string(base::kStorageFailed)) throw base::FileError(why, {}, EIO);
  throw Error(why);
}

// Says that this rank knows of a refusal. A launcher ends all its ranks when one of them ends, and rank 0 serves the
// store. So each rank stays until all know.
void end_with_others(store::Client& client, const RankEnvironment& e) try {
  client.set(knowing_key(e, e.global_rank), "");
  std::vector<std::string> all;
  for (int rank = 0; rank < e.world_size; ++rank) all.push_back(knowing_key(e, rank));
  const auto until = Clock::now() + kTimeToTell;
  while (!client.wait(all, kLookForRefusal) && Clock::now() < until && !stop_requested()) {
  }
} catch (const Error&) {  // rank 0 has ended, for all know
}

// Returns what has been told first.
std::string leave(store::Client& client, const RankEnvironment& e, const std::string& why, int exit_code) {
  const std::string told = client.compare_set(refused_key(e), "", fmt::format("{} {}", exit_code, why));
  end_with_others(client, e);
  return told;
}

}  // namespace

void tell_all(store::Client& client, const RankEnvironment& environment, const std::string& why, int exit_code) {
  leave(client, environment, why, exit_code);
}

std::string common_settings(const Settings& settings, const RankEnvironment& environment) {
  return with_common_settings({{"world size", std::to_string(environment.world_size)}}, settings);
}

std::string common_settings_of_machines(const Settings& settings) {
  return with_common_settings({{"devices", std::to_string(settings.devices.value_or(1))}}, settings);
}

std::string difference(const std::string& own, const std::string& of_rank_0) {
  // What auto means is compared, not how it was said.
  const auto plain = [](std::string value) {
    constexpr std::string_view kAuto = " (auto)";
    return value.ends_with(kAuto) ? value.substr(0, value.size() - kAuto.size()) : value;
  };
  const auto mine = base::parse_json_if_sound<nlohmann::ordered_json>(own),
             first = base::parse_json_if_sound<nlohmann::ordered_json>(of_rank_0);
  std::vector<std::string> parts;
  size_t number = 0;
  for (const auto& [key, value] : mine.items()) {
    const auto theirs = first.find(key);
    if (theirs == first.end() || plain(*theirs) == plain(value) || ++number > kShownKeys) continue;
    parts.push_back(fmt::format("{} {}, rank 0 has {}", key, base::shortened(value.get<std::string>(), kShownBytes),
                                base::shortened(theirs->get<std::string>(), kShownBytes)));
  }
  if (number > kShownKeys) parts.push_back(fmt::format("{} more", number - kShownKeys));
  return base::join(parts, "; and ");
}

std::string machine_name() {
  const char* id = std::getenv("TRIREME_HOST_ID");
  return id == nullptr ? host_name() : id;
}

std::string refusal_of(const std::string& who, const std::string& unlike) {
  const bool by_processor = unlike.starts_with("precision ") && unlike.find("(auto)") != std::string::npos;
  return fmt::format("{} has {}; start every machine with the same settings{}", who, unlike,
                     by_processor ? ", and name the precision, because auto depends on the processor" : "");
}

std::string name_of_rank(int rank, const std::string& machine) { return fmt::format("rank {} ({})", rank, machine); }

std::string not_come(const std::vector<int>& late, std::chrono::milliseconds limit, const RankEnvironment& e) {
  return fmt::format(
      "{} {} not come within {}; see that each machine has started its ranks and reaches {}:{}, or raise "
      "launch.join_timeout",
      name_ranks(late), late.size() == 1 ? "has" : "have", base::human_duration(limit), e.master_address,
      e.master_port);
}

void end_if_one_is_refused(store::Client& client, const RankEnvironment& environment) {
  if (!client.check({refused_key(environment)})) return;
  const std::string told = client.get(refused_key(environment), kLookForRefusal).value_or("2 a rank was refused");
  end_with_others(client, environment);
  end_as_told(told);
}

void require_same_settings(store::Client& client, const RankEnvironment& e, const std::string& own,
                           std::chrono::milliseconds limit, const std::function<void()>& look) {
  if (e.global_rank == 0) return client.set(settings_key(e), own);
  const auto until = Clock::now() + limit;
  std::optional<std::string> first;
  while (!(first = client.get(settings_key(e), std::min(limit, kLookForRefusal)))) {
    end_if_one_is_refused(client, e);
    look();
    if (Clock::now() >= until) throw Error(not_come({0}, limit, e));
  }
  const std::string other = difference(own, *first);
  if (!other.empty())
    end_as_told(leave(client, e, refusal_of(name_of_rank(e.global_rank, machine_name()), other), base::kRefused));
}

}  // namespace trireme::launch
