#include "trireme/launch/machines/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {
using Kind = RoundResult::Kind;
constexpr char kBetween = '\x1f';
constexpr int kAgain = 1, kRefused = 2;  // in a verdict's text

std::vector<std::string> parts_of(std::string_view text, std::size_t count) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    const auto at = text.find(kBetween);
    if (at == std::string_view::npos) throw Error("launchers do not understand each other: are they of one version?");
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.emplace_back(text);
  return parts;
}

int number_of(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

const RoundResult* find(std::span<const RoundResult> results, Kind kind) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const auto& r) { return r.kind == kind; });
  return found == results.end() ? nullptr : &*found;
}
}  // namespace

std::string sentence_of(const RoundResult& result) {
  return result.who.empty() ? result.words : result.who + " " + result.words;
}

std::string text_of(const RoundResult& result) {
  return fmt::format("{1}{0}{2}{0}{3}{0}{4}{0}{5}", kBetween, static_cast<int>(result.kind), int{result.is_known},
                     result.machine, result.who, result.words);
}

RoundResult result_of(std::string_view text) {
  const auto parts = parts_of(text, 5);
  return {.kind = static_cast<Kind>(std::clamp(number_of(parts[0]), 0, static_cast<int>(Kind::lost))),
          .who = parts[3],
          .words = parts[4],
          .machine = parts[2],
          .is_known = number_of(parts[1]) != 0};
}

std::string text_of(const Verdict& verdict) {
  const int next = verdict.again ? kAgain : verdict.refused ? kRefused : 0;
  return fmt::format("{}{}{}{}{}", next, kBetween, verdict.pause.count(), kBetween, verdict.why);
}

Verdict verdict_of(std::string_view text) {
  const auto parts = parts_of(text, 3);
  const int next = number_of(parts[0]);
  return {.again = next == kAgain,
          .pause = std::chrono::seconds(number_of(parts[1])),
          .why = parts[2],
          .refused = next == kRefused};
}

std::chrono::seconds pause_before_restart(int restarts) {
  constexpr auto kFirst = std::chrono::seconds(1), kLongest = std::chrono::seconds(60);
  return std::min(kLongest, kFirst * (1 << std::min(restarts, 10)));
}

Verdict judge(std::span<const RoundResult> results, int max_restarts, History& history) {
  if (const RoundResult* refused = find(results, Kind::refused))
    return {.why = fmt::format("the ranks of machine {} were refused; its launcher says why", refused->machine),
            .refused = true};
  if (find(results, Kind::over)) return {};
  const RoundResult* cause = nullptr;
  for (const Kind kind : {Kind::failed, Kind::lost, Kind::consequence})
    if (cause == nullptr) cause = find(results, kind);
  if (cause == nullptr) return {};
  const std::string what = cause->kind == Kind::lost
                               ? fmt::format("machine {} is gone", cause->machine)
                               : sentence_of(*cause) + (cause->machine.empty() ? "" : " on machine " + cause->machine);
  // Equal words mean the same failure, whichever rank reports it first. A lost machine is never counted as the same
  // failure again, nor is an exit of which neither a step nor a reason is known.
  const bool can_recur = cause->kind == Kind::failed && cause->is_known;
  const bool comes_again = can_recur && cause->words == history.failed_before;
  history.failed_before = can_recur ? cause->words : "";
  if (max_restarts == 0) return {.why = what};
  if (comes_again) return {.why = fmt::format("not started again: {}, for the second time", what)};
  if (history.restarts == max_restarts)
    return {.why = fmt::format(
                "not started again: {}, and {} used up", what,
                max_restarts == 1 ? "the one restart is" : fmt::format("all {} restarts are", max_restarts))};
  const auto pause = pause_before_restart(history.restarts);
  ++history.restarts;
  return {.again = true,
          .pause = pause,
          .why = fmt::format("restart {} of {} in {} s: {}", history.restarts, max_restarts, pause.count(), what)};
}

}  // namespace trireme::launch
