// Generator: texts by the engine's list of generation. It keeps the cache full with requests, run after run, and draws
// tokens from the logits. What a text becomes depends on its request alone: not on the others, on their order, on the
// number of data-parallel ranks, or on how much the cache holds.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/generate/scheduler.h"

namespace trireme::generate {

/// What is planned for generation.
struct Room {
  int64_t texts = 1;         ///< at a time
  int64_t tokens = 512;      ///< new tokens of a run
  int64_t cache_tokens = 0;  ///< in the cache, over all texts
  int64_t logit_rows = 0;    ///< rows with logits in a run; 0: chosen
  bool bounds_context = false;  ///< a text has no more positions than the cache has room for
};
/// The shape of a plan with that room. `longest_prompt`: of a Free Transformer, which is read at once.
model::GenerationShape shape_of(const model::ModelConfig& config, const Room& room, int64_t longest_prompt);

class Generator {
 public:
  /// The engine's plan has the room (shape_of); the engine outlives this.
  Generator(engine::Engine& engine, const Room& room);

  /// A request waits until run() has room for it. Every rank of a copy of the model adds the same requests; the copies
  /// (data-parallel ranks) have different ones.
  /// Errors    UsageError if it can never run, asks for no new token, or draws with numbers out of their bounds
  int64_t add(Request request);
  /// Refuses what add() refuses. A rank that checks the others' requests, too, fails when they fail.
  void check(const Request& request) const;

  /// Runs the list until all requests are done. All ranks of the mesh call it together. Requests may be added
  /// meanwhile, by the functions that they bring.
  ///
  /// Cost      a pass over the weights for each run; a run has one token of every text that is being written, and
  ///           tokens of prompts
  /// gives_up  asked on each rank between two runs; where it says yes, the texts of that rank's copy of the model end,
  ///           and are not told `finished`. Empty: all are written
  /// @returns  whether all texts were written here
  /// Errors    ShapeError if logits are not finite; what a request's functions throw. The text of such an error has
  ///           ended then, and is not told `finished`. The next run() goes on with the others. This rank calls it
  ///           before any other collective: the other ranks may be in theirs
  bool run(const std::function<bool()>& gives_up = {});

  int64_t num_texts() const { return scheduler_.num_texts(); }
  int64_t num_waiting() const { return scheduler_.num_waiting(); }
  const Limits& limits() const { return scheduler_.limits(); }
  /// Codes of a Free Transformer's tokens at these positions, uniform by seed and position.
  at::Tensor uniform_codes(uint64_t seed, std::span<const int64_t> positions) const;

 private:
  bool someone_is_busy(bool busy);
  bool copy_gives_up(const std::function<bool()>& gives_up) const;
  void leave_texts();
  void start(std::vector<Part> parts);
  void compute(const std::vector<Part>& parts);
  void finish_oldest();
  void finish_part(const Part& part, const double* results);
  void idle();
  struct Rows {  ///< of a run
    std::vector<int64_t> ids, positions, places, codes;
    model::NewTokens tokens;
  };
  void fill_up(Rows& rows, int64_t multiple);
  at::Tensor run_rows(Rows& rows, std::vector<int64_t> logit_rows);
  void draw_rows(const std::vector<Part>& parts, const at::Tensor& logits, std::vector<int64_t> targets,
                 const at::Tensor& drawn);
  /// A run whose results are on their way from the last pipeline stage.
  struct Results {
    std::vector<Part> parts;
    /// Of every wanted row: the token, or whether the judged one is the likeliest, and its log-probability.
    std::vector<double> values;
    comm::WorkPtr arrival;  ///< null: they are here
  };
  void take(Text& text, int64_t token, double logprob);
  void finish_judged(Text& text);
  int64_t code_of(const Text& text, int64_t position) const;

  engine::Engine& engine_;
  const model::ModelConfig& config_;
  Scheduler scheduler_;
  int32_t spare_page_;  ///< of rows that mean nothing
  bool started_ = false;
  std::deque<Results> on_their_way_;  ///< the oldest first
  std::vector<float> row_;
};

}  // namespace trireme::generate
