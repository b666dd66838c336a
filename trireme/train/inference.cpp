#include "trireme/train/inference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/fall_back.h"
#include "trireme/checkpoint/load.h"
#include "trireme/comm/factory.h"
#include "trireme/model/quantized.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/model_source.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

/// The ranks of one copy: `pp` stages of `tp` ranks; rank = (stage * copies + copy) * tp + tp_rank.
struct Shape {
  int tp = 1, pp = 1, copies = 1;
};

Shape inference_shape(const Settings& settings, int64_t world_size) {
  const plan::MeshSettings& m = settings.mesh;
  if (m.cp.value_or(1) > 1 || m.shard.value_or(1) > 1)
    throw UsageError("without training only mesh.tp and mesh.pp divide a model; leave out mesh.cp and mesh.shard");
  const int64_t tp = m.tp.value_or(1), pp = m.pp.value_or(1);
  if (world_size % (tp * pp) != 0)
    throw UsageError(
        fmt::format("{} ranks cannot be divided into copies of the model with mesh.tp {} x mesh.pp {} ranks each; use "
                    "a multiple of {}",
                    world_size, tp, pp, tp * pp));
  return {static_cast<int>(tp), static_cast<int>(pp), static_cast<int>(world_size / (tp * pp))};
}

model::ModelConfig config_of(const checkpoint::Checkpoint& c, base::BlockFormat quantized = base::BlockFormat::none) {
  model::ModelConfig config =
      model::parse_hugging_face_config(checkpoint::read_text(c, "config.json"), (c.path / "config.json").string());
  if (quantized != base::BlockFormat::none) model::quantize(config, quantized, c.path.string());
  return config;
}

}  // namespace

model::Precision inference_precision(const Settings& settings) {
  if (settings.precision.format == model::NumberFormat::automatic) return {at::kFloat, at::kFloat};
  return resolve_precision(settings);
}

std::vector<int64_t> stop_ids_of(const fs::path& folder, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (const auto id = tokenizer.eos_id()) ids.push_back(*id);
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::is_directory(folder) || !fs::exists(folder / name)) continue;
    const nlohmann::json j = base::parse_json_if_sound(base::read_side_file(folder / name));
    if (!j.is_object() || !j.contains("eos_token_id")) continue;
    const nlohmann::json& eos = j["eos_token_id"];
    for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos}))
      if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

