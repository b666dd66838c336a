// Reports as JSON, and the JSON of `trireme bench train` as a report.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/bench/report.h"

namespace trireme::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "trireme bench";
constexpr int kVersion = 1;

Json to_object(const std::vector<std::pair<std::string, double>>& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

// Calls `visit` with name and value of the members that are stored under their own names, in the order of the file.
template <class RowType, class Visit>
void visit_row(RowType& row, Visit visit) {
  visit("name", row.name);
  visit("shape", row.shape);
  visit("median_seconds", row.median_seconds);
  visit("best_seconds", row.best_seconds);
  visit("spread", row.spread);
  visit("samples", row.samples);
  visit("rate", row.rate);
  visit("unit", row.unit);
}

// Where and when it was measured.
template <class ReportType, class Visit>
void visit_place(ReportType& report, Visit visit) {
  visit("date", report.date);
  visit("machine", report.machine);
  visit("processor", report.processor);
  visit("cores", report.cores);
  visit("libtorch", report.libtorch);
  visit("trireme", report.trireme);
}

template <class ReportType, class Visit>
void visit_report(ReportType& report, Visit visit) {
  visit("kind", report.kind);
  visit("command", report.command);
  visit_place(report, visit);
}

Json json_of(const Report& report, const Row& row) {
  Json j;
  visit_row(row, [&](const char* name, const auto& value) { j[name] = value; });
  if (const Limit* limit = report.limit_of(row)) {
    j["limit"] = limit->name;
    j["limit_rate"] = report.limit_rate(row);
    if (row.limit_beside > 0) j["limit_beside"] = true;
    j["fraction"] = report.fraction(row);
  }
  if (!row.values.empty()) j["values"] = to_object(row.values);
  return j;
}

template <class Value>
void read(const Json& j, Value& value) {
  if constexpr (std::is_same_v<Value, int64_t>)
    value = base::whole_number(j);
  else
    j.get_to(value);
}

Row row_of(const Json& j) {
  Row row;
  visit_row(row, [&](const char* name, auto& value) { read(j.at(name), value); });
  row.limit = j.value("limit", "");
  if (j.value("limit_beside", false)) j.at("limit_rate").get_to(row.limit_beside);
  if (j.contains("values"))
    for (const auto& [name, value] : j.at("values").items()) row.values.emplace_back(name, value.get<double>());
  return row;
}

Report report_of(const Json& j) {
  Report report;
  visit_report(report, [&](const char* name, auto& value) { read(j.at(name), value); });
  for (const Json& l : j.at("limits")) report.limits.push_back({l.at("name"), l.at("rate"), l.at("unit")});
  for (const Json& r : j.at("rows")) report.rows.push_back(row_of(r));
  return report;
}

// A row for the step, and one for each of its parts: these have medians only, and the spread of the step.
Report report_of_train(const Json& j) {
  Report report;
  visit_place(report, [&](const char* name, auto& value) {
    if (j.contains(name)) read(j.at(name), value);
  });
  report.kind = "train";
  std::string shape = fmt::format("{}, {} ranks, {}, {}, {}, {} tokens", j.at("model").get<std::string>(),
                                  base::whole_number(j.at("ranks")), j.at("strategy").get<std::string>(),
                                  j.at("precision").get<std::string>(), j.at("backend").get<std::string>(),
                                  j.at("tokens_per_step").get<double>());
  if (j.contains("threads")) shape += fmt::format(", {} threads", j.at("threads").dump());
  const auto seconds = j.at("step_seconds").get<std::vector<double>>();
  Row step{.name = "step", .shape = shape, .unit = "tokens/s"};
  set_step_times(step, seconds, j.at("tokens_per_step").get<double>());
  report.rows.push_back(step);
  for (const char* key : {"action_seconds", "parts"}) {
    if (!j.contains(key) || !j.at(key).is_object()) continue;
    for (const auto& [name, value] : j.at(key).items()) {
      const double part = value.get<double>();
      report.rows.push_back({.name = fmt::format("{}: {}", key == std::string("parts") ? "part" : "action", name),
                             .shape = shape,
                             .median_seconds = part,
                             .best_seconds = part,
                             .spread = step.spread,
                             .samples = step.samples});
    }
  }
  return report;
}

}  // namespace

std::string to_json(const Report& report) {
  Json j = {{"format", kFormat}, {"version", kVersion}};
  visit_report(report, [&](const char* name, const auto& value) { j[name] = value; });
  j["limits"] = Json::array();
  j["rows"] = Json::array();
  for (const Limit& l : report.limits) j["limits"].push_back({{"name", l.name}, {"rate", l.rate}, {"unit", l.unit}});
  for (const Row& row : report.rows) j["rows"].push_back(json_of(report, row));
  return base::json_text(j, 2) + "\n";
}

Report parse_report(std::string_view text, const std::string& source) try {
  const Json j = base::parse_json<Json>(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is no benchmark's result: it holds no JSON object", source));
  if (j.contains("step_seconds")) return report_of_train(j);
  if (j.value("format", "") != kFormat)
    throw UsageError(fmt::format("{} is no benchmark's result: its \"format\" is not \"{}\"", source, kFormat));
  if (base::whole_number(j.at("version")) != kVersion)
    throw UsageError(fmt::format("{} is of version {} of the format; this program reads version {}", source,
                                 base::whole_number(j.at("version")), kVersion));
  return report_of(j);
} catch (const nlohmann::json::exception& e) {
  throw UsageError(fmt::format("{} is no benchmark's result: {}", source, base::json_reason(e)));
}

}  // namespace trireme::bench
