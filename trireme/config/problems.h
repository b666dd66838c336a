// Collects mistakes in settings, so that all are shown at once. Each mistake is a paragraph:
//
//     error: unknown setting train.learnig_rate
//       configs/austen.yaml:14: learnig_rate: 2e-3
//       the learning rate is optimizer.lr
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/given.h"

namespace trireme::config {

class Problems {
 public:
  /// `hint` may be empty. Sources without a text (defaults) are not shown.
  void add(std::string_view headline, const std::vector<Source>& sources, std::string_view hint);

  /// Adds `refusal` if there is one.
  void add_if(const std::optional<Refusal>& refusal) {
    if (refusal) add(refusal->headline, {}, refusal->hint);
  }

  bool empty() const { return paragraphs_.empty(); }
  int count() const { return static_cast<int>(paragraphs_.size()) + num_more_; }

  /// Errors    UsageError with all paragraphs, an empty line between them; after 12 only the number of the rest
  void throw_if_any() const;

 private:
  std::vector<std::string> paragraphs_;
  int num_more_ = 0;
};

}  // namespace trireme::config
