#include "trireme/train/trouble.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/good.h"
#include "trireme/settings/derived.h"

namespace trireme::train {
namespace {

/// "nan", not "-nan".
double shown(double x) { return std::isnan(x) ? std::abs(x) : x; }

/// A scale, which is a power of two: with all digits where it is a whole number that people can read.
std::string whole(double scale) {
  return scale >= 1 && scale < 1e15 ? fmt::format("{:.0f}", scale) : fmt::format("{:g}", scale);
}

std::string what_is_left(const std::string& out_dir) {
  std::vector<checkpoint::PassedOver> passed_over;
  const auto newest = checkpoint::find_latest(out_dir, &passed_over);
  if (!newest) return fmt::format("{} holds no good checkpoint. Start again in another --out_dir with", out_dir);
  std::string newer;
  if (!passed_over.empty())
    newer = fmt::format("; {}: {}", passed_over.front().path.filename().string(), passed_over.front().verdict.problem);
  return fmt::format("The newest good checkpoint is {}{}. Go on from it (trireme pretrain --resume {}) with",
                     newest->string(), newer, base::shell_quoted(out_dir));
}

}  // namespace

bool is_finite(const engine::StepResult& step) { return std::isfinite(step.loss) && std::isfinite(step.gradient_norm); }

bool shows_weights(const engine::StepResult& step) { return std::isfinite(step.loss); }

double loss_of_guessing(Learning task, int64_t vocab_size) {
  if (task == Learning::preferences || task == Learning::rewards) return std::numeric_limits<double>::infinity();
  return std::log(static_cast<double>(std::max<int64_t>(2, vocab_size)));
}

std::string trouble_of(const engine::StepResult& step, double guessing) {
  constexpr double kTimesGuessing = 10;
  if (!is_finite(step) && !(step.overflowed && shows_weights(step)))
    return fmt::format("the loss was {} and the gradient norm {}", shown(step.loss), shown(step.gradient_norm));
  if (step.loss > kTimesGuessing * guessing)
    return fmt::format("the loss was {:.4g}, more than {:.0f} times the {:.2f} of guessing", step.loss, kTimesGuessing,
                       guessing);
  return "";
}

std::string describe_skipped(const Session& s, int64_t step) {
  return fmt::format("step {} is skipped: a gradient overflowed; {} of {} steps so far, the loss scale {} {}", step,
                     s.loss_scale->skipped(), step, s.loss_scale->options().dynamic ? "is now" : "stays at",
                     whole(s.loss_scale->scale()));
}

std::string describe_not_finite(Session& s, int64_t step, const engine::StepResult& result) {
  const Settings& c = s.settings;
  const std::string left = checkpoint::broadcast_text(s.world(), s.is_first_rank() ? what_is_left(c.out_dir) : "", 0);
  if (result.overflowed && c.precision.loss_scale)
    return fmt::format(
        "step {}: {} steps in a row were skipped, because a gradient overflows with precision.loss_scale {}. {} a "
        "smaller precision.loss_scale, or null, which finds one",
        step, optim::LossScale::kMostInARow, whole(*c.precision.loss_scale), left);
  if (result.overflowed) {
    const double lowest = c.precision.min_loss_scale;
    return fmt::format(
        "step {}: a gradient overflows even at the lowest loss scale, precision.min_loss_scale {}; {} steps were "
        "skipped. {} {}an optimizer.lr below {:g}, or --precision bf16-mixed or 32-true",
        step, whole(lowest), s.loss_scale->skipped(), left,
        lowest > 1 ? fmt::format("a precision.min_loss_scale below {}, ", whole(lowest)) : "", c.optimizer.lr);
  }
  const bool is_narrow = s.precision.compute != at::kFloat && s.precision.compute != at::kDouble;
  return fmt::format(
      "step {}: the loss is {} and the gradient norm {}. {} an optimizer.lr below {:g}, or more train.lr_warmup_steps "
      "than {}{}",
      step, shown(result.loss), shown(result.gradient_norm), left, c.optimizer.lr, std::max(warmup_steps(c), step),
      is_narrow ? ", or --precision 32-true" : "");
}

}  // namespace trireme::train
