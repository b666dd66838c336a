// A file of settings as text: where its lines begin, and the settings found in it so far. The readers of YAML and JSON
// share this.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/given.h"
#include "trireme/config/problems.h"

namespace trireme::config {

class FileText {
 public:
  static constexpr size_t kMostBytesShown = 200;  ///< of a line, in messages

  FileText(std::string contents, std::string name, Problems& problems);

  const std::string& name() const { return name_; }
  const std::string& contents() const { return contents_; }
  size_t num_lines() const { return line_starts_.size(); }
  /// Lines count from 0 here, and from 1 in messages.
  std::string_view line(size_t number) const;
  size_t line_of_byte(size_t position) const;
  /// The place, with the text of the line.
  Source place(size_t line) const;

  /// Keeps a setting; a key that is there already becomes a problem.
  void keep(Given given);
  std::vector<Given> take() { return std::move(found_); }

 private:
  std::string name_;
  Problems& problems_;
  std::string contents_;
  std::vector<size_t> line_starts_ = {0};
  std::vector<Given> found_;
  std::map<std::string, Source> sources_;
};

}  // namespace trireme::config
