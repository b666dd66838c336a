#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/config/yaml_file.h"

namespace trireme::config {
namespace {

/// Counts the values that a tree would have, from the parser's events.
class Counter : public YAML::EventHandler {
 public:
  explicit Counter(const YamlLimits& limits) : limits_(limits) {}

  void OnDocumentStart(const YAML::Mark&) override { open_.clear(), size_of_.clear(), total_ = 0; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string&) override {
    last_ = mark;
    leaf(mark, anchor);
  }
  /// Where the last scalar begins.
  const YAML::Mark& last() const { return last_; }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto size = size_of_.find(anchor);
    if (size == size_of_.end()) throw YAML::ParserException(mark, "an alias is inside of its own value");
    add(mark, size->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    YAML::anchor_t anchor;
    int64_t before;  // the total when it began
  };

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor) {
    add(mark, 1);
    if (anchor != 0) size_of_[anchor] = 1;
  }
  void begin(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({anchor, total_});
    add(mark, 1);
  }
  void end() {
    if (open_.back().anchor != 0) size_of_[open_.back().anchor] = total_ - open_.back().before;
    open_.pop_back();
  }
  void add(const YAML::Mark& mark, int64_t count) {
    total_ += count;  // each is at most the limit: no overflow
    if (total_ > limits_.values)
      throw YAML::ParserException(
          mark, fmt::format("there are more than {} values up to here, with those that aliases stand for",
                            base::human_count(limits_.values)));
  }

  const YamlLimits& limits_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, int64_t> size_of_;
  int64_t total_ = 0;
  YAML::Mark last_;
};

// Whether the text ends inside of quotes, which yaml-cpp closes at the end. There, a mark of a document's end is
// refused.
bool ends_in_quotes(const std::string& text) {
  std::istringstream stream(text + "\n...\n");
  YAML::Parser parser(stream);
  const YamlLimits limits;
  Counter counter(limits);
  try {
    for (int documents = 0; documents < 2 && parser.HandleNextDocument(counter);) ++documents;
  } catch (const YAML::Exception& error) {
    return error.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
  }
  return false;
}

}  // namespace

int count_yaml_documents(const std::string& text, const YamlLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes)
    throw YAML::ParserException(
        YAML::Mark(), fmt::format("it has {}, more than {}", base::human_bytes(static_cast<int64_t>(text.size())),
                                  base::human_bytes(limits.bytes)));
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Counter counter(limits);
  int documents = 0;
  // Not LoadAll: on a file that starts with a comma it finds empty documents for ever.
  while (documents < 2 && parser.HandleNextDocument(counter)) ++documents;
  if (ends_in_quotes(text)) throw YAML::ParserException(counter.last(), "a quote that begins here is never closed");
  return documents;
}

}  // namespace trireme::config
