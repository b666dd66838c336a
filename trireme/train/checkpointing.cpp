#include "trireme/train/checkpointing.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/gather.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/config/yaml_file.h"

namespace trireme::train {
namespace {

// The parts of a group's parameters in `range` that lie next to each other in the whole parameter: its elements
// [begin, end) start at index `at` of the tensors, which hold the elements `held` of the flat layout.
template <typename Visit>
void for_each_part(const engine::GroupState& group, const shard::Range& range, Visit visit) {
  for (size_t i = 0; i < group.layout->tensors().size(); ++i) {
    const shard::FlatTensor& t = group.layout->tensors()[i];
    const model::ParameterSpec& spec = (*group.parameters)[i];
    const int64_t begin = std::max(range.begin, t.offset), end = std::min(range.end, t.offset + t.numel);
    if (begin >= end) continue;
    model::for_each_run(spec, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
      visit(spec, full, full + count, t.offset + local - group.held.begin);
    });
  }
}

char* element(const at::Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data_ptr()) + index * static_cast<int64_t>(tensor.element_size());
}

/// The model's tensors under the names of `source`; in its dtypes where it has them and `as_loaded` asks for that.
std::vector<checkpoint::TensorSpec> model_tensors(const model::Model& model, const ModelSource& source,
                                                  checkpoint::Dtype dtype, bool as_loaded = false) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const model::ParameterGroup& g : model.groups)
    for (const model::ParameterSpec& p : g.parameters) {
      specs.push_back({source.name_of(p.name), p.whole_shape(), dtype});
      const auto stored = source.tensors.find(specs.back().name);
      if (as_loaded && stored != source.tensors.end()) specs.back().dtype = stored->second.dtype;
    }
  return specs;
}

const char* config_dtype(checkpoint::Dtype dtype) {
  switch (dtype) {
    case checkpoint::Dtype::bf16:
      return "bfloat16";
    case checkpoint::Dtype::f16:
      return "float16";
    case checkpoint::Dtype::f64:
      return "float64";
    default:
      return "float32";
  }
}

/// The optimizer's name in a checkpoint's settings; "" where they do not say.
std::string optimizer_of(const checkpoint::Checkpoint& c) {
  config::Problems problems;
  const std::string settings = parse_run_state(c.state_json, c.path).settings_yaml;
  for (const config::Given& given : config::read_yaml(settings, "settings", problems))
    if (given.key == "optimizer") return given.text;
  return "";
}

// AdamW and Adam keep tensors of the same names, which mean other things.
void check_optimizer_name(const checkpoint::Checkpoint& c, const std::string& wanted) {
  const std::string saved = optimizer_of(c);
  if (saved.empty() || wanted.empty() || saved == wanted) return;
  throw CheckpointError(
      fmt::format("the checkpoint {} is of another optimizer: {} saved it, this run's is {}; go on with --optimizer "
                  "{}, or start a new run from its weights: trireme pretrain {}",
                  c.path.string(), saved, wanted, saved, c.path.string()),
      c.path.string());
}

// Training goes on with the optimizer that began it: another one would start from zero, or take for its own what is
// not.
void check_optimizer(const checkpoint::Checkpoint& c, const std::string& parameter,
                     const std::vector<engine::OptimizerTensor>& wanted) {
  std::vector<std::string> kept, names;
  const std::string prefix = parameter + ".";
  for (auto t = c.tensors.lower_bound(prefix); t != c.tensors.end() && t->first.starts_with(prefix); ++t)
    if (const std::string name = t->first.substr(prefix.size()); name != "master") kept.push_back(name);
  for (const engine::OptimizerTensor& state : wanted) names.push_back(state.name);
  if (kept == names) return;
  const auto words = [](const std::vector<std::string>& list) {
    return list.empty() ? "nothing" : base::join(list, " and ");
  };
  throw CheckpointError(
      fmt::format(
          "the checkpoint {} is of another optimizer: it keeps {} of each parameter, this run's keeps {}; go on "
          "with the optimizer in its settings.yaml, or start a new run from its weights: trireme pretrain {}",
          c.path.string(), words(kept), words(names), c.path.string()),
      c.path.string());
}

/// What `c` keeps beside the weights, in the shapes that this model's would have.
std::vector<checkpoint::TensorSpec> kept_tensors(const checkpoint::Checkpoint& c, const model::Model& model,
                                                 const RunState& state) {
  std::vector<checkpoint::TensorSpec> kept;
  for (const checkpoint::TensorSpec& weight : model_tensors(model, state.source, checkpoint::Dtype::f32)) {
    const std::string prefix = weight.name + ".";
    for (auto t = c.tensors.lower_bound(prefix); t != c.tensors.end() && t->first.starts_with(prefix); ++t)
      kept.push_back({t->first, weight.shape});
  }
  return kept;
}

