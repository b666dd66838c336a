#include "trireme/train/checkpointing.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/adapt/adapter_config.h"
#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/magnitudes.h"
#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/engine/quantized_group.h"
#include "trireme/optim/adafactor.h"
#include "trireme/train/base_copy.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/state_parts.h"

namespace trireme::train {
namespace fs = std::filesystem;

namespace {

char* element(const at::Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data_ptr()) + index * static_cast<int64_t>(tensor.element_size());
}

/// Which of a model's parameters a folder holds, and under which names.
struct Contents {
  enum class Kind {
    model,    ///< all parameters, under the names of a source
    base,     ///< all but those of adapters, likewise
    adapter,  ///< what is trained beside a frozen base, under PEFT's names
  } kind = Kind::model;
  const ModelSource& source;
  checkpoint::Naming adapters = {};  ///< behind PEFT's prefix

  bool has(const model::ParameterSpec& p, bool trained) const {
    return kind == Kind::model || (kind == Kind::adapter ? trained : !model::is_adapter(p.name));
  }
  std::string name_of(const model::ParameterSpec& p) const {
    return kind == Kind::adapter ? model::kPeftPrefix + adapters.name_of(p.name) : source.name_of(p.name);
  }
};

/// Tensors of `groups` in a folder of these contents; with `as_loaded`, in the dtypes of its source if it has them.
std::vector<checkpoint::TensorSpec> model_tensors(std::span<const model::ParameterGroup> groups,
                                                  const Contents& contents, checkpoint::Dtype dtype,
                                                  bool as_loaded = false) {
  const ModelSource& source = contents.source;
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::ParameterGroup& g : groups)
    for (const model::ParameterSpec& p : g.parameters) {
      if (!contents.has(p, g.trained)) continue;
      specs.push_back({contents.name_of(p), p.whole_shape(), dtype});
      const auto stored = source.tensors.find(specs.back().name);
      if (as_loaded && stored != source.tensors.end()) specs.back().dtype = stored->second.dtype;
    }
  return specs;
}

/// Whether a frozen weight, which is kept as `memory` and saved as `in_file`, would lose bits in that file. A weight
/// that was read from a file has no more bits than it had there.
bool loses_bits(const checkpoint::TensorSpec& in_file, checkpoint::Dtype memory, const ModelSource& source) {
  if (checkpoint::holds(in_file.dtype, memory)) return false;
  const auto stored = source.tensors.find(in_file.name);
  return stored == source.tensors.end() || stored->second.has_master ||
         !checkpoint::holds(in_file.dtype, stored->second.dtype);
}

const char* config_dtype(checkpoint::Dtype dtype) {
  using D = checkpoint::Dtype;
  return dtype == D::bf16 ? "bfloat16" : dtype == D::f16 ? "float16" : dtype == D::f64 ? "float64" : "float32";
}

// AdamW and Adam keep tensors of the same names, but with different meanings.
void check_optimizer_name(const checkpoint::Checkpoint& c, const std::string& wanted, bool is_wrapped) {
  const std::string saved = saved_setting(c, "optimizer");
  if (saved.empty() || wanted.empty() || saved == wanted) return;
  if (is_wrapped)
    throw CheckpointError(
        fmt::format("the checkpoint {} is of another optimizer: {} saved it, this Trainer's is {}; make the Trainer "
                    "with optim::options_of(\"{}\")",
                    c.path.string(), saved, wanted, saved),
        c.path.string());
  throw CheckpointError(
      fmt::format("the checkpoint {} is of another optimizer: {} saved it, this run's is {}; go on with --optimizer "
                  "{}, or begin {}",
                  c.path.string(), saved, wanted, saved, how_to_begin_from(c.path)),
      c.path.string());
}

