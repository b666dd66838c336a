#include "trireme/data/labeled_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/from_settings.h"
#include "trireme/data/record_json.h"
#include "trireme/text/not_json.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

LabeledText parse_record(const json& record, const std::string& text_field, bool needs_label, std::string where) {
  const auto refuse = [&](const std::string& what) { throw UsageError(fmt::format("{}: {}", where, what)); };
  LabeledText t{.where = where};
  if (!record.is_object()) refuse("it is no JSON object with a text and its label");
  const auto text = record.find(text_field);
  if (text == record.end() || !text->is_string())
    refuse(
        fmt::format("there is no text under \"{}\"; name the field that holds it with --data.text_field", text_field));
  t.text = text->get<std::string>();
  const auto label = record.find("label");
  if (label == record.end() || label->is_null()) {
    if (needs_label) refuse("there is no \"label\"; give each text one, or leave the line out");
    return t;
  }
  if (!label->is_string() && !base::is_whole_number(*label))
    refuse("its \"label\" is neither a text nor a whole number");
  t.is_number = base::is_whole_number(*label);
  t.label = t.is_number ? label->dump() : label->get<std::string>();
  if (t.label->empty()) refuse("its \"label\" is empty");
  return t;
}

}  // namespace

std::vector<LabeledText> read_labeled_texts(const fs::path& path, const std::string& text_field, bool needs_labels) {
  if (fs::is_directory(path))
    throw UsageError(fmt::format(
        "{} is a folder: name a file of labelled texts, or a folder with train.jsonl and val.jsonl", path.string()));
  const std::string file = base::read_text_file(path);
  const std::string_view all = base::without_byte_order_mark(file);
  std::vector<LabeledText> texts;
  if (const size_t first = all.find_first_not_of(" \t\r\n"); first != std::string::npos && all[first] == '[') {
    const json list = base::parse_json_if_sound(all);
    if (!list.is_array()) throw UsageError(fmt::format("{} is {}", path.string(), text::why_not_json(all)));
    for (size_t i = 0; i < list.size(); ++i)
      texts.push_back(
          parse_record(list[i], text_field, needs_labels, fmt::format("{}: entry {}", path.string(), i + 1)));
  } else {
    size_t begin = 0;
    for (int64_t number = 1; begin < all.size(); ++number) {
      const size_t end = std::min(all.find('\n', begin), all.size());
      const std::string_view line = all.substr(begin, end - begin);
      begin = end + 1;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      std::string where = fmt::format("{}:{}", path.string(), number);
      const json record = parse_record_json(line, where);
      texts.push_back(parse_record(record, text_field, needs_labels, std::move(where)));
    }
  }
  if (texts.empty()) throw UsageError(fmt::format("{} holds no text", path.string()));
  return texts;
}

std::vector<std::string> labels_of(const std::vector<LabeledText>& texts) {
  std::set<std::string> different;
  bool all_numbers = true;
  for (const LabeledText& t : texts) {
    if (!t.label) continue;
    different.insert(*t.label);
    all_numbers = all_numbers && t.is_number;
  }
  std::vector<std::string> labels(different.begin(), different.end());
  if (labels.size() < 2)
    throw UsageError(fmt::format("all texts have {}: a classification needs two labels or more",
                                 labels.empty() ? "no label" : fmt::format("the label '{}'", labels.front())));
  if (all_numbers)
    std::ranges::sort(labels, {}, [](const std::string& label) { return whole_number(label).value_or(0); });
  return labels;
}

std::string shown_labels(const std::vector<std::string>& labels) {
  constexpr size_t kShown = 10;
  const std::vector<std::string> first(labels.begin(), labels.begin() + std::min(kShown, labels.size()));
  return base::join(first, ", ") + (labels.size() > kShown ? ", ..." : "");
}

int64_t number_of_label(const LabeledText& text, const std::vector<std::string>& labels) {
  const std::string& label = *text.label;
  if (const auto found = std::ranges::find(labels, label); found != labels.end()) return found - labels.begin();
  const auto number = whole_number(label);
  const bool has_numbers = std::ranges::any_of(labels, [](const auto& name) { return whole_number(name).has_value(); });
  if (text.is_number && number && !has_numbers && *number >= 0 && *number < std::ssize(labels)) return *number;
  throw UsageError(
      fmt::format("{}: the label '{}' is none of the {} of the model's head ({}); correct it, or train a new head for "
                  "other labels: --model.labels [...]",
                  text.where, label, labels.size(), shown_labels(labels)));
}

std::vector<LabeledText> labeled_texts_of(const DataSettings& settings) {
  std::vector<LabeledText> all;
  for (const DataSource& source : sources_of(settings)) {
    std::vector<LabeledText> texts = read_labeled_texts(source.path, settings.text_field, /*needs_labels=*/true);
    std::ranges::move(texts, std::back_inserter(all));
  }
  return all;
}

}  // namespace trireme::data
