#include "trireme/train/pretrain.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/gather.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/load.h"
#include "trireme/config/choices.h"
#include "trireme/config/learning_rate.h"
#include "trireme/config/report.h"
#include "trireme/config/take_over.h"
#include "trireme/config/validate.h"
#include "trireme/data/batch_loader.h"
#include "trireme/data/load_tokenizer.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/launch/worker.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/peak.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/introduction.h"
#include "trireme/train/ledger_file.h"
#include "trireme/train/observers.h"
#include "trireme/train/peak.h"
#include "trireme/train/profile.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/saver.h"
#include "trireme/train/session.h"
#include "trireme/train/setup.h"
#include "trireme/train/stop_decision.h"

namespace trireme::train {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kProfiledStep = 3;  // of this start: the ones before warm up

// Thrown on every rank alike, before the first step.
struct StoppedBeforeTheFirstStep {};

class Run {
 public:
  Run(const config::Settings& settings, const launch::RankEnvironment& environment)
      : s_(make_session(settings, environment)),
        stop_(stop_options()),
        tokenizer_(resolve_tokenizer(s_->settings, s_->model.config)),
        resume_(agree_on_resume(s_->settings, s_->world(), passed_over_)),
        data_(load_data()) {}

  int go() try {
    s_->phases.end("data");
    if (agreed_.stops) throw StoppedBeforeTheFirstStep();
    check_out_dir(*s_);
    start();
    safe_point();
    Observers observers(*s_, state_.step);
    observers_ = &observers;
    saver_ = std::make_unique<Saver>(*s_, [this](const std::string& line) { observers_->say(line); });
    if (s_->is_first_rank()) introduce();
    if (s_->settings.eval.initial_validation && has_validation()) {
      const std::optional<double> loss = validate();
      if (!loss) throw StoppedBeforeTheFirstStep();
      s_->phases.end("evaluation");
      observers.say(fmt::format("held-out loss {:.4f} before training", *loss));
    }
    const int64_t last = run_steps(s_->settings, s_->sequence(), data_.train->samples_per_epoch());
    if (last > 0 && state_.step >= last) {
      observers.say(fmt::format(
          "nothing to do: the run ends at step {}, the checkpoint is at step {}; raise train.max_steps to go on", last,
          state_.step));
      return 0;
    }
    launch::report_begun();
    while ((last == 0 || state_.step < last) && !agreed_.stops && !agreed_.time_is_up) train_one(last);
    if (agreed_.stops && state_.step == first_step_) throw StoppedBeforeTheFirstStep();
    // A request that came with or after the last step has nothing left to stop.
    const bool stops_early = agreed_.stops && !is_complete(last);
    finish(stops_early);
    return stops_early ? launch::kStoppedEarly : 0;
  } catch (const StoppedBeforeTheFirstStep&) {
    stop_.close();
    say_stopped("before the first step, with nothing saved");
    return launch::kStoppedEarly;
  } catch (const CommError& error) {
    if (launch::fault_of(error) == launch::Fault::timeout) tell_hang(s_->settings, s_->environment);
    throw;
  }

 private:
  StopDecision::Options stop_options() const {
    const launch::RankEnvironment& e = s_->environment;
    StopDecision::Options options{.world = &s_->world(),
                                  .store = e.world_size > 1 ? s_->ranks.meeting.store.store : nullptr,
                                  .name = s_->ranks.meeting.options.name,
                                  .grace = s_->settings.launch.grace};
    if (e.local_rank == 0) options.notice = notice_options(s_->settings.launch);
    return options;
  }

  // Where nothing is half done.
  void safe_point() {
    agreed_ = stop_.agree();
    if (agreed_.stops) throw StoppedBeforeTheFirstStep();
  }

  // Rank 0 says it to the reader; what the launcher's other ranks say is in their logs.
  void say_stopped(const std::string& where) {
    if (s_->is_first_rank())
      base::info("stopped {} by request ({})", where, stop_.why());
    else if (s_->environment.launcher == "trireme")
      base::info("rank {} stopped {} by request ({})", s_->environment.global_rank, where, stop_.why());
  }

