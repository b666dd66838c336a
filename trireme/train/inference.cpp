#include "trireme/train/inference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/adapt/base_fingerprint.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/fall_back.h"
#include "trireme/checkpoint/load.h"
#include "trireme/comm/factory.h"
#include "trireme/engine/quantized_group.h"
#include "trireme/model/quantized.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/model_source.h"
#include "trireme/train/same_weights.h"
#include "trireme/train/setup.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

model::ModelConfig config_of(const checkpoint::Checkpoint& c, const model::ModelSettings& settings = {}) {
  model::ModelConfig config =
      model::parse_hugging_face_config(checkpoint::read_text(c, "config.json"), (c.path / "config.json").string());
  model::quantize(config, settings, c.path.string());
  return config;
}

}  // namespace

MeshShape inference_mesh(const Settings& settings, int64_t world_size) {
  if (settings.mesh.cp.value_or(1) > 1)
    throw UsageError("without training nothing divides a sequence; leave out mesh.cp");
  const MeshShape mesh = mesh_shape(settings, world_size);
  if (mesh.product() != world_size)
    throw UsageError(
        fmt::format("{} ranks cannot be divided into copies of the model with mesh.tp {} x mesh.pp {} ranks each; use "
                    "a multiple of {}",
                    world_size, mesh.tp, mesh.pp, mesh.product() / std::max<int64_t>(1, mesh.data_parallel_ranks())));
  return mesh;
}

model::Precision inference_precision(const Settings& settings) {
  if (settings.precision.format == model::NumberFormat::automatic) return {at::kFloat, at::kFloat};
  if (settings.precision.format == model::NumberFormat::fp8_mixed)
    throw UsageError("precision fp8-mixed rounds numbers in training only; take precision bf16-mixed here");
  return resolve_precision(settings);
}

std::vector<int64_t> stop_ids_of(const fs::path& folder, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (const auto id = tokenizer.eos_id()) ids.push_back(*id);
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::is_directory(folder) || !fs::exists(folder / name)) continue;
    const std::vector<int64_t> more = text::eos_ids_in(base::parse_json_if_sound(base::read_side_file(folder / name)));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

Inference check_inference(const Settings& settings, const adapt::ModelPlace& place, bool one_copy,
                          const HasText& has_text) {
  const MeshShape mesh = inference_mesh(settings, world_size(settings));
  if (one_copy && mesh.data_parallel_ranks() > 1)
    throw UsageError(fmt::format("one text is written by one copy of the model: {} ranks need mesh.tp x mesh.pp = {}",
                                 world_size(settings), world_size(settings)));
  const checkpoint::Checkpoint c = adapt::open_model(place);
  const model::ModelConfig config = config_of(c, settings.model);
  if (config.is_classifier())
    throw UsageError(fmt::format(
        "{} classifies texts and writes none; predict labels with trireme evaluate {} --classify FILE.jsonl",
        c.path.string(), base::shell_quoted(c.path.string())));
  describe_source(c, model::build_model(config, inference_precision(settings),
                                        {.tp_rank = 0, .tp_size = static_cast<int>(mesh.tp)}));
  Inference known;
  if (!has_text || has_text()) known.tokenizer = checkpoint_tokenizer(c.path, config);
  known.config = config, known.folder = c.path;
  return known;
}

PlacedModel open_place(const Settings& settings, adapt::ModelPlace place) {
  place.quantize = settings.model.quantize;  // of the base of an adapter
  PlacedModel found;
  found.beside = adapt::open_beside(place);
  found.model = found.beside ? found.beside->base : adapt::open_model(place);
  found.config = config_of(found.model, settings.model);
  // An adapter in them has all its bits.
  if (found.model.change != nullptr) found.config.quantized = base::BlockFormat::none;
  return found;
}

