#include "trireme/train/jsonl_records.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/not_text.h"
#include "trireme/data/conversation.h"
#include "trireme/text/not_json.h"

namespace trireme::train {

void for_each_json_text(
    const std::filesystem::path& path, const std::string& setting,
    const std::function<void(std::string_view text, const std::string& place, int64_t line)>& read) {
  std::string file;
  try {
    file = base::read_text_file(path);
  } catch (const base::FileError& error) {
    throw UsageError(fmt::format("{}: {}", setting, error.what()));
  }
  data::RecordReader list(file, path.string());
  if (list.is_list()) {
    while (const auto record = list.next()) read(record->text, list.place(*record), record->line);
    return;
  }
  std::istringstream in(std::move(file));
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      read(line, fmt::format("{}:{}", path.string(), number), number);
}

void for_each_record(const std::filesystem::path& path, const std::string& setting, const std::string& what,
                     const std::function<void(const nlohmann::json& record, const std::string& place)>& read) {
  bool any = false;
  for_each_json_text(path, setting, [&](std::string_view json, const std::string& place, int64_t) {
    const nlohmann::json record = base::parse_json_if_sound(json);
    if (record.is_discarded()) throw UsageError(fmt::format("{} is {}", place, text::why_not_json(json)));
    try {
      if (!record.is_object()) throw UsageError("this is not a JSON object");
      read(record, place);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", place, error.what()));
    }
    any = true;
  });
  if (!any) throw UsageError(fmt::format("{} holds no {}", path.string(), what));
}

std::string text_in(const nlohmann::json& record, const char* key) {
  const auto found = record.find(key);
  if (found != record.end() && found->is_array()) throw UsageError(fmt::format("\"{}\" is a list, not text", key));
  if (found == record.end() || !found->is_string()) throw UsageError(fmt::format("there is no text under \"{}\"", key));
  return found->get<std::string>();
}

}  // namespace trireme::train