  data::TrainingData load_data() {
    data::TrainingDataOptions options = training_data_options(s_->settings, s_->sequence());
    keep_split(options, resume_, s_->world());
    // Rank 0 tokenizes where nothing is cached; the others then find the set.
    std::optional<data::TrainingData> data;
    if (s_->is_first_rank()) data = data::load_training_data(options, *tokenizer_);
    agreed_ = stop_.agree();  // also a barrier; go() acts on it
    return data ? *std::move(data) : data::load_training_data(options, *tokenizer_);
  }

  data::BatchOptions batch_options() const {
    const plan::StepRequest& request = s_->engine->plan().request;
    return {.shard_index = request.data_index(),
            .num_shards = request.num_data_ranks(),
            .micro_batch = s_->settings.train.micro_batch_size,
            .global_batch = s_->settings.train.global_batch_size,
            .num_workers = s_->settings.data.num_workers};
  }

  void start() {
    fs::path& resume = resume_;
    const fs::path weights = starting_weights(s_->settings);
    if (resume.empty()) {
      if (weights.empty())
        s_->engine->initialize(static_cast<uint64_t>(s_->settings.seed));
      else
        state_ = load_run(*s_->engine, s_->model, weights, s_->world(), LoadWhat::weights);
      loaded_from_ = weights.string();
    } else {
      state_ = resume_run(*s_->engine, s_->model, s_->settings, s_->world(), resume, passed_over_);
      resumed_from_ = resume.string();
      changed_ = config::changes_since(state_.settings_yaml, s_->settings);
      note_tied_weights(resume);
      if (state_.step > 0) meet_data();
    }
    state_.run = begin_run(s_->settings.out_dir, s_->environment, s_->world());
    const fs::path loaded = resume.empty() ? weights : resume;
    s_->phases.end("weights");
    unverified_ = !loaded.empty() && !fs::exists(loaded / checkpoint::kManifestName);
    if (s_->is_first_rank() && !loaded.empty() && !unverified_) loaded_verdict_ = checkpoint::verdict_of(loaded);
    state_.data = data_.identity;
    keep_tokenizer();
    state_.settings_yaml = config::to_yaml(s_->settings);
    loader_ = std::make_unique<data::BatchLoader>(data_.train, batch_options(), state_.samples);
    if (s_->settings.data.ledger)
      ledger_ = std::make_unique<LedgerFile>(s_->settings.out_dir, s_->environment.global_rank);
    s_->phases.end("first batch");
    peak_flops_ = measure_peak_flops(s_->precision.compute, s_->world(), s_->device);
    flops_per_token_ = s_->flops_per_token();
    const int64_t last = run_steps(s_->settings, s_->sequence(), data_.train->samples_per_epoch());
    schedule_ = lr_schedule(s_->settings, last);
    evaluation_interval_ = evaluation_interval(s_->settings, last, has_validation() ? data_.val->num_samples() : 0);
    s_->phases.end("measuring");
    loop_started_ = Clock::now();
    first_step_ = state_.step;
  }

  // Where no setting says it but the model's name or folder.
  void note_tied_weights(const fs::path& resume) {
    constexpr std::string_view kKey = "model.tie_word_embeddings";
    const auto names_it = [&](const std::string& change) { return change.starts_with(kKey); };
    if (!base::is_file(resume / "config.json") || std::any_of(changed_.begin(), changed_.end(), names_it)) return;
    const std::string name = (resume / "config.json").string();
    const bool was = model::parse_hugging_face_config(base::read_file(name), name).tie_word_embeddings;
    const bool is = s_->model.config.tie_word_embeddings;
    if (was != is) changed_.push_back(fmt::format("{} was {}, is {} now", kKey, was, is));
  }

  // The order is a function of the data: with others, the number of samples that were taken says nothing.
  void meet_data() {
    if (s_->settings.data.on_change == "refuse") data::check_same_data(data_.identity, state_.data);
    if (data_.identity == state_.data) return;
    const std::string changes = data_.identity.changes_since(state_.data);
    restarted_ = fmt::format("order    begins at sample 0 of the new data{}{}", changes.empty() ? "" : ": ", changes);
    state_.samples = 0;
  }

  // A checkpoint holds the tokenizer that its model learned with, and no other.
  void keep_tokenizer() {
    if (!s_->is_first_rank() || !s_->settings.data.tokenizer) return;
    auto& files = state_.source.side_files;
    if (data::has_tokenizer(s_->settings.model.name))
      for (const auto& [name, bytes] : data::tokenizer_files(s_->settings.model.name)) files.erase(name);
    for (auto& [name, bytes] : data::tokenizer_files(tokenizer_path(s_->settings))) files[name] = std::move(bytes);
  }

