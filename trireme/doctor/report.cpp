#include "trireme/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/bench/report.h"

namespace trireme::doctor {
namespace {

using Json = nlohmann::ordered_json;

const PairResult* find_pair(const Examination& e, int a, int b) {
  const auto found = std::find_if(e.pairs.begin(), e.pairs.end(), [&](const PairResult& p) {
    return p.first == std::min(a, b) && p.second == std::max(a, b);
  });
  return found == e.pairs.end() ? nullptr : &*found;
}

std::string cell(const Examination& e, int from, int to, bool rate) {
  if (from == to) return ".";
  const PairResult* p = find_pair(e, from, to);
  if (p == nullptr || !p->problem.empty()) return "-";
  const double value = rate ? (from < to ? p->forth_rate : p->back_rate) * 1e-9 : p->latency_seconds * 1e6;
  return bench::rate_text(value);
}

std::string matrix(const Examination& e, bool rate) {
  constexpr size_t kWidth = 8;  // a rate has up to 7 characters
  const int ranks = static_cast<int>(e.facts.size());
  std::string text = rate ? "GB/s, a row sends" : "microseconds one way";
  const size_t left = 22;
  text.resize(left, ' ');
  for (int to = 0; to < ranks; ++to) text += fmt::format("{:>{}}", to, kWidth);
  for (int from = 0; from < ranks; ++from) {
    text += fmt::format("\n{:>{}}", fmt::format("rank {}", from), left);
    for (int to = 0; to < ranks; ++to) text += fmt::format("{:>{}}", cell(e, from, to, rate), kWidth);
  }
  return text + "\n";
}

std::string line(const Finding& f) {
  return fmt::format("{:<5} {}{}\n", word_of(f.grade), f.text,
                     f.fix.empty() ? "" : fmt::format("\n      -> {}", f.fix));
}

Json json_of(const Finding& f) {
  return {{"grade", f.grade == Grade::fail ? "fail" : word_of(f.grade)},
          {"topic", f.topic},
          {"text", f.text},
          {"fix", f.fix}};
}

Json json_of(const CollectiveResult& c) {
  return {{"name", c.name}, {"backend", c.backend}, {"bytes", c.bytes},          {"seconds", c.seconds},
          {"rate", c.rate}, {"limit", c.limit},     {"limit_name", c.limit_name}};
}

}  // namespace

std::string matrix_text(const Examination& e) {
  const size_t ranks = e.facts.size();
  if (ranks < 2 || e.pairs.size() < ranks * (ranks - 1) / 2) return "";
  return matrix(e, true) + "\n" + matrix(e, false) + "\n";
}

std::string report_text(const Examination& e) {
  std::string text = matrix_text(e);
  std::vector<Finding> sorted = e.findings;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Finding& a, const Finding& b) { return a.grade < b.grade; });
  for (const Finding& f : sorted) text += line(f);
  const auto count = [&](Grade grade) {
    return std::count_if(e.findings.begin(), e.findings.end(), [&](const Finding& f) { return f.grade == grade; });
  };
  const auto warnings = count(Grade::warn), failures = count(Grade::fail);
  return text + (warnings + failures == 0
                     ? fmt::format("nothing is wrong with {}\n", base::plural(std::ssize(e.facts), "rank"))
                     : fmt::format("{}, {}\n", base::plural(warnings, "warning"), base::plural(failures, "failure")));
}

std::string report_json(const Examination& e) {
  Json json = {{"format", "trireme doctor"}, {"version", 1}};
  json["ranks"] = Json::array();
  for (const Facts& f : e.facts) json["ranks"].push_back(base::parse_json<Json>(write_facts(f)));
  json["pairs"] = Json::array();
  for (const PairResult& p : e.pairs) json["pairs"].push_back(base::parse_json<Json>(write_pair(p)));
  json["copy_rate"] = e.copy_rate;
  json["collectives"] = Json::array();
  for (const CollectiveResult& c : e.collectives) json["collectives"].push_back(json_of(c));
  json["findings"] = Json::array();
  for (const Finding& f : e.findings) json["findings"].push_back(json_of(f));
  return base::json_text(json, 1) + "\n";
}

}  // namespace trireme::doctor