/// The names of what an optimizer keeps of a parameter beside its master, in the order of a checkpoint's names.
std::vector<std::string> kept_of(const plan::GroupStorage& storage, const model::ParameterSpec& parameter) {
  std::vector<std::string> names = storage.kept_names();
  for (const optim::WholeState& state : optim::whole_state(storage.rule, parameter.whole_shape()))
    names.push_back(state.name);
  std::ranges::sort(names);
  return names;
}

/// The same of what a folder keeps of the parameter `name`.
std::vector<std::string> kept_in(const checkpoint::Checkpoint& c, const std::string& name) {
  std::vector<std::string> kept;
  const std::string prefix = name + ".";
  for (auto t = c.tensors.lower_bound(prefix); t != c.tensors.end() && t->first.starts_with(prefix); ++t)
    if (const std::string state = t->first.substr(prefix.size()); state != "master") kept.push_back(state);
  return kept;
}

// A run must continue with its optimizer: another one would start from zero, or misread the saved tensors.
void check_optimizer(const checkpoint::Checkpoint& c, const std::vector<std::string>& kept,
                     const std::vector<std::string>& names, bool is_wrapped) {
  if (kept == names) return;
  const auto words = [](const std::vector<std::string>& list) {
    return list.empty() ? "nothing" : base::join(list, " and ");
  };
  throw CheckpointError(
      fmt::format("the checkpoint {} keeps {} of each parameter, and this run's optimizer keeps {}; {}",
                  c.path.string(), words(kept), words(names),
                  is_wrapped
                      ? "make the Trainer with the optimizer, momentum and precision that saved it"
                      : fmt::format("go on with its optimizer, optimizer.momentum and precision.rounding, or begin {}",
                                    how_to_begin_from(c.path))),
      c.path.string());
}

bool has_masters(const checkpoint::Checkpoint& c) {
  return std::ranges::any_of(c.tensors, [](const auto& tensor) { return tensor.first.ends_with(".master"); });
}

/// Engine::untrained_steps of the run that goes on from `c` in the state `saved`. A parameter whose optimizer state is
/// not in the folder was frozen there: its state begins now.
/// Errors    CheckpointError if the state is another optimizer's
std::map<std::string, int64_t> untrained_steps(const checkpoint::Checkpoint& c, const plan::StepPlan& plan,
                                               const Contents& contents, const RunState& saved) {
  std::map<std::string, int64_t> steps;
  const bool trained = has_masters(c);
  bool keeps_any = false;
  std::vector<std::string> missing;
  for (size_t g = 0; g < plan.storage.size(); ++g)
    for (const model::ParameterSpec& p : plan.model->groups[g].parameters) {
      const plan::GroupStorage& storage = plan.storage[g];
      if (!contents.has(p, storage.trained)) continue;
      const std::vector<std::string> kept = trained ? kept_in(c, contents.name_of(p)) : std::vector<std::string>();
      keeps_any |= !kept.empty();
      if (!storage.trained) continue;
      const std::vector<std::string> names = kept_of(storage, p);
      const int64_t counted = saved.step - saved.loss_scale.skipped;
      if (!kept.empty()) {
        check_optimizer(c, kept, names, plan.model->is_wrapped());
        if (const auto before = saved.untrained_steps.find(p.name); before != saved.untrained_steps.end())
          steps.insert(*before);
      } else if (!names.empty()) {
        missing = names;
        if (counted > 0) steps[p.name] = counted;
      }
    }
  if (trained && !keeps_any)
    check_optimizer(c, {}, missing, plan.model->is_wrapped());  // by an optimizer that keeps nothing
  return steps;
}

// visit(begin and end in the whole tensor of state, place in this rank's part)
template <class Visit>
void for_each_run(const engine::WholeTensor& state, const Visit& visit) {
  const int64_t each = state.elements_each;
  if (each == 0) return visit(0, state.tensor.numel(), 0);
  model::for_each_run(*state.parameter, 0, state.parameter->numel(), [&](int64_t local, int64_t full, int64_t count) {
    visit(full / each, (full + count + each - 1) / each, local / each);
  });
}