void check_inference(const Settings& settings, const adapt::ModelPlace& place, bool one_copy) {
  const Shape shape = inference_shape(settings, world_size(settings));
  if (one_copy && shape.copies > 1)
    throw UsageError(fmt::format("one text is written by one copy of the model: {} ranks need mesh.tp x mesh.pp = {}",
                                 world_size(settings), world_size(settings)));
  const checkpoint::Checkpoint c = adapt::open_model(place);
  const model::ModelConfig config = config_of(c, settings.model.quantize);
  if (config.is_classifier())
    throw UsageError(fmt::format(
        "{} classifies texts and writes none; predict labels with trireme evaluate {} --classify FILE.jsonl",
        c.path.string(), c.path.string()));
  describe_source(c, model::build_model(config, inference_precision(settings), {.tp_rank = 0, .tp_size = shape.tp}));
  checkpoint_tokenizer(c.path, config);
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

std::unique_ptr<model::Generator> open_generator(const checkpoint::Checkpoint& c, const model::Precision& precision,
                                                 const model::GeneratorRanks& ranks, int64_t capacity,
                                                 base::BlockFormat quantize) {
  model::ModelConfig config = config_of(c, quantize);
  if (c.change != nullptr) config.quantized = base::BlockFormat::none;  // an adapter in them has all its bits
  const ModelSource source = describe_source(c, model::build_model(config, precision));
  observe::WorkBar bar("loading weights");
  int64_t filled = 0;
  const int64_t all = config.num_parameters() / (ranks.num_stages * ranks.parallel.tp_size);  // about
  const model::FillWeights read = weights_of(c, source);
  const auto fill = [&](const model::ParameterSpec& p, const at::Tensor& tensor) {
    read(p, tensor);
    filled += p.numel();
    if (ranks.stage == 0 && ranks.parallel.tp_rank == 0) bar.show(double(filled) / double(all));
  };
  return std::make_unique<model::Generator>(config, precision, fill, ranks, capacity);
}

std::unique_ptr<model::Classifier> open_classifier(const checkpoint::Checkpoint& c, const model::Precision& precision) {
  const model::ModelConfig config = config_of(c);
  return std::make_unique<model::Classifier>(config, precision,
                                             weights_of(c, describe_source(c, model::build_model(config, precision))));
}

namespace {

/// A hint if the adapter was trained beside a base in 4 bits, and the base is read with all its bits.
std::string bits_of_training(const fs::path& adapter, base::BlockFormat given) {
  const checkpoint::Checkpoint c = checkpoint::open_checkpoint(checkpoint::find_latest(adapter).value_or(adapter));
  const std::string trained = saved_setting(c, "quantize");
  if (given != base::BlockFormat::none || base::block_format_named(trained) == base::BlockFormat::none) return "";
  return fmt::format(", which was trained on {} of it: --quantize {} merges it into their values", trained, trained);
}

// If a checkpoint that was found in a run's folder turns out to be damaged, takes the next older one.
void load_weights(const Inference& in, const fs::path& given, const std::function<void(const fs::path&)>& load) {
  std::vector<checkpoint::PassedOver> passed_over;
  const fs::path newest = checkpoint::find_latest(given, &passed_over).value_or(given);
  const auto older = [is_named = newest == given](const fs::path& damaged) {
    return is_named ? std::nullopt : checkpoint::find_older(damaged);
  };
  checkpoint::load_or_older(newest, *in.world, older, passed_over, [&](const fs::path& checkpoint) {
    checkpoint::agree(*in.world, [&] { load(checkpoint); });
  });
  if (!in.is_first_rank) return;
  for (const checkpoint::PassedOver& newer : passed_over)
    base::warn("passed over {}: {}", newer.path.string(), newer.verdict.problem);
}

}  // namespace

Inference open_inference(const Settings& settings, const launch::RankEnvironment& environment,
                         const adapt::ModelPlace& place, int64_t capacity) {
  if (settings.launch.threads_per_rank) at::set_num_threads(static_cast<int>(*settings.launch.threads_per_rank));
  Inference in;
  const Shape shape = inference_shape(settings, environment.world_size);
  const int rank = environment.global_rank, tp_rank = rank % shape.tp, stage = rank / (shape.tp * shape.copies);
  in.replica = rank / shape.tp % shape.copies;
  in.num_replicas = shape.copies;
  in.is_first_rank = rank == 0;
  in.counts = tp_rank == 0 && stage + 1 == shape.pp;
  in.meeting = meet(settings, environment);
  const auto make = [&](const std::string& name, const std::vector<int>& members) {
    comm::GroupOptions options = in.meeting.options;
    options.name = name + options.name;
    options.rank = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    options.size = static_cast<int>(members.size());
    options.global_ranks = members;
    return comm::make_communicator(options);
  };
  std::vector<int> everyone, tp, stages;
  for (int r = 0; r < environment.world_size; ++r) everyone.push_back(r);
  for (int t = 0; t < shape.tp; ++t) tp.push_back(rank - tp_rank + t);
  for (int s = 0; s < shape.pp; ++s) stages.push_back(rank + (s - stage) * shape.tp * shape.copies);
  in.world = make("world", everyone);
  in.tp = make("tp", tp);
  in.stages = make("stages", stages);
  const model::GeneratorRanks ranks{.parallel = {.tp_rank = tp_rank, .tp_size = shape.tp},
                                    .stage = stage,
                                    .num_stages = shape.pp,
                                    .tp = in.tp.get(),
                                    .stages = in.stages.get()};
  load_weights(in, place.model, [&](const fs::path& folder) {
    adapt::ModelPlace found = place;
    found.model = folder;
    found.quantize = settings.model.quantize;  // of the base of an adapter
    const checkpoint::Checkpoint c = adapt::open_model(found);
    in.folder = c.path;
    in.adapter = c.change == nullptr ? fs::path() : place.adapter.empty() ? folder : place.adapter;
    in.generator = open_generator(c, inference_precision(settings), ranks, capacity, settings.model.quantize);
  });
  if (in.is_first_rank && !in.adapter.empty())
    base::info("the adapter {} on {}{}", in.adapter.string(), in.folder.string(),
               bits_of_training(in.adapter, settings.model.quantize));
  if (in.is_first_rank)
    for (const std::string& remark : in.generator->config().remarks()) base::info("{}", remark);
  in.tokenizer = checkpoint_tokenizer(in.folder, in.generator->config());
  in.stop_ids = stop_ids_of(in.folder, *in.tokenizer);
  return in;
}

}  // namespace trireme::train
