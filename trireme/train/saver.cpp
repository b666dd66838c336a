#include "trireme/train/saver.h"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/shared_folder.h"
#include "trireme/train/best_checkpoint.h"

namespace trireme::train {
namespace {

checkpoint::SaveRequest request_of(Session& s, std::span<const engine::GroupState> groups, const RunState& state,
                                   const std::string& trouble) {
  RunState saved = state;
  if (s.loss_scale) saved.loss_scale = s.loss_scale->state();
  checkpoint::SaveRequest request = save_request(groups, s.engine->plan(), s.settings, saved);
  if (!trouble.empty()) request.ruined = "at its step " + trouble;
  request.keep_last = 0;           // settle() deletes older ones
  request.create_out_dir = false;  // check_out_dir() has made it; if it is missing now, a disk is missing
  return request;
}

}  // namespace

void check_out_dir(Session& s) { checkpoint::check_shared_folder(s.settings.out_dir, s.world()); }

/// A save fails on all ranks or on none, so all ranks continue or all stop.
template <class Work>
void Saver::guarded(int64_t step, Work work) {
  const auto failed = [&](const Error& error) {
    job_.reset();
    if (saved_step_ == step) saved_step_ = -1;
    if (s_.settings.save.on_error == checkpoint::OnSaveError::stop) throw;
    say_(fmt::format("warn     step {} is not saved, training goes on (save.on_error continue): {}", step,
                     error.what()));
  };
  try {
    work();
  } catch (const CheckpointError& error) {
    failed(error);
  } catch (const checkpoint::RankError& error) {
    failed(error);
  }
}

void Saver::leave_later_behind(int64_t step) {
  std::vector<std::filesystem::path> left;
  checkpoint::agree(s_.world(), [&] {
    if (s_.is_first_rank()) left = checkpoint::leave_later_behind(s_.settings.out_dir, step);
  });
  if (left.empty()) return;
  std::vector<std::string> names;
  for (const std::filesystem::path& folder : left) names.push_back(folder.filename().string());
  say_(fmt::format(
      "left     behind: {}. The run goes on from step {}, and later ones no longer count as its newest checkpoint; to "
      "go back to one, name it with --resume",
      base::join(names, ", "), step));
}

void Saver::resumed_from(const std::filesystem::path& checkpoint, int64_t step) {
  const auto plain = [](const std::filesystem::path& path) { return (path / "").lexically_normal(); };
  if (checkpoint.empty() || plain(checkpoint.parent_path()) != plain(s_.settings.out_dir)) return;
  unproven_ = {checkpoint};
  saved_step_ = step;
}

void Saver::saw(int64_t step, const std::string& trouble) {
  trouble_ = trouble;
  if (!proof_) proof_ = trouble.empty() ? "" : fmt::format("at step {} {}", step, trouble);
  suspicion_.clear();
  settle();
}

void Saver::suspect(int64_t step, const std::string& trouble) {
  suspicion_ = fmt::format("at step {} {}", step, trouble);
}

/// When saves are on disk and a step has told how their weights fare: marks them if they are ruined, and deletes older
/// ones.
void Saver::settle() {
  if (unproven_.empty() || !proof_) return;
  tell_settled();
  const std::vector<std::filesystem::path> saves = std::exchange(unproven_, {});
  if (!s_.is_first_rank()) return;
  const auto work = [saves, trouble = *proof_, step = saved_step_, out_dir = std::filesystem::path(s_.settings.out_dir),
                     keep_last = static_cast<int>(s_.settings.save.keep_last), keep_best = s_.settings.save.keep_best,
                     protected_paths = started_with(s_.settings)] {
    std::vector<std::string> lines;
    try {  // the save has succeeded already, so trouble here is a warning
      std::vector<std::filesystem::path> stay = protected_paths;
      if (keep_best)
        if (const auto best = best_checkpoint(out_dir)) stay.push_back(*best);
      for (const std::filesystem::path& folder : saves) {
        if (trouble.empty() || !checkpoint::verdict_of(folder).good()) continue;
        checkpoint::mark_ruined(folder, trouble);
        lines.push_back(fmt::format("warn     {} is marked as ruined: {}", folder.string(), trouble));
      }
      checkpoint::keep_last_checkpoints(out_dir, step, keep_last, stay);
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
  settle();  // what has been proven, before the proof of this save is awaited
  if (job_) {
    const int64_t before = job_->step();
    const base::Stopwatch watch;
    finish();
    say_(fmt::format(
        "waited   {:.1f} s for the save of step {}, which was still under way; a longer train.save_interval "
        "avoids that",
        watch.seconds(), before));
  }
  guarded(state.step, [&] { s_.settings.save.mode == checkpoint::SaveMode::async ? begin(state) : save_now(state); });
}

void Saver::save_now(const RunState& state) {
  const checkpoint::SaveResult result =
      checkpoint::save_checkpoint(request_of(s_, s_.engine->state(), state, trouble_), s_.world());
  saved_step_ = state.step;
  proof_.reset();
  report(result, "");
}

void Saver::begin(const RunState& state) {
  const base::Stopwatch watch;
  const std::vector<engine::GroupState> copy = s_.engine->copy_state();
  job_ = std::make_unique<checkpoint::SaveJob>(request_of(s_, copy, state, trouble_), s_.world(),
                                               checkpoint::SaveJob::Options{.background = true});
  saved_step_ = state.step;
  proof_.reset();
  seconds_stood_still_ = watch.seconds();
}

void Saver::advance() {
  const base::Stopwatch watch;
  guarded(job_->step(), [&] { job_->advance(); });
  seconds_stood_still_ += watch.seconds();
  if (!job_ || !job_->committed()) return;
  report(job_->result(), fmt::format(" beside training, which stood still for {:.2f} s", seconds_stood_still_));
  job_.reset();
}

void Saver::finish() {
  while (job_) advance();
  settle();
  tell_settled();
}

void Saver::save_last(const RunState& state) {
  if (saved_step_ != state.step) save_now(state);
  if (!proof_) proof_ = suspicion_;  // no step follows
  settle();
  tell_settled();
}

// Of parameters that a save writes: adapters lie beside their base, unless it is copied.
static int64_t num_saved(const Session& s) {
  if (s.model.adapters.empty() || s.settings.checkpoint.base == checkpoint::BaseIn::copy)
    return s.model.config.num_parameters();
  int64_t count = 0;
  for (const model::ParameterGroup& group : s.model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      if (group.trained) count += checkpoint::num_elements(p.whole_shape());
  return count;
}

double Saver::expected_seconds() const {
  constexpr double kBytesPerParameter = 16, kDiskRate = 200e6, kFewFiles = 0.2, kMargin = 1.5;
  const double guess = kFewFiles + kBytesPerParameter * double(num_saved(s_)) / kDiskRate;
  return kMargin * seconds_.value_or(guess) * (under_way() ? 2 : 1);
}

void Saver::report(const checkpoint::SaveResult& result, const std::string& how) {
  say_(fmt::format("saved    {} ({}, {:.1f} s{})", result.path.string(), base::human_bytes(result.bytes),
                   result.seconds.count(), how));
  seconds_ = result.work_seconds.count();
  ++s_.saves.count, s_.saves.seconds += *seconds_;
  unproven_.push_back(result.path);
  if (!result.ruined.empty())
    say_(fmt::format("warn     {} is marked as ruined, and older good checkpoints stay: {}", result.path.string(),
                     result.ruined));
  for (const std::string& warning : result.warnings) say_("warn     " + warning);
}

}  // namespace trireme::train
