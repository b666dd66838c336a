// Labelled texts: a JSON object in each line, {"text": ..., "label": ...}. A label is a text or a whole number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/settings.h"

namespace trireme::data {

struct LabeledText {
  std::string text;
  std::optional<std::string> label;  ///< a number as its digits; absent: there is none
  bool is_number = false;            ///< the label
  std::string where;                 ///< "reviews.jsonl:12"
};

/// Reads a JSONL file or pipe, or a JSON array of the same objects. `text_field` holds the text.
/// Errors    UsageError naming file, line and key; with `needs_labels` also for a text without a label
std::vector<LabeledText> read_labeled_texts(const std::filesystem::path& path, const std::string& text_field,
                                            bool needs_labels);

/// The different labels, sorted: by value if all are numbers, else by their bytes.
/// Errors    UsageError if there are fewer than two
std::vector<std::string> labels_of(const std::vector<LabeledText>& texts);

/// The number of a text's label among `labels`. A number that is no label's name counts as the label's own number,
/// unless some label's name is a number. Errors    UsageError naming the place, the label and the labels that there are
int64_t number_of_label(const LabeledText& text, const std::vector<std::string>& labels);

/// The texts of the files that the settings name, one file after the other.
std::vector<LabeledText> labeled_texts_of(const DataSettings& settings);

/// "no, yes": at most ten of them.
std::string shown_labels(const std::vector<std::string>& labels);

}  // namespace trireme::data