// Where every rank reads a part of its own (a little padding aside), nobody profits from what the page cache keeps of
// it.
checkpoint::PageCache cache_for(std::span<const engine::GroupState> mine, const model::Model& model, int world_size) {
  int64_t read = 0, all = 0;
  for (const engine::GroupState& g : mine) read += g.held.size();
  for (const model::ParameterGroup& g : model.groups)
    for (const model::ParameterSpec& p : g.parameters) all += checkpoint::num_elements(p.whole_shape());
  return read * world_size < all + all / 8 ? checkpoint::PageCache::bypass : checkpoint::PageCache::use;
}

}  // namespace

std::vector<std::filesystem::path> started_with(const config::Settings& settings) {
  std::vector<std::filesystem::path> paths = {settings.model.name};
  if (settings.data.tokenizer) paths.emplace_back(*settings.data.tokenizer);
  if (settings.resume.from == config::Resume::From::folder) paths.emplace_back(settings.resume.folder);
  return paths;
}

checkpoint::Dtype dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return checkpoint::Dtype::f64;
    case at::kBFloat16:
      return checkpoint::Dtype::bf16;
    default:
      return checkpoint::Dtype::f32;
  }
}

std::string to_json(const RunState& s) {
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& [name, value] : s.data.facts()) data[name] = value;
  return nlohmann::ordered_json{{"step", s.step},
                                {"samples", s.samples},
                                {"tokens", s.tokens},
                                {"run", s.run},
                                {"data", std::move(data)},
                                {"data_fingerprint", base::checksum_text(s.data.fingerprint())},
                                {"settings", s.settings_yaml}}
      .dump(2);
}

RunState parse_run_state(const std::string& text, const std::filesystem::path& path) try {
  const nlohmann::ordered_json j = base::parse_json<nlohmann::ordered_json>(text);
  RunState s;
  if (j.empty()) return s;
  s.step = j.at("step").get<int64_t>();
  s.samples = j.at("samples").get<int64_t>();
  s.tokens = j.at("tokens").get<int64_t>();
  s.run = j.value("run", "");
  if (j.contains("data"))
    for (const auto& [name, value] : j.at("data").items()) s.data.add(name, value.get<std::string>());
  s.settings_yaml = j.at("settings").get<std::string>();
  return s;
} catch (const std::exception& e) {
  throw CheckpointError(
      fmt::format("the checkpoint {} has an unusable trireme_state.json: {}", path.string(), e.what()), path.string());
}

checkpoint::SaveRequest save_request(std::span<const engine::GroupState> groups, const model::Model& model,
                                     const config::Settings& settings, const RunState& state) {
  const checkpoint::Dtype memory = dtype_of(groups[0].master.scalar_type());
  const bool as_loaded = settings.save.dtype == config::SaveDtype::as_loaded;
  // What the source says nothing about is fp32: 64-true keeps its float64 in the masters, as bf16 files do.
  const checkpoint::Dtype file =
      settings.save.dtype == config::SaveDtype::bf16 ? checkpoint::Dtype::bf16 : checkpoint::Dtype::f32;
  const ModelSource& source = state.source;
  std::vector<std::string> kept;
  for (const engine::OptimizerTensor& state : groups[0].optimizer) kept.push_back(state.name);
  checkpoint::SaveRequest request;
  request.out_dir = settings.out_dir;
  request.step = state.step;
  request.model = model_tensors(model, source, file, as_loaded);
  request.optimizer = checkpoint::state_tensors(model_tensors(model, source, memory), kept, memory);
  for (const engine::GroupState& g : groups)
    for_each_part(g, g.saved, [&](const model::ParameterSpec& t, int64_t begin, int64_t end, int64_t at) {
      if (!t.counted) return;  // another tensor-parallel rank writes it
      const std::string name = source.name_of(t.name);
      request.pieces.push_back({name, begin, end, element(g.master, at), memory});
      request.pieces.push_back({name + ".master", begin, end, element(g.master, at), memory});
      for (const engine::OptimizerTensor& state : g.optimizer)
        request.pieces.push_back({name + "." + state.name, begin, end, element(state.tensor, at), memory});
    });
  if (as_loaded && !settings.save.max_shard_bytes) {
    for (const auto& [name, stored] : source.tensors) request.files[name] = stored.file;
    request.index_json = source.index_json;
  }
  request.config_json = model.config.to_hugging_face_json(config_dtype(request.model.front().dtype));
  request.extra_files = source.side_files;
  request.state_json = to_json(state);
  request.extra_files["settings.yaml"] = state.settings_yaml;
  if (settings.save.max_shard_bytes) request.max_shard_bytes = *settings.save.max_shard_bytes;
  request.keep_last = static_cast<int>(settings.save.keep_last);
  request.protected_paths = started_with(settings);
  return request;
}