/// The tensors that `c` keeps beside the weights, with the shapes that this model needs.
std::vector<checkpoint::TensorSpec> kept_tensors(const checkpoint::Checkpoint& c, const model::Model& model,
                                                 const Contents& contents) {
  std::vector<checkpoint::TensorSpec> kept;
  for (const checkpoint::TensorSpec& weight : model_tensors(model.groups, contents, checkpoint::Dtype::f32)) {
    const std::string prefix = weight.name + ".";
    for (auto t = c.tensors.lower_bound(prefix); t != c.tensors.end() && t->first.starts_with(prefix); ++t)
      kept.push_back({t->first, optim::state_shape(t->first, weight.shape)});
  }
  return kept;
}

/// A folder that was opened for a model.
struct OpenFolder {
  checkpoint::Checkpoint c;
  Contents::Kind kind;
  ModelSource source = {};
  checkpoint::Naming adapters = {};
  bool is_adapter() const { return kind == Contents::Kind::adapter; }
  Contents contents() const { return {kind, source, adapters}; }
};

/// How the files of an adapter name what is trained.
checkpoint::Naming naming_of_adapters(const checkpoint::Checkpoint& c, const model::Model& model) {
  for (const model::ParameterGroup& group : model.groups)
    if (group.trained && !group.parameters.empty()) return adapt::naming_in(c, group.parameters.front().name);
  return {};
}

/// Errors    CheckpointError for tensors that do not fit the model, by their headers
OpenFolder open_for(const model::Model& model, const fs::path& path, LoadWhat what, bool side_files = false) {
  const bool is_adapter = what != LoadWhat::base && adapt::is_adapter_folder(path);
  OpenFolder o{.c = is_adapter ? checkpoint::open_checkpoint(path) : adapt::open_base(path),
               .kind = is_adapter               ? Contents::Kind::adapter
                       : model.adapters.empty() ? Contents::Kind::model
                                                : Contents::Kind::base};
  checkpoint::warn_if_ruined(o.c.path, o.c.manifest.ruined);
  if (is_adapter) o.adapters = naming_of_adapters(o.c, model);
  if (is_adapter)
    checkpoint::check_tensors(o.c, model_tensors(model.groups, o.contents(), checkpoint::Dtype::f32));
  else
    o.source = describe_source(o.c, model, {.side_files = side_files, .may_lack_head = what == LoadWhat::weights});
  checkpoint::check_tensors(o.c, kept_tensors(o.c, model, o.contents()));
  return o;
}

/// The state of a run that goes on from the folder.
/// Errors    CheckpointError if it is another optimizer's, or unusable
RunState state_of_run(const OpenFolder& opened, const plan::StepPlan& plan, const std::string& optimizer) {
  if (has_masters(opened.c)) check_optimizer_name(opened.c, optimizer, plan.model->is_wrapped());
  RunState state = parse_run_state(opened.c.state_json, opened.c.path);
  state.untrained_steps = untrained_steps(opened.c, plan, opened.contents(), state);
  return state;
}

// If every rank reads a different part (except for a little padding), the page cache is of no use.
checkpoint::PageCache cache_for(std::span<const engine::GroupState> mine, const model::Model& model, int world_size) {
  int64_t read = 0, all = 0;
  for (const engine::GroupState& g : mine) read += g.held.size();
  for (const model::ParameterGroup& g : model.groups)
    for (const model::ParameterSpec& p : g.parameters) all += checkpoint::num_elements(p.whole_shape());
  return read * world_size < all + all / 8 ? checkpoint::PageCache::bypass : checkpoint::PageCache::use;
}

// Matrices that are kept in a few bits are quantized while they are read, one after the other, unless the folder has
// their codes.
void read_quantized(engine::Engine& engine, const checkpoint::Checkpoint& c, const Contents& contents) {
  for (const engine::GroupState& g : engine.state())
    if (g.storage->quantized != base::BlockFormat::none)
      engine::fill_quantized(
          g, [&](const model::ParameterSpec& p) { return read_whole_quantized(c, contents.name_of(p), p); });
}

}  // namespace

