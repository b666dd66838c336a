#include "trireme/train/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/shared_folder.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its life.
class Adds {
 public:
  explicit Adds(std::chrono::duration<double>& sum) : sum_(sum) {}
  Adds(const Adds&) = delete;
  ~Adds() { sum_ += Clock::now() - begin_; }

 private:
  std::chrono::duration<double>& sum_;
  Clock::time_point begin_ = Clock::now();
};

checkpoint::SaveRequest request_of(Session& s, std::span<const engine::GroupState> groups, const RunState& state,
                                   const std::string& trouble) {
  checkpoint::SaveRequest request = save_request(groups, s.model, s.settings, state);
  if (!trouble.empty()) request.ruined = "at its step " + trouble;
  request.keep_last = 0;           // settle() sees to it
  request.create_out_dir = false;  // check_out_dir has made it; where it is gone, a disk has gone
  return request;
}

}  // namespace

void check_out_dir(Session& s) { checkpoint::check_shared_folder(s.settings.out_dir, s.world()); }

/// What fails, fails on every rank alike: all go on, or none does.
template <class Work>
void Saver::guarded(int64_t step, Work work) {
  try {
    work();
  } catch (const CheckpointError& error) {
    job_.reset();
    if (saved_step_ == step) saved_step_ = -1;
    if (s_.settings.save.on_error == config::OnSaveError::stop) throw;
    say_(fmt::format("warn     step {} is not saved, training goes on (save.on_error continue): {}", step,
                     error.what()));
  }
}

std::string trouble_of(double loss, double gradient_norm, int64_t vocab_size) {
  constexpr double kTimesGuessing = 10;
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm))
    return fmt::format("the loss was {} and the gradient norm {}", loss, gradient_norm);
  const double guessing = std::log(static_cast<double>(std::max<int64_t>(2, vocab_size)));
  if (loss > kTimesGuessing * guessing)
    return fmt::format("the loss was {:.4g}, more than {:.0f} times the {:.2f} of guessing", loss, kTimesGuessing,
                       guessing);
  return "";
}

void Saver::saw(const std::string& trouble) {
  trouble_ = trouble;
  if (!proof_) proof_ = trouble;
  settle();
}

/// Once a save is on the disk and proved: marks it where it is not good, and lets older ones go.
void Saver::settle() {
  if (committed_.empty() || !proof_) return;
  tell_settled();
  const std::filesystem::path folder = std::exchange(committed_, {});
  if (!s_.is_first_rank()) return;
  const auto work = [folder, trouble = *proof_, step = saved_step_,
                     out_dir = std::filesystem::path(s_.settings.out_dir),
                     keep_last = static_cast<int>(s_.settings.save.keep_last),
                     protected_paths = started_with(s_.settings)] {
    std::vector<std::string> lines;
    try {  // the save has succeeded already, so trouble here is a warning
      if (!trouble.empty() && checkpoint::verdict_of(folder).good()) {
        checkpoint::mark_ruined(folder, "at the next step " + trouble);
        lines.push_back(fmt::format("warn     {} is marked as ruined: at the next step {}", folder.string(), trouble));
      }
      checkpoint::keep_last_checkpoints(out_dir, step, keep_last, protected_paths);
    } catch (const std::exception& error) {
      lines.push_back(fmt::format("warn     {}", error.what()));
    }
    return lines;
  };
  settling_ = std::async(std::launch::async, work);
}

void Saver::tell_settled() {
  if (!settling_.valid()) return;
  for (const std::string& line : settling_.get()) say_(line);
}

void Saver::save(const RunState& state) {
  if (job_) {
    const int64_t before = job_->step();
    const Clock::time_point begin = Clock::now();
    finish();
    say_(fmt::format(
        "waited   {:.1f} s for the save of step {}, which was still under way; a longer train.save_interval "
        "avoids that",
        std::chrono::duration<double>(Clock::now() - begin).count(), before));
  }
  guarded(state.step, [&] { s_.settings.save.mode == config::SaveMode::async ? begin(state) : save_now(state); });
}

void Saver::save_now(const RunState& state) {
  const checkpoint::SaveResult result =
      checkpoint::save_checkpoint(request_of(s_, s_.engine->state(), state, trouble_), s_.world());
  saved_step_ = state.step;
  proof_.reset();
  report(result, "");
}

void Saver::begin(const RunState& state) {
  stood_still_ = {};
  const Adds adds(stood_still_);
  const std::vector<engine::GroupState> copy = s_.engine->copy_state();
  job_ = std::make_unique<checkpoint::SaveJob>(request_of(s_, copy, state, trouble_), s_.world(),
                                               checkpoint::SaveJob::Options{.background = true});
  saved_step_ = state.step;
  proof_.reset();
}

void Saver::advance() {
  guarded(job_->step(), [&] {
    const Adds adds(stood_still_);
    job_->advance();
  });
  if (!job_ || !job_->committed()) return;
  report(job_->result(), fmt::format(" beside training, which stood still for {:.2f} s", stood_still_.count()));
  job_.reset();
}

void Saver::finish() {
  while (job_) advance();
  settle();
  tell_settled();
}

void Saver::save_last(const RunState& state) {
  if (saved_step_ != state.step) save_now(state);
  if (!proof_) proof_ = "";  // no step follows
  settle();
  tell_settled();
}

double Saver::expected_seconds() const {
  constexpr double kBytesPerParameter = 16, kDiskRate = 200e6, kFewFiles = 0.2, kMargin = 1.5;
  const double guess = kFewFiles + kBytesPerParameter * double(s_.model.config.num_parameters()) / kDiskRate;
  return kMargin * seconds_.value_or(guess) * (under_way() ? 2 : 1);
}

void Saver::report(const checkpoint::SaveResult& result, const std::string& how) {
  say_(fmt::format("saved    {} ({}, {:.1f} s{})", result.path.string(), base::human_bytes(result.bytes),
                   result.seconds.count(), how));
  seconds_ = result.work_seconds.count();
  committed_ = result.path;
  if (!result.ruined.empty())
    say_(fmt::format("warn     {} is marked as ruined, and older good checkpoints stay: {}", result.path.string(),
                     result.ruined));
  for (const std::string& warning : result.warnings) say_("warn     " + warning);
}

}  // namespace trireme::train