namespace {

// Reads each parameter from the folder.
model::FillWeights weights_of(const checkpoint::Checkpoint& c, const ModelSource& source) {
  return [c, source](const model::ParameterSpec& p, const at::Tensor& tensor) {
    const std::string name = source.name_of(p.name);
    if (p.is_quantized()) {
      const std::vector<uint8_t> record = model::quantized_record(p, *read_whole_quantized(c, name, p));
      std::memcpy(tensor.data_ptr(), record.data(), record.size());
      return;
    }
    auto* data = static_cast<char*>(tensor.data_ptr());
    const auto size = static_cast<int64_t>(tensor.element_size());
    model::for_each_run(p, 0, p.numel(), [&](int64_t local, int64_t full, int64_t count) {
      checkpoint::read_piece(c, {name, full, full + count, data + local * size, dtype_of(tensor.scalar_type())});
    });
  };
}

}  // namespace

std::unique_ptr<generate::Alone> open_alone(const checkpoint::Checkpoint& c, const model::Precision& precision,
                                            int64_t tokens) {
  model::ModelConfig config = config_of(c);
  if (c.change != nullptr) config.quantized = base::BlockFormat::none;  // an adapter in them has all its bits
  const ModelSource source = describe_source(c, model::build_model(config, precision));
  const int64_t most = std::min(tokens, config.longest_generation());
  return std::make_unique<generate::Alone>(
      config, precision, weights_of(c, source),
      generate::Room{.texts = 1, .tokens = most, .cache_tokens = most, .logit_rows = most}, most);
}

std::unique_ptr<model::Classifier> open_classifier(const checkpoint::Checkpoint& c, const model::Precision& precision) {
  const model::ModelConfig config = config_of(c);
  return std::make_unique<model::Classifier>(config, precision,
                                             weights_of(c, describe_source(c, model::build_model(config, precision))));
}

namespace {

/// A hint if the adapter was trained beside a base in few bits, and the base is read with all its bits.
std::string bits_of_training(const fs::path& adapter, base::BlockFormat given) {
  const checkpoint::Checkpoint c = checkpoint::open_checkpoint(checkpoint::find_latest(adapter).value_or(adapter));
  const std::string trained = saved_setting(c, "quantize");
  if (given != base::BlockFormat::none || base::block_format_named(trained) == base::BlockFormat::none) return "";
  return fmt::format(", which was trained on {} of it: --quantize {} merges it into their values", trained, trained);
}

// If a checkpoint that was found in a run's folder turns out to be damaged, takes the next older one.
void load_weights(const Inference& in, const fs::path& given, const std::function<void(const fs::path&)>& load) {
  std::vector<checkpoint::PassedOver> passed_over;
  const fs::path newest = checkpoint::newest_or_itself(given);
  const auto older = [is_named = newest == given](const fs::path& damaged) {
    return is_named ? std::nullopt : checkpoint::find_older(damaged);
  };
  checkpoint::load_or_older(newest, *in.world, older, passed_over, load);
  if (!in.is_first_rank) return;
  for (const checkpoint::PassedOver& newer : passed_over)
    base::warn("passed over {}: {}", newer.path.string(), newer.verdict.problem);
}

}  // namespace

