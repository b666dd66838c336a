#include "trireme/train/session.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <cstring>

#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/config/choices.h"
#include "trireme/engine/device.h"
#include "trireme/observe/peak.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/settings/derived.h"
#include "trireme/train/chosen_offload.h"
#include "trireme/train/foresight.h"
#include "trireme/train/setup.h"

namespace trireme::train {

void Session::copy_local(const at::Tensor& to, std::span<const int64_t> whole) const {
  const plan::StepRequest& r = engine->plan().request;
  auto* out = to.data_ptr<int64_t>();
  if (r.size(comm::Axis::cp) == 1) {
    std::memcpy(out, whole.data(), whole.size_bytes());
    return;
  }
  for (int64_t b = 0; b < r.shape.micro_batch; ++b)
    for (int64_t position : positions) *out++ = whole[static_cast<size_t>(b * r.shape.sequence + position)];
}

void Session::load(const engine::BatchTensors& to, const data::Batch& batch) const {
  if (to.inputs.defined()) {
    copy_local(to.inputs, batch.inputs);
    copy_local(to.targets.dim() == 2 ? to.targets[0] : to.targets, batch.targets);
  }
  if (to.document_starts.defined())
    std::memcpy(to.document_starts.data_ptr<int64_t>(), batch.document_starts.data(),
                batch.document_starts.size_bytes());
  if (to.text_length != nullptr)
    *to.text_length = data::longest_text(batch, sequence(), engine->plan().request.documents.positions);
  if (!to.position_ids.defined()) return;
  const model::BatchShape& shape = engine->plan().request.shape;
  auto* out = to.position_ids.data_ptr<int64_t>();
  for (int64_t b = 0; b < shape.micro_batch; ++b)
    for (int64_t position : positions)
      *out++ = position - batch.document_starts[static_cast<size_t>(b * shape.sequence + position)];
}

optim::OptimizerOptions Session::optimizer(double lr, int64_t step) const {
  optim::OptimizerOptions options = optim::options_of(settings.optimizer);
  options.lr = lr;
  options.step = step;
  return options;
}

namespace {

observe::FlopsShape flops_shape(const Session& s) {
  const model::ModelConfig& c = s.model.config;
  return {.matmul_parameters = c.num_product_parameters() + s.model.num_adapter_parameters(),
          .frozen_parameters = s.model.num_frozen_product_parameters(),
          .heads = c.num_attention_heads,
          .head_dim = c.head_dim,
          .attended_keys = c.attended_keys(s.sequence())};
}

}  // namespace

double Session::flops_per_token() const { return observe::training_flops_per_token(flops_shape(*this)); }

double Session::product_flops_per_token() const {
  observe::FlopsShape shape = flops_shape(*this);
  shape.attended_keys = 0;
  return observe::training_flops_per_token(shape);
}

std::unique_ptr<Session> make_session(const Settings& settings, const launch::RankEnvironment& environment) {
  auto s = std::make_unique<Session>();
  s->phases.end("settings");
  s->settings = settings;
  s->environment = environment;
  if (settings.accelerator == engine::Accelerator::cuda) s->device = engine::take_gpu(environment.local_rank);
  if (settings.launch.threads_per_rank) at::set_num_threads(static_cast<int>(*settings.launch.threads_per_rank));
  s->precision = resolve_precision(settings);
  if (scales_loss(settings)) s->loss_scale.emplace(optim::loss_scale_options(settings.precision));
  const model::ModelConfig config = model::config_of(settings.model);
  const plan::StepRequest request = step_request(settings, config, environment.global_rank, environment.world_size);
  s->model = build_run_model(settings, config, request);
  plan::StepPlan plan = plan::make_step_plan(s->model, request);
  s->phases.end("plan");
  s->ranks = connect_ranks(settings, environment, plan, &s->phases);
  if (!settings.offload.prefetch)  // a machine may have nothing to offload
    require_same_distance(*s->ranks.communicators.world, request.offload.any() ? request.offload.distance() : 0);
  s->phases.end("groups");
  if (s->is_first_rank()) s->program = observe::read_memory_usage();
  s->engine = std::make_unique<engine::Engine>(
      s->model, std::move(plan), s->ranks.communicators,
      engine::EngineOptions{.poison = settings.engine.poison,
                            .device = s->device,
                            .offload_path = offload_path(settings),
                            .graphs = settings.engine.cuda_graph ? ops::cuda_kernels().graph_maker() : nullptr});
  s->phases.end("memory");
  s->positions = model::context_positions(request.parallel(), request.shape.sequence);
  if (settings.predict && s->is_first_rank()) s->foresight = std::make_shared<Foresight>(*s);
  return s;
}

namespace {

// A line about the latent of a Free Transformer.
std::string describe_latent(const model::ModelConfig& m) {
  if (!m.is_free()) return "";
  const model::FreeConfig& f = m.free;
  const std::string way = f.injection == model::Injection::table
                              ? fmt::format("by a table of {} codes", base::human_count(int64_t{1} << f.latent_bits))
                          : f.latent_bits > model::kMostTableBits
                              ? fmt::format("by W (2 bits - 1), because a table ends at {} bits", model::kMostTableBits)
                              : "by W (2 bits - 1)";
  return fmt::format("latent   {} a token, seen by block {} {}; {:g} bits of divergence are free\n",
                     base::plural(f.latent_bits, "bit"), f.split_layer, way, f.free_bits);
}

}  // namespace

std::string describe_start(Session& s) {
  const plan::MemoryReport memory = plan::memory_report(s.engine->plan());
  const train::TrainSettings& t = s.settings.train;
  const model::ModelConfig& m = s.model.config;
  const auto mib = [](int64_t bytes) { return double(bytes) / (1 << 20); };
  std::string rows;
  for (const plan::MemoryRow& row : memory.rows)
    if (mib(row.bytes) >= 0.5) rows += fmt::format("{}{} {:.0f}", rows.empty() ? "" : ", ", row.cause, mib(row.bytes));
  const int ranks = s.environment.world_size;
  const plan::StepRequest& request = s.engine->plan().request;
  const int data_ranks = request.num_data_ranks();
  const ChosenOffload offload = choose_offload(s.settings, s.model.config, ranks);
  const model::Adapters& adapters = s.model.adapters;
  const std::string trained =
      adapters.empty()
          ? ""
          : fmt::format("; frozen, with adapters on {} modules of {:.3f} M parameters{}", adapters.modules.size(),
                        double(s.model.num_adapter_parameters()) / 1e6,
                        adapters.whole.empty()
                            ? ""
                            : fmt::format(", and {} whole", base::plural(std::ssize(adapters.whole), "module")));
  return fmt::format(
      "trireme {}  LibTorch {}  {} rank{}  {}  {}  {}  {} thread{} a rank\n"
      "model    {} {:.2f} M parameters, {}, width {}{}\n"
      "{}"
      "batch    {} = {} x {} x {} of {} tokens\n"
      "memory   {:.0f} MiB a rank planned{}{}",
      base::kVersion, TORCH_VERSION, ranks, ranks > 1 ? "s" : "", s.ranks.backend,
      config::name_of(number_format(s.settings)), config::name_of(s.settings.strategy), at::get_num_threads(),
      at::get_num_threads() > 1 ? "s" : "", m.name, double(m.num_parameters()) / 1e6,
      base::plural(m.num_hidden_layers, "block"), m.hidden_size, trained, describe_latent(m),
      base::plural(t.global_batch_size, "sequence"), base::plural(data_ranks, "data rank"),
      describe_accumulation(s.settings, ranks), base::plural(t.micro_batch_size, "sequence"), s.sequence(),
      mib(memory.total_bytes), rows.empty() ? "" : fmt::format(" ({})", rows),
      plan::describe_tiers(memory) +
          (s.settings.offload.fit ? fmt::format("; offload.fit moves {}", plan::describe(request.offload)) : "") +
          (offload.distance.empty() ? "" : "; " + offload.distance));
}

}  // namespace trireme::train
