// Judge: log-probabilities of texts, many at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/observe/work_bar.h"
#include "trireme/train/inference.h"

namespace trireme::train {

/// Room for several texts of so many tokens.
generate::Room room_to_judge(const Inference& in, int64_t longest);

struct Judged {
  std::vector<double> logprobs = {};
  bool is_greedy = true;  ///< each token is the likeliest at its place
};

class Judge {
 public:
  /// @param what   of the progress bar
  /// @param count  texts, over all replicas
  Judge(Inference& in, const std::string& what, size_t count);
  Judge(const Judge&) = delete;

  /// log p of tokens[from ...] is wanted. Only the newest ModelConfig::longest_generation() + 1 tokens are read. The
  /// result is shorter if some of the wanted ones are older.
  void add(size_t number, std::vector<int64_t> tokens, int64_t from);
  /// Results by number; empty for texts that this rank did not add. Every rank must call.
  const std::vector<Judged>& run();

 private:
  Inference& in_;
  observe::WorkBar bar_;
  std::vector<Judged> results_;
  size_t done_ = 0;
};

}  // namespace trireme::train