namespace {

plan::StepRequest inference_request(const Settings& settings, const MeshShape& mesh, int rank,
                                    const model::GenerationShape& shape) {
  const comm::MeshSizes sizes{.pp = static_cast<int>(mesh.pp),
                              .replicate = static_cast<int>(mesh.replicate),
                              .shard = static_cast<int>(mesh.shard),
                              .cp = 1,
                              .tp = static_cast<int>(mesh.tp)};
  return {.precision = inference_precision(settings),
          .trains = false,
          .generation = shape,
          .mesh = comm::ProcessMesh(sizes, static_cast<int>(mesh.product())),
          .rank = rank,
          .strategy = settings.strategy,
          .pipeline = {.schedule = "gpipe"},
          .guard_bytes = settings.engine.poison ? int64_t{64} : 0};
}

// Every rank must call, before a plan is made from the configuration.
void require_same_model(const Inference& in, const launch::RankEnvironment& environment, const PlacedModel& folders) {
  require_same_folder(*in.world, environment, "the model's configuration", [&] { return fingerprint_of(in.config); });
  require_same_folder(*in.world, environment, "the model's weights",
                      [&] { return adapt::fingerprint_of(folders.model); });
  require_same_folder(*in.world, environment, "the adapter",
                      [&] { return in.adapter.empty() ? "" : fingerprint_of(adapt::open_adapter_folder(in.adapter)); });
}

// Each rank reads its part of every parameter.
void fill(engine::Engine& engine, const model::Model& model, const PlacedModel& folders, bool shows) {
  const checkpoint::Checkpoint& c = folders.model;
  const ModelSource source = describe_source(c, model);
  const model::FillWeights read = weights_of(c, source);
  const std::vector<engine::GroupState> groups = engine.state();
  observe::WorkBar bar("loading weights");
  int64_t all = 0, filled = 0;
  for (const engine::GroupState& g : groups) all += g.held.size();
  for (const engine::GroupState& g : groups) {
    if (g.storage->quantized != base::BlockFormat::none)
      engine::fill_quantized(
          g, [&](const model::ParameterSpec& p) { return read_whole_quantized(c, source.name_of(p.name), p); });
    const auto advance = [&](int64_t elements) {
      filled += elements;
      if (shows) bar.show(double(filled) / double(all));
    };
    if (g.storage->packed && g.storage->quantized == base::BlockFormat::none)
      engine::fill_packed(g, [&](const model::ParameterSpec& p) {
        const at::Tensor values = at::zeros(p.shape, p.packed->dtype);
        read(p, values);
        advance(p.record_bytes());
        return values;
      });
    const bool is_record = g.storage->packed || g.storage->quantized != base::BlockFormat::none;
    const auto size = static_cast<int64_t>(g.master.element_size());
    for (size_t i = 0; i < g.parameters->size() && !is_record; ++i) {
      const model::ParameterSpec& p = (*g.parameters)[i];
      const shard::FlatTensor& t = g.layout->tensors()[i];
      const int64_t begin = std::max(g.held.begin, t.offset), end = std::min(g.held.end, t.offset + t.numel);
      if (begin >= end) continue;
      auto* const data = static_cast<char*>(g.master.data_ptr()) + (t.offset - g.held.begin) * size;
      model::for_each_run(p, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
        const bool of_adapter = model::is_adapter(p.name);
        checkpoint::read_piece(of_adapter ? folders.beside->adapter.files : c,
                               {of_adapter ? folders.beside->fitted.file_names.at(p.name) : source.name_of(p.name),
                                full, full + count, data + local * size, dtype_of(g.master.scalar_type())});
      });
      advance(end - begin);
    }
  }
  engine.refresh_weights();
}

// Model, plan and engine, once the configuration is known. Every rank must call.
void build(Inference& in, const Settings& settings, const launch::RankEnvironment& environment,
           const generate::Room& room) {
  InferencePlan planned =
      plan_inference(settings, in.config, environment.world_size, environment.global_rank, room, in.adapters);
  in.model = std::move(planned.model);
  engine::Communicators ranks = engine::connect(planned.plan, in.meeting.options, settings.engine.poison);
  in.engine = std::make_unique<engine::Engine>(*in.model, std::move(planned.plan), std::move(ranks),
                                               engine::EngineOptions{.poison = settings.engine.poison});
  in.generator = std::make_unique<generate::Generator>(*in.engine, room);
}

// Tells if the folder keeps its weights in bfloat16 and nobody has said how to compute with them.
void tell_of_bits(const Settings& settings, const Inference& in) {
  if (settings.precision.format != model::NumberFormat::automatic || settings.model.quantize != base::BlockFormat::none)
    return;
  const nlohmann::json config = base::parse_json_if_sound(in.config.source_json);
  const bool is_half = config.is_object() && (config.value("dtype", nlohmann::json()) == "bfloat16" ||
                                              config.value("torch_dtype", nlohmann::json()) == "bfloat16");
  if (is_half && in.is_first_rank)
    base::info("{} is stored in bfloat16 and computes in float32 here; --precision bf16-mixed takes half the memory",
               in.folder.string());
}

}  // namespace

