// Collects what is wrong with settings, so that all of it is said at once. Each problem is a paragraph:
//
//     error: unknown setting train.learnig_rate
//       configs/austen.yaml:14: learnig_rate: 2e-3
//       the learning rate is optimizer.lr
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/parse.h"

namespace trireme::config {

/// The text; what is longer than `most_bytes` ends with "...", not inside of a character.
std::string shortened(std::string_view text, size_t most_bytes);

class Problems {
 public:
  /// `hint` may be empty. Sources without a text (defaults) are left out.
  void add(std::string_view headline, const std::vector<Source>& sources, std::string_view hint);

  bool empty() const { return paragraphs_.empty(); }

  /// Errors    UsageError with all paragraphs, an empty line between them; of more than 12 their number
  void throw_if_any() const;

 private:
  std::vector<std::string> paragraphs_;
  int num_more_ = 0;
};

}  // namespace trireme::config