checkpoint::SaveResult save_run(engine::Engine& engine, const model::Model& model, const config::Settings& settings,
                                const RunState& state, comm::Communicator& world) {
  return checkpoint::save_checkpoint(save_request(engine.state(), model, settings, state), world);
}

RunState load_run(engine::Engine& engine, const model::Model& model, const std::filesystem::path& path,
                  comm::Communicator& world, LoadWhat what, const std::string& optimizer) {
  RunState state;
  checkpoint::agree(world, [&] {
    const checkpoint::Checkpoint c = checkpoint::open_checkpoint(path);
    state.source = describe_source(c, model, world.rank() == 0);
    const bool with_optimizer = std::any_of(c.tensors.begin(), c.tensors.end(),
                                            [](const auto& tensor) { return tensor.first.ends_with(".master"); });
    if (what == LoadWhat::run && with_optimizer) check_optimizer_name(c, optimizer);
    checkpoint::check_tensors(c, kept_tensors(c, model, state));
    std::vector<checkpoint::PieceRequest> requests;
    for (const engine::GroupState& g : engine.state()) {
      const checkpoint::Dtype memory = dtype_of(g.master.scalar_type());
      for_each_part(g, g.held, [&](const model::ParameterSpec& t, int64_t begin, int64_t end, int64_t at) {
        const std::string name = state.source.name_of(t.name);
        const bool with_master = c.has_tensor(name + ".master");
        requests.push_back({with_master ? name + ".master" : name, begin, end, element(g.master, at), memory});
        if (what == LoadWhat::weights || !with_master) return;
        check_optimizer(c, name, g.optimizer);
        for (const engine::OptimizerTensor& state : g.optimizer)
          requests.push_back({name + "." + state.name, begin, end, element(state.tensor, at), memory});
      });
    }
    checkpoint::read_pieces(c, requests, cache_for(engine.state(), model, world.size()));
    ModelSource source = std::move(state.source);
    if (what == LoadWhat::run) state = parse_run_state(c.state_json, path);
    if (source.is_part) source = {.side_files = source.side_files};
    state.source = std::move(source);
  });
  engine.refresh_weights();
  return state;
}

std::filesystem::path starting_weights(const config::Settings& settings) {
  namespace fs = std::filesystem;
  const fs::path folder = settings.model.name;
  if (settings.model.from_scratch || !fs::is_directory(folder)) return {};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") return folder;
  return {};
}

namespace {

/// The newest good checkpoint in `folder`; where there are some and none is good, that is not the same as none.
std::optional<std::filesystem::path> newest_good(const std::filesystem::path& folder,
                                                 std::vector<checkpoint::PassedOver>& passed_over) {
  const auto found = checkpoint::find_latest(folder, &passed_over);
  for (const checkpoint::PassedOver& newer : passed_over)
    if (newer.verdict.kind == checkpoint::Verdict::Kind::unreadable)
      throw UsageError(
          fmt::format("resume: {}; make it readable, or name the checkpoint to go on from with --resume "
                      "FOLDER",
                      newer.verdict.problem));
  if (!found && !passed_over.empty())
    throw UsageError(fmt::format(
        "resume: none of the {} in {} is good; of the newest, {}: {}. Name one all the same with --resume FOLDER, or "
        "start afresh in another --out_dir",
        base::plural(static_cast<int64_t>(passed_over.size()), "checkpoint"), folder.string(),
        passed_over.front().path.filename().string(), passed_over.front().verdict.problem));
  return found;
}

}  // namespace

std::filesystem::path find_resume(const config::Settings& settings, std::vector<checkpoint::PassedOver>* passed_over) {
  using From = config::Resume::From;
  std::vector<checkpoint::PassedOver> unheard;
  if (passed_over == nullptr) passed_over = &unheard;
  switch (settings.resume.from) {
    case From::nothing:
      return {};
    case From::newest_if_any:
      return newest_good(settings.out_dir, *passed_over).value_or(std::filesystem::path());
    case From::newest: {
      const auto newest = newest_good(settings.out_dir, *passed_over);
      if (!newest)
        throw UsageError(
            fmt::format("resume is true, but {} holds no complete checkpoint; use --resume auto to "
                        "start afresh when there is none",
                        settings.out_dir));
      return *newest;
    }
    case From::folder: {
      const std::filesystem::path folder = settings.resume.folder;
      if (const auto inside = newest_good(folder, *passed_over)) return *inside;
      if (!std::filesystem::exists(folder))
        throw UsageError(fmt::format("resume: there is no folder {}", folder.string()));
      return folder;
    }
  }
  return {};
}

