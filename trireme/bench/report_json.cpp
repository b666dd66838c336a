// Reports as JSON, and the JSON of `trireme bench train` as a report.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

Json json_of(const Report& report, const Row& row) {
  Json j = {{"name", row.name},
            {"shape", row.shape},
            {"median_seconds", row.median_seconds},
            {"best_seconds", row.best_seconds},
            {"spread", row.spread},
            {"samples", row.samples},
            {"rate", row.rate},
            {"unit", row.unit}};
  if (const Limit* limit = report.limit_of(row)) {
    j["limit"] = limit->name;
    j["limit_rate"] = report.limit_rate(row);
    if (row.limit_beside > 0) j["limit_beside"] = true;
    j["fraction"] = report.fraction(row);
  }
  if (!row.values.empty()) j["values"] = to_object(row.values);
  return j;
}

Row row_of(const Json& j) {
  Row row;
  row.name = j.at("name").get<std::string>();
  row.shape = j.at("shape").get<std::string>();
  row.median_seconds = j.at("median_seconds").get<double>();
  row.best_seconds = j.at("best_seconds").get<double>();
  row.spread = j.at("spread").get<double>();
  row.samples = j.at("samples").get<int64_t>();
  row.rate = j.at("rate").get<double>();
  row.unit = j.at("unit").get<std::string>();
  row.limit = j.value("limit", "");
  if (j.value("limit_beside", false)) row.limit_beside = j.at("limit_rate").get<double>();
  if (j.contains("values"))
    for (const auto& [name, value] : j.at("values").items()) row.values.emplace_back(name, value.get<double>());
  return row;
}

Report report_of(const Json& j) {
  Report report;
  report.kind = j.at("kind").get<std::string>();
  report.command = j.at("command").get<std::string>();
  report.date = j.at("date").get<std::string>();
  report.machine = j.at("machine").get<std::string>();
  report.processor = j.at("processor").get<std::string>();
  report.cores = j.at("cores").get<int64_t>();
  report.libtorch = j.at("libtorch").get<std::string>();
  report.trireme = j.at("trireme").get<std::string>();
  for (const Json& l : j.at("limits"))
    report.limits.push_back(
        {l.at("name").get<std::string>(), l.at("rate").get<double>(), l.at("unit").get<std::string>()});
  for (const Json& r : j.at("rows")) report.rows.push_back(row_of(r));
  return report;
}

// Its step, and the times inside of it: medians alone, whose spread is the step's.
Report report_of_train(const Json& j) {
  Report report;
  report.kind = "train";
  const std::string shape = fmt::format("{}, {} ranks, {}, {}, {}", j.at("model").get<std::string>(),
                                        j.at("ranks").get<int64_t>(), j.at("strategy").get<std::string>(),
                                        j.at("precision").get<std::string>(), j.at("backend").get<std::string>());
  const auto seconds = j.at("step_seconds").get<std::vector<double>>();
  Row step{.name = "step", .shape = shape, .unit = "tokens/s"};
  set_times(step, seconds, j.at("tokens_per_step").get<double>());
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
  Json j = {{"format", kFormat},
            {"version", kVersion},
            {"kind", report.kind},
            {"command", report.command},
            {"date", report.date},
            {"machine", report.machine},
            {"processor", report.processor},
            {"cores", report.cores},
            {"libtorch", report.libtorch},
            {"trireme", report.trireme},
            {"limits", Json::array()},
            {"rows", Json::array()}};
  for (const Limit& l : report.limits) j["limits"].push_back({{"name", l.name}, {"rate", l.rate}, {"unit", l.unit}});
  for (const Row& row : report.rows) j["rows"].push_back(json_of(report, row));
  return j.dump(2) + "\n";
}

Report parse_report(std::string_view text, const std::string& source) try {
  const Json j = base::parse_json<Json>(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is no benchmark's result: it holds no JSON object", source));
  if (j.contains("step_seconds")) return report_of_train(j);
  if (j.value("format", "") != kFormat)
    throw UsageError(fmt::format("{} is no benchmark's result: its \"format\" is not \"{}\"", source, kFormat));
  if (j.at("version").get<int>() != kVersion)
    throw UsageError(fmt::format("{} is of version {} of the format; this program reads version {}", source,
                                 j.at("version").get<int>(), kVersion));
  return report_of(j);
} catch (const nlohmann::json::exception& e) {
  throw UsageError(fmt::format("{} is no benchmark's result: {}", source, e.what()));
}

}  // namespace trireme::bench