  void introduce() {
    observers_->say(describe_start(*s_));
    observers_->say("         " + outside_the_plan(s_->program, at::get_num_threads()));
    if (s_->model.config.is_text_half)
      observers_->say("         the text half alone: its vision tower is left out, and not saved");
    observers_->say(describe_data(s_->settings.data, data_, *tokenizer_));
    if (s_->settings.optimizer.lr_scaling != config::LrScaling::none)
      observers_->say(fmt::format("rate     {:g} = {:g} scaled {} for {} sequences instead of {}",
                                  config::scaled_lr(s_->settings), s_->settings.optimizer.lr,
                                  config::name_of(s_->settings.optimizer.lr_scaling),
                                  s_->settings.train.global_batch_size, s_->settings.optimizer.base_batch_size));
    for (const std::string& warning : config::warnings(s_->settings, s_->environment.world_size))
      observers_->say("warn     " + warning);
    for (const checkpoint::PassedOver& newer : passed_over_)
      observers_->say(fmt::format("warn     passed over {}: {}", newer.path.string(), newer.verdict.problem));
    if (!loaded_verdict_.good())
      observers_->say(
          fmt::format("warn     this run starts from a checkpoint that is not good: {}", loaded_verdict_.problem));
    const std::string unverified = unverified_ ? "; it has no manifest, so nothing in it could be verified" : "";
    if (!loaded_from_.empty()) observers_->say(fmt::format("weights  {}{}", loaded_from_, unverified));
    if (!resumed_from_.empty())
      observers_->say(fmt::format("resumed  {} at step {}{}", resumed_from_, state_.step, unverified));
    for (const std::string& change : changed_) observers_->say("changed  " + change);
    if (!restarted_.empty()) observers_->say(restarted_);
    observers_->say(
        fmt::format("peak     {:.0f} GFLOP/s, {}", peak_flops_ / 1e9, what_peak_is(s_->precision.compute, s_->device)));
  }

  void train_one(int64_t last) {
    const Clock::time_point begin = Clock::now();
    const int64_t step = state_.step + 1;
    const config::Settings& c = s_->settings;
    engine::StepInputs inputs;
    inputs.load_batch = [this, step](int, const engine::BatchTensors& to) {
      const data::Batch batch = loader_->next();
      s_->load(to, batch);
      if (ledger_) ledger_->write(step, batch, *data_.train);
    };
    const int64_t tokens = c.train.global_batch_size * s_->sequence();
    // Of the whole step, counted by every rank for itself. A step in which nothing is to be learned has loss 0.
    inputs.supervised_tokens =
        std::max<int64_t>(1, data_.train->supervised_tokens(state_.samples, c.train.global_batch_size));
    inputs.optimizer = s_->optimizer(schedule_.at(step), step);
    inputs.max_norm = c.train.max_norm;
    const bool profiled = c.profile.schedule && step == first_step_ + kProfiledStep;
    if (profiled) s_->world().barrier()->wait();  // the ranks' clocks start together
    inputs.give_up = [&] { return must_give_up(seconds_since(begin)); };
    inputs.commit = [&](bool gave_up) { return commit(gave_up); };
    const engine::StepResult result = s_->engine->train_step(inputs);
    if (step == first_step_ + 1) s_->phases.end("first step");
    if (saver_->under_way() && !agreed_.is_busy) saver_->advance();
    if (!result.committed) {
      observers_->say(fmt::format("step {} is given up: it would not have ended within launch.grace", step));
      return;
    }
    if (profiled) {
      write_profile(*s_);
      observers_->say(fmt::format("profile  step {} in {}", step, *c.profile.schedule));
    }
    const auto shown = [](double x) { return std::isnan(x) ? std::abs(x) : x; };  // "nan", not "-nan"
    const double loss = shown(result.loss), norm = shown(result.gradient_norm);
    const std::string trouble = trouble_of(loss, norm, s_->model.config.vocab_size);
    if (!std::isfinite(loss) || !std::isfinite(norm)) {
      saver_->finish();  // all ranks have the same loss, so all come here
      saver_->saw(trouble);
      saver_->finish();
      throw Error(fmt::format("step {}: the loss is {} and the gradient norm {}. {}", step, loss, norm, way_out()));
    }
    saver_->saw(trouble);
    state_.step = step;
    state_.samples += c.train.global_batch_size;
    state_.tokens += tokens;
    launch::report_status(fmt::format("step {}", step));

    base::StepEvent event;
    event.step = step;
    event.max_steps = last;
    event.loss = result.loss;
    event.grad_norm = result.gradient_norm;
    event.lr = inputs.optimizer.lr;
    event.tokens = state_.tokens;
    event.step_seconds = seconds_since(begin);
    smoothed_seconds_ =
        smoothed_seconds_ == 0 ? event.step_seconds : 0.9 * smoothed_seconds_ + 0.1 * event.step_seconds;
    event.tokens_per_second = double(tokens) / smoothed_seconds_;
    event.peak_fraction = observe::peak_fraction(event.tokens_per_second, flops_per_token_, peak_flops_);
    if (s_->is_first_rank()) {
      if (step % 16 == 1 || rss_bytes_ == 0)
        if (const auto usage = observe::read_memory_usage()) rss_bytes_ = usage->rss_bytes();
      event.rss_bytes = rss_bytes_;
    }
    event.eta_seconds = last > 0 ? double(last - step) * smoothed_seconds_ : std::nan("");
    event.epoch = double(state_.samples) / double(data_.train->samples_per_epoch());
    const bool final_step = is_complete(last);
    if (has_validation() && (final_step ? c.eval.final_validation : step % evaluation_interval_ == 0))
      event.val_loss = observers_->phase("evaluate", [this] { return validate(); });
    observers_->step(event);
    if (step == first_step_ + 1) observers_->say(s_->phases.text());
    if (!final_step && c.train.save_interval.value_or(0) > 0 && step % *c.train.save_interval == 0)
      observers_->phase("save", [this] { return save(), 0; });
  }