void keep_split(data::TrainingDataOptions& options, const std::filesystem::path& resume) {
  if (resume.empty() || options.split != data::Split::automatic) return;
  const RunState state = parse_run_state(checkpoint::open_checkpoint(resume).state_json, resume);
  const auto& facts = state.data.facts();
  const bool is_sample = std::ranges::any_of(facts, [](const auto& fact) { return fact.first == data::kSplitFact; });
  if (state.step > 0 && !facts.empty() && !is_sample) options.split = data::Split::last;
}

void keep_split(data::TrainingDataOptions& options, const std::filesystem::path& resume, comm::Communicator& world) {
  std::string split;
  checkpoint::agree(world, [&] {
    if (world.rank() == 0) keep_split(options, resume);
    if (options.split == data::Split::last) split = "last";
  });
  if (checkpoint::broadcast_text(world, split, 0) == "last") options.split = data::Split::last;
}

std::filesystem::path agree_on_resume(const config::Settings& settings, comm::Communicator& world,
                                      std::vector<checkpoint::PassedOver>& passed_over) {
  std::string found;
  checkpoint::agree(world, [&] {
    if (world.rank() == 0) found = find_resume(settings, &passed_over).string();
  });
  return checkpoint::broadcast_text(world, found, 0);
}

RunState resume_run(engine::Engine& engine, const model::Model& model, const config::Settings& settings,
                    comm::Communicator& world, std::filesystem::path& folder,
                    std::vector<checkpoint::PassedOver>& passed_over) {
  const bool is_named =
      settings.resume.from == config::Resume::From::folder && folder == std::filesystem::path(settings.resume.folder);
  for (;;) try {
      return load_run(engine, model, folder, world, LoadWhat::run, settings.optimizer.name);
    } catch (const DamagedError& error) {
      if (is_named) throw;
      const auto older = world.rank() == 0 ? checkpoint::find_older(folder) : std::nullopt;
      const std::filesystem::path next =
          checkpoint::broadcast_text(world, older.value_or(std::filesystem::path()).string(), 0);
      if (next.empty()) throw;
      passed_over.push_back({folder, {checkpoint::Verdict::Kind::damaged, error.what()}});
      folder = next;
    }
}

namespace {

std::string run_in(const std::filesystem::path& out_dir) {
  const std::filesystem::path file = out_dir / kRunFile;
  if (!std::filesystem::exists(file)) return "";
  const auto json = base::parse_json_if_sound(base::read_side_file(file));
  return json.is_object() && json.contains("run") && json["run"].is_string() ? json["run"].get<std::string>() : "";
}

}  // namespace

std::string begin_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment,
                      comm::Communicator& world) {
  std::string run;
  checkpoint::agree(world, [&] {
    if (world.rank() != 0) return;
    const std::string before = run_in(out_dir);
    run = environment.run.empty() && environment.restart_count > 0 ? before : environment.run;
    if (run.empty()) {
      std::random_device random;
      run = fmt::format("{:08x}{:08x}", random(), random());
    }
    if (run == before) return;
    base::write_file_atomic(out_dir / kRunFile, nlohmann::json{{"run", run}}.dump() + "\n");
  });
  return checkpoint::broadcast_text(world, run, 0);
}

void forget_earlier_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment) {
  if (environment.global_rank > 0 || environment.restart_count > 0 || !environment.run.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(out_dir / kRunFile, ignored);
}

std::optional<std::filesystem::path> find_saved_by_this_run(const std::filesystem::path& out_dir,
                                                            const launch::RankEnvironment& environment) {
  const std::string run = environment.run.empty() ? run_in(out_dir) : environment.run;
  if (run.empty()) return std::nullopt;
  for (const checkpoint::StepFolder& folder : checkpoint::list_step_folders(out_dir)) try {
      if (checkpoint::verdict_of(folder.path).good() &&
          parse_run_state(checkpoint::open_checkpoint(folder.path).state_json, folder.path).run == run)
        return folder.path;
    } catch (const Error&) {  // not one that could be loaded
    }
  return std::nullopt;
}

}  // namespace trireme::train
