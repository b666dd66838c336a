// The combinations of every parallelism with every other: what a cell is, which cells there are, and how one is
// judged against one rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support.h"

namespace trireme::engine {

struct MatrixCell {
  std::string strategy;    ///< ddp, zero1, zero2, zero3, hybrid, hybrid_zero2
  int tp = 1, pp = 1, cp = 1;
  bool sequence_parallel = false, ulysses = false;
  std::string schedule;    ///< of the pipeline; "" without one
  std::string recompute;   ///< none, full, selective
  std::string accumulation;///< "1", "3", "leftover", "local"
  bool tied = false;
  int kv_heads = 4;
  bool gpt2 = false;
  std::string relative = "";  ///< of Llama, by its model_type (gemma3 for gemma3_text); not in all_cells
  bool adapted = false;        ///< adapters (LoRA) on a frozen model; not in all_cells
  bool dropping = false;       ///< dropout of attention weights, of branches and of the embedding; not in all_cells
  bool steps_in_backward = false;  ///< without clipping; not in all_cells
  bool operator==(const MatrixCell&) const = default;
  std::string name() const;
};

/// Every cell of up to `max_ranks` ranks.
std::vector<MatrixCell> all_cells(int max_ranks);
/// A part of them, drawn by `seed`, in which every pair of values of two properties that occurs at all occurs.
std::vector<MatrixCell> pairwise_cells(const std::vector<MatrixCell>& all, uint64_t seed);

Job job_of(const MatrixCell& cell, const model::Precision& precision);

struct Verdict {
  bool refused = false;
  std::string reason;               ///< the refusal's sentence
  double loss = 0, norm = 0, gradients = 0, parameters = 0;  ///< relative distance to one rank
  bool memory_exact = true;         ///< every rank's arena is what was planned
  double worst() const;
};
/// Errors    anything that is neither equal nor refused before the start
/// `gives_up` and `on_gpu` as in Job; the one rank that it is compared with computes on the CPU.
Verdict judge(const MatrixCell& cell, const model::Precision& precision, const std::string& backend = "threads",
              bool gives_up = false, bool on_gpu = false);

}  // namespace trireme::engine
