#include "trireme/train/introduction.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/config/choices.h"
#include "trireme/data/tokenize.h"
#include "trireme/observe/loss_curve.h"
#include "trireme/observe/metrics.h"
#include "trireme/ops/products/kernels.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/chosen_offload.h"
#include "trireme/train/foresight.h"
#include "trireme/train/run_profile.h"
#include "trireme/train/setup.h"
#include "trireme/train/whole_weights.h"

namespace trireme::train {

std::vector<std::string> introduction(Session& s, const Task& task, const StartingPoint& start,
                                      const std::string& moved, const Pace& pace) {
  const Settings& c = s.settings;
  std::vector<std::string> lines = {
      describe_start(s), "         " + outside_the_plan(s.program, at::get_num_threads(), s.device.is_cuda())};
  const auto add = [&](const std::vector<std::string>& more) { lines.insert(lines.end(), more.begin(), more.end()); };
  if (s.foresight) lines.push_back(s.foresight->before());
  for (const std::string& remark : s.model.config.remarks()) lines.push_back("         " + remark);
  if (const model::DropoutRates& dropout = s.model.config.dropout; dropout.any())
    lines.push_back("dropout  " + dropout.describe() + "; evaluation drops nothing");
  if (const auto bias = unmergeable_bias(s.model.config, s.model.adapters))
    lines.push_back("warn     " + *bias +
                    ": PEFT opens such adapters; generate, evaluate, merge_lora and convert do not");
  add(task.introduction());
  if (c.optimizer.lr_scaling != optim::LrScaling::none)
    lines.push_back(fmt::format("rate     {:g} = {:g} scaled {} for {} sequences instead of {}", scaled_lr(c),
                                c.optimizer.lr, config::name_of(c.optimizer.lr_scaling), c.train.global_batch_size,
                                c.optimizer.base_batch_size) +
                    (c.optimizer.adam_lr ? fmt::format("; optimizer.adam_lr {:g} becomes {:g}", *c.optimizer.adam_lr,
                                                       *c.optimizer.adam_lr * scaled_lr(c) / c.optimizer.lr)
                                         : ""));
  for (const std::string& warning : warnings(c, s.environment.world_size, task.num_steps()))
    lines.push_back("warn     " + warning);
  if (const std::string best = unkept_best(c, task.num_steps(), task.held_out_samples()); !best.empty())
    lines.push_back("warn     " + best);
  for (const std::string& short_of : unmeasured(c, task.num_steps() - start.step()))
    lines.push_back("warn     " + short_of);
  for (const std::string& remark : choose_offload(c, s.model.config, s.environment.world_size).remarks)
    lines.push_back("warn     " + remark);
  add(start.describe());
  if (!moved.empty()) lines.push_back(moved);
  if (s.settings.save.keep_best && start.is_measured_anew(moved, task.held_out_samples()))
    lines.push_back(
        "best     evaluations before this start are of other data, of more or fewer samples, or of another objective; "
        "save.keep_best compares later ones alone");
  lines.push_back(pace.peak_line());
  return lines;
}

std::string describe_data(const data::DataSettings& settings, const data::TrainingData& data,
                          const text::Tokenizer& tokenizer) {
  const std::string bytes = data.source_bytes > 0 ? base::human_count(data.source_bytes) + " bytes in " : std::string();
  const std::string held_out = data.held_out.empty() ? "" : fmt::format(" ({})", data.held_out);
  const bool unknown = data.of_unknown_tokenizer;
  std::string line = fmt::format("data     {}{}, {} {}tokens{} for training, {} held out{}; order seed {}", bytes,
                                 base::plural(data.num_documents, "document"), base::human_count(data.train_tokens),
                                 unknown || tokenizer.name() == "byte" ? "" : tokenizer.name() + " ",
                                 unknown ? " of an unknown tokenizer" : "", base::human_count(data.val_tokens),
                                 held_out, settings.seed);
  if (settings.packing != data::Packing::wrapped)
    line += fmt::format("\n         packing {}: {} samples an epoch, {:.1f} % of their places hold tokens",
                        config::name_of(settings.packing), base::human_count(data.train->samples_per_epoch()),
                        100 * data.filled);
  if (const std::string lacks = data::lacks_separator(tokenizer);
      settings.append_eos && !lacks.empty() && data.num_documents > 1 && data.chat_template.empty() && !unknown)
    line += "\n         " + lacks;
  for (const std::string& conversations : data.conversations) line += "\n         " + conversations;
  return line;
}

std::string outside_the_plan(const std::optional<observe::MemoryUsage>& program, int threads, bool on_gpu) {
  const std::string own = program ? base::human_bytes(program->rss_bytes()) + " of the program and LibTorch" : "";
  if (on_gpu)
    return "outside the plan: what driver and libraries take of the GPU (reserved in the hardware's file)" +
           (own.empty() ? "" : "; " + own + " in host memory, measured");
  return fmt::format("outside the plan: {}{} of scratch for matrix products ({})",
                     own.empty() ? "" : own + ", measured; ", base::human_bytes(threads * ops::kGemmScratchBytes),
                     base::plural(threads, "thread"));
}

namespace {

std::vector<std::string> loss_curve_lines(const Session& s, const std::string& unit) {
  const std::filesystem::path out = s.settings.out_dir;
  const auto rows = observe::read_metrics(out / "metrics.jsonl");
  if (rows.size() < 2) return {};
  const model::ModelConfig& model = s.model.config;
  const observe::LossCurve curve = observe::loss_curve_of(
      rows, fmt::format("{}, {:.2f} M parameters", model.name, double(model.num_parameters()) / 1e6), unit);
  base::write_file_atomic(out / "loss.svg", observe::loss_curve_svg(curve));
  return {observe::loss_curve_text(curve, {.unicode = observe::terminal_shows_utf8()}),
          fmt::format("curve    {}", (out / "loss.svg").string())};
}

}  // namespace

std::vector<std::string> draw_loss_curve(const Session& s, const std::string& unit) {
  try {
    return loss_curve_lines(s, unit);
  } catch (const base::FileError& error) {  // of a run that has saved everything
    return {fmt::format("warn     {}; there is no picture of the loss", error.what())};
  }
}

}  // namespace trireme::train