InferencePlan plan_inference(const Settings& settings, const model::ModelConfig& config, int64_t world_size, int rank,
                             const generate::Room& room, const model::Adapters& adapters) {
  const plan::StepRequest request = inference_request(settings, inference_mesh(settings, world_size), rank,
                                                      generate::shape_of(config, room, room.tokens));
  auto model = std::make_unique<model::Model>(
      model::build_model(config, request.precision, request.parallel(), {.trains = false}, adapters));
  plan::StepPlan plan = plan::make_step_plan(*model, request);
  return {std::move(model), std::move(plan)};
}

Inference open_inference(const Settings& settings, const launch::RankEnvironment& environment,
                         const adapt::ModelPlace& place, const RoomOf& room, const HasText& has_text) {
  if (settings.launch.threads_per_rank) at::set_num_threads(static_cast<int>(*settings.launch.threads_per_rank));
  Inference in;
  const MeshShape mesh = inference_mesh(settings, environment.world_size);
  const int rank = environment.global_rank;
  in.num_replicas = static_cast<int>(mesh.data_parallel_ranks());
  const plan::StepRequest where = inference_request(settings, mesh, rank, {});
  in.replica = where.data_index();
  in.is_first_rank = rank == 0;
  in.counts = where.coordinate(comm::Axis::tp) == 0 && where.coordinate(comm::Axis::pp) == 0;
  in.meeting = meet(settings, environment);
  comm::GroupOptions everyone = in.meeting.options;
  everyone.name = "inference" + everyone.name;
  everyone.rank = rank;
  everyone.size = environment.world_size;
  everyone.global_ranks.resize(static_cast<size_t>(environment.world_size));
  std::iota(everyone.global_ranks.begin(), everyone.global_ranks.end(), 0);
  in.world = comm::make_communicator(everyone);
  load_weights(in, place.model, [&](const fs::path& folder) {
    adapt::ModelPlace found = place;
    found.model = folder;
    PlacedModel folders;
    checkpoint::agree(*in.world, [&] {
      folders = open_place(settings, found);
      in.config = folders.config;
      in.adapters = folders.adapters();
      in.folder = folders.model.path;
      const bool adapts = folders.beside || folders.model.change != nullptr;
      in.adapter = !adapts ? fs::path() : place.adapter.empty() ? folder : place.adapter;
      if (has_text && !has_text()) return;
      in.tokenizer = checkpoint_tokenizer(in.folder, in.config);
      in.stop_ids = stop_ids_of(in.folder, *in.tokenizer);
      if (in.adapter.empty()) return;  // else the files are those of the base
      const auto known = template_of_model(in.folder, in.adapter);
      if (!known || known->trained.empty()) return;
      if (const auto id = text::end_of_reply(text::find_chat_family(known->name), *in.tokenizer))
        in.stop_ids.push_back(*id);
    });
    require_same_model(in, environment, folders);
    if (in.engine == nullptr) {
      tell_of_bits(settings, in);
      build(in, settings, environment, room(in));
    }
    checkpoint::agree(*in.world, [&] { fill(*in.engine, *in.model, folders, in.is_first_rank); });
  });
  if (in.is_first_rank && !in.adapter.empty())
    base::info(
        "the adapter {} {} {}{}", in.adapter.string(),
        in.adapters.empty() ? "on" : fmt::format("beside the {} bits of", base::traits_of(in.config.quantized).bits),
        in.folder.string(), in.adapters.empty() ? bits_of_training(in.adapter, settings.model.quantize) : "");
  if (in.is_first_rank)
    for (const std::string& remark : in.config.remarks()) base::info("{}", remark);
  return in;
}

void sum_over_ranks(const Inference& in, const at::Tensor& numbers) {
  const comm::Patience patience(*in.world);
  in.world->all_reduce(numbers, numbers, {})->wait();
}

}  // namespace trireme::train