  // After a step that was not finite: rank 0 looks what is left, and all ranks say the same.
  std::string way_out() {
    const config::Settings& c = s_->settings;
    std::string from;
    if (s_->is_first_rank()) {
      std::vector<checkpoint::PassedOver> passed_over;
      const auto newest = checkpoint::find_latest(c.out_dir, &passed_over);
      std::string newer;
      if (!passed_over.empty())
        newer =
            fmt::format("; {}: {}", passed_over.front().path.filename().string(), passed_over.front().verdict.problem);
      from = newest ? fmt::format("The newest good checkpoint is {}{}. Go on from it by --resume auto with",
                                  newest->string(), newer)
                    : fmt::format("{} holds no good checkpoint. Start again in another --out_dir with", c.out_dir);
    }
    const bool is_narrow = s_->precision.compute != at::kFloat && s_->precision.compute != at::kDouble;
    return fmt::format("{} an optimizer.lr below {:g}, or more train.lr_warmup_steps than {}{}",
                       checkpoint::broadcast_text(s_->world(), from, 0), c.optimizer.lr, c.train.lr_warmup_steps,
                       is_narrow ? ", or --precision 32-true" : "");
  }

  // A stop that was asked for meanwhile must not wait for another step.
  void save() {
    saver_->save(state_);
    agreed_.stops |= stop_.agree().stops;
  }

  // Whether this step and a save of it would take longer than what is left. Until a step has ended nobody knows how
  // long one takes: it goes on while there is time to save.
  bool must_give_up(double elapsed) const {
    if (!stop_.heard()) return false;
    const double rest = std::max(0.0, smoothed_seconds_ - elapsed);
    return stop_.left().count() < rest + saver_->expected_seconds();
  }

  // Where the ranks meet in each step, before the optimizer: a stop signal or the time limit at any rank stops all of
  // them after the same step, and a save beside training goes on once no rank is busy with it.
  bool commit(bool gave_up) {
    const auto& limit = s_->settings.train.max_time;
    agreed_ = stop_.agree(
        {.time_is_up = limit && Clock::now() - loop_started_ >= *limit, .is_busy = saver_->busy(), .gave_up = gave_up});
    agreed_.stops |= agreed_.gave_up;
    return !agreed_.gave_up;
  }