std::vector<std::filesystem::path> started_with(const Settings& settings) {
  std::vector<std::filesystem::path> paths = {settings.model.name};
  for (const auto* named : {&settings.data.tokenizer, &settings.dpo.reference, &settings.grpo.reference})
    if (*named) paths.emplace_back(**named);
  // A run that goes on begins with an adapter of its own, which nobody named.
  std::error_code ignored;
  if (const auto& adapter = settings.lora.initial_adapter)
    if (settings.resume.from == Resume::From::nothing ||
        !std::filesystem::equivalent(base::parent_of(*adapter), settings.out_dir, ignored))
      paths.emplace_back(*adapter);
  if (const std::string named = settings.resume.named.value_or(settings.resume.folder); !named.empty())
    paths.emplace_back(named);
  return paths;
}

checkpoint::Dtype dtype_of(at::ScalarType type) {
  using D = checkpoint::Dtype;
  return type == at::kByte       ? D::u8
         : type == at::kDouble   ? D::f64
         : type == at::kBFloat16 ? D::bf16
         : type == at::kHalf     ? D::f16
                                 : D::f32;
}

checkpoint::SaveRequest save_request(std::span<const engine::GroupState> groups, const plan::StepPlan& plan,
                                     const Settings& settings, const RunState& state) {
  const model::Model& model = *plan.model;
  const bool as_loaded = settings.save.dtype == checkpoint::SaveDtype::as_loaded;
  // Tensors without a dtype in the source are fp32: the masters keep the precision of 64-true.
  const checkpoint::Dtype file =
      settings.save.dtype == checkpoint::SaveDtype::bf16 ? checkpoint::Dtype::bf16 : checkpoint::Dtype::f32;
  const ModelSource& source = state.source;
  const bool is_adapter = !model.adapters.empty();
  const Contents contents{.kind = is_adapter ? Contents::Kind::adapter : Contents::Kind::model,
                          .source = source,
                          .adapters = model.config.is_text_half ? checkpoint::in_vision_model() : checkpoint::Naming{}};
  checkpoint::SaveRequest request;
  request.out_dir = settings.out_dir;
  request.step = state.step;
  request.model = model_tensors(model.groups, contents, file, as_loaded);
  std::set<std::string> frozen_masters;
  for (size_t g = 0; g < model.groups.size(); ++g) {
    const plan::GroupStorage& storage = plan.storage[g];
    const checkpoint::Dtype memory = dtype_of(storage.master);
    if (!storage.trained) {
      for (const checkpoint::TensorSpec& weight : model_tensors({&model.groups[g], 1}, contents, file, as_loaded))
        if (loses_bits(weight, memory, source)) {
          frozen_masters.insert(weight.name + ".master");
          request.optimizer.push_back({weight.name + ".master", weight.shape, memory});
        }
      continue;
    }
    const auto kept =
        checkpoint::state_tensors(model_tensors({&model.groups[g], 1}, contents, memory), storage.kept_names(), memory);
    request.optimizer.insert(request.optimizer.end(), kept.begin(), kept.end());
    for (const checkpoint::TensorSpec& weight : model_tensors({&model.groups[g], 1}, contents, memory))
      for (const optim::WholeState& state : optim::whole_state(storage.rule, weight.shape))
        request.optimizer.push_back({.name = weight.name + "." + state.name,
                                     .shape = state.shape,
                                     .dtype = state.bytes ? checkpoint::Dtype::u8 : memory});
  }
  for (const engine::GroupState& g : groups) {
    const checkpoint::Dtype memory = dtype_of(g.storage->master);
    for_each_part(g, g.saved, [&](const model::ParameterSpec& t, int64_t begin, int64_t end, int64_t at) {
      if (!t.counted) return;  // another tensor-parallel rank writes it
      if (!contents.has(t, g.storage->trained)) return;
      const std::string name = contents.name_of(t);
      request.pieces.push_back({name, begin, end, element(g.master, at), memory});
      if (g.storage->trained || frozen_masters.contains(name + ".master"))
        request.pieces.push_back({name + ".master", begin, end, element(g.master, at), memory});
      if (!g.storage->trained) return;
      for (const engine::OptimizerTensor& state : g.optimizer)
        request.pieces.push_back({name + "." + state.name, begin, end, element(state.tensor, at), memory});
    });
    for (const engine::WholeTensor& state : g.whole)
      if (state.saved)
        for_each_run(state, [&](int64_t begin, int64_t end, int64_t at) {
          request.pieces.push_back({contents.name_of(*state.parameter) + "." + state.name, begin, end,
                                    element(state.tensor, at), dtype_of(state.tensor.scalar_type())});
        });
  }
  if (as_loaded && !settings.save.max_shard_bytes && !is_adapter) {
    for (const auto& [name, stored] : source.tensors) request.files[name] = stored.file;
    request.index_json = source.index_json;
  }
  request.extra_files = source.side_files;
  if (is_adapter) {
    request.stem = "adapter_model";
    request.max_shard_bytes = std::numeric_limits<int64_t>::max();  // PEFT reads one file
    request.extra_files[adapt::kAdapterConfigName] = state.adapter_config;
    if (state.base_to_copy)
      add_base(request, state.base_to_copy, source.index_json, plan.request);
    else
      request.extra_files.erase("generation_config.json");
  } else if (!model.is_wrapped()) {  // whose shape no config.json can say
    request.config_json = model.config.to_hugging_face_json(config_dtype(request.model.front().dtype));
  }
  request.state_json = to_json(state);
  request.extra_files["settings.yaml"] = state.settings_yaml;
  if (settings.save.max_shard_bytes && !is_adapter) request.max_shard_bytes = *settings.save.max_shard_bytes;
  request.keep_last = static_cast<int>(settings.save.keep_last);
  request.protected_paths = started_with(settings);
  return request;
}