  // Whether there is nothing more to train; all ranks know the same.
  bool is_complete(int64_t last) const { return (last > 0 && state_.step >= last) || agreed_.time_is_up; }

  bool has_validation() const { return data_.val != nullptr; }

  /// Nothing where the ranks stop instead.
  std::optional<double> validate() {
    const int64_t limit = s_->settings.eval.max_iters;
    data::ValidationLoader loader(data_.val, batch_options(), limit);
    double sum = 0;
    for (int64_t round = 0; round < loader.num_rounds(); ++round) {
      sum += s_->engine->evaluate([&](int, const engine::BatchTensors& to) { s_->load(to, loader.batch(round)); }, 1);
      agreed_.stops |= stop_.agree().stops;
      if (agreed_.stops) return std::nullopt;
    }
    return sum / double(std::max<int64_t>(1, loader.num_targets()));
  }

  void finish(bool stops_early) {
    stop_.close();
    observers_->phase("save", [this] {
      saver_->finish();
      saver_->save_last(state_);
      return 0;
    });
    observers_->finish();
    if (stops_early && !s_->is_first_rank()) say_stopped(fmt::format("at step {}", state_.step));
    if (!s_->is_first_rank()) return;
    for (const std::string& line : draw_loss_curve(*s_, tokenizer_->name())) observers_->say(line);
    if (agreed_.stops && !stops_early)
      observers_->say(fmt::format(
          "a stop was requested ({}) when training was complete: nothing is left{}", stop_.why(),
          has_validation() && s_->settings.eval.final_validation ? ", the last evaluation was broken off" : ""));
    if (stops_early)
      observers_->say(fmt::format("stopped at step {} by request ({}); continue with: {}", state_.step, stop_.why(),
                                  how_to_go_on(s_->settings)));
  }

  Clock::time_point loop_started_;
  std::unique_ptr<Session> s_;
  StopDecision stop_;
  StopDecision::Agreed agreed_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<checkpoint::PassedOver> passed_over_;
  fs::path resume_;
  data::TrainingData data_;
  RunState state_;
  std::string resumed_from_, loaded_from_, restarted_;
  std::vector<std::string> changed_;  // settings, since the checkpoint that was resumed
  bool unverified_ = false;  // what was loaded
  checkpoint::Verdict loaded_verdict_;
  std::unique_ptr<data::BatchLoader> loader_;
  std::unique_ptr<LedgerFile> ledger_;
  optim::LrSchedule schedule_;
  Observers* observers_ = nullptr;
  std::unique_ptr<Saver> saver_;
  double peak_flops_ = 0, flops_per_token_ = 0, smoothed_seconds_ = 0;
  int64_t rss_bytes_ = 0, first_step_ = 0, evaluation_interval_ = 1;
};

}  // namespace

void check_pretrain(const config::Settings& settings) {
  const model::ModelConfig model = resolve_model(settings);
  data::TrainingDataOptions data = training_data_options(settings, sequence_length(settings, model));
  const auto tokenizer = resolve_tokenizer(settings, model);
  data::check_training_data(data);
  const fs::path resume = find_resume(settings);
  keep_split(data, resume);
  const fs::path weights = resume.empty() ? starting_weights(settings) : resume;
  const auto check_length = [&](int64_t samples) { run_steps(settings, sequence_length(settings, model), samples); };
  if (!settings.train.epochs) check_length(0);
  launch::check_notice(notice_options(settings.launch));
  RunState state;
  if (!weights.empty()) {
    const checkpoint::Checkpoint checkpoint = checkpoint::open_checkpoint(weights);
    describe_source(checkpoint, model::build_model(model, resolve_precision(settings)), false);
    state = parse_run_state(checkpoint.state_json, weights);
  }
  // Tokenizes where nothing is cached, so that ranks find the file and none waits for another that tokenizes. Last:
  // what is refused above leaves no file behind.
  const data::TrainingData loaded = data::load_training_data(data, *tokenizer);
  check_length(loaded.train->samples_per_epoch());
  if (!resume.empty() && state.step > 0 && settings.data.on_change == "refuse")
    data::check_same_data(loaded.identity, state.data);
}

int pretrain(const config::Settings& settings, const launch::RankEnvironment& environment) {
  forget_earlier_run(settings.out_dir, environment);
  return Run(settings, environment).go();
}

}  // namespace trireme::train