checkpoint::SaveResult save_run(engine::Engine& engine, const model::Model& model, const Settings& settings,
                                const RunState& state, comm::Communicator& world) {
  return checkpoint::save_checkpoint(save_request(engine.state(), engine.plan(), settings, state), world);
}

void check_run(const plan::StepPlan& plan, const fs::path& path, const std::string& optimizer) {
  state_of_run(open_for(*plan.model, path, LoadWhat::run), plan, optimizer);
}

RunState load_run(engine::Engine& engine, const model::Model& model, const std::filesystem::path& path,
                  comm::Communicator& world, LoadWhat what, const std::string& optimizer,
                  const std::function<void()>& before_reading) {
  RunState state;
  std::optional<OpenFolder> found;
  std::vector<checkpoint::PieceRequest> requests;
  std::vector<at::Tensor> fresh;
  RunState saved;
  checkpoint::agree(world, [&] {
    found = open_for(model, path, what, /*side_files=*/world.rank() == 0);
    const OpenFolder& opened = *found;
    const checkpoint::Checkpoint& c = opened.c;
    const Contents contents = opened.contents();
    if (what == LoadWhat::run) saved = state_of_run(opened, engine.plan(), optimizer);
    for (const engine::GroupState& g : engine.state()) {
      const checkpoint::Dtype memory = dtype_of(g.master.scalar_type());
      for_each_part(g, g.held, [&](const model::ParameterSpec& t, int64_t begin, int64_t end, int64_t at) {
        if (!contents.has(t, g.storage->trained) || opened.source.fresh.contains(t.name)) return;
        const std::string name = contents.name_of(t);
        const bool with_master = c.has_tensor(name + ".master");
        requests.push_back({with_master ? name + ".master" : name, begin, end, element(g.master, at), memory});
        if (what != LoadWhat::run || !g.storage->trained) return;
        for (const engine::OptimizerTensor& state : g.optimizer)
          if (const std::string kept = name + "." + state.name; c.has_tensor(kept))
            requests.push_back({kept, begin, end, element(state.tensor, at), memory});
          else
            fresh.push_back(state.tensor.narrow(0, at, end - begin));
      });
      for (const engine::WholeTensor& state : g.whole) {
        if (what != LoadWhat::run) break;
        const std::string kept = contents.name_of(*state.parameter) + "." + state.name;
        if (!c.has_tensor(kept)) {
          fresh.push_back(state.tensor);
          continue;
        }
        for_each_run(state, [&](int64_t begin, int64_t end, int64_t at) {
          requests.push_back({kept, begin, end, element(state.tensor, at), dtype_of(state.tensor.scalar_type())});
        });
      }
    }
  });
  if (before_reading) before_reading();
  checkpoint::agree(world, [&] {
    OpenFolder& opened = *found;
    const checkpoint::Checkpoint& c = opened.c;
    for (const at::Tensor& t : fresh) at::Tensor(t).zero_();
    checkpoint::read_pieces(c, requests, cache_for(engine.state(), model, world.size()));
    if (!opened.is_adapter()) read_quantized(engine, c, opened.contents());
    if (what == LoadWhat::run) {
      engine.set_untrained_steps(saved.untrained_steps);
      state = std::move(saved);
    }
    ModelSource& source = opened.source;
    if (source.naming.is_part || !source.fresh.empty())
      source = {.side_files = source.side_files, .fresh = source.fresh};
    state.source = std::move(source);
  });
  engine.refresh_weights();
  return state;
}

std::shared_ptr<const ops::Quantized> read_whole_quantized(const checkpoint::Checkpoint& c, const std::string& name,
                                                           const model::ParameterSpec& p) {
  if (c.quantized != nullptr && c.quantized->has(name)) return c.quantized->whole(name);
  if (c.quantized != nullptr && !p.quantized_as_read)
    throw CheckpointError(
        fmt::format("{} holds {} with all its bits, beside matrices in blocks; that is not built: take the model with "
                    "all its bits and quantize {}",
                    c.path.string(), name, base::traits_of(p.quantized.format).name),
        c.path.string(), name);
  return std::make_shared<const ops::Quantized>(
      model::quantize_values(p, [&](const model::ParameterSpec&, int64_t begin, int64_t end, float* to) {
        checkpoint::read_piece(c, {name, begin, end, to, checkpoint::Dtype::f32});
      }));
}

void load_magnitudes(engine::Engine& engine, const model::Model& model, const fs::path& base, comm::Communicator& world,
                     uint64_t seed) {
  const auto has_magnitudes = [](const auto& module) { return module.second.dora; };
  if (std::none_of(model.adapters.modules.begin(), model.adapters.modules.end(), has_magnitudes)) return;
  checkpoint::agree(world, [&] {
    checkpoint::Checkpoint c = adapt::open_base(base);
    if (model.config.quantized != base::BlockFormat::none) c = adapt::in_format(std::move(c), model.config.quantized);
    const ModelSource source = describe_source(c, model);
    c = adapt::with_magnitudes(std::move(c), model, source.naming, seed);
    std::vector<checkpoint::PieceRequest> requests;
    for (const engine::GroupState& g : engine.state())
      for_each_part(g, g.held, [&](const model::ParameterSpec& t, int64_t begin, int64_t end, int64_t at) {
        if (t.name.ends_with(model::kLoraMagnitude))
          requests.push_back(
              {source.name_of(t.name), begin, end, element(g.master, at), dtype_of(g.master.scalar_type())});
      });
    checkpoint::read_pieces(c, requests);
  });
  engine.refresh_weights();
}

}  // namespace trireme::train
