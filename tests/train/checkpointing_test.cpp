// What a run saves on some ranks, engines of any number of ranks hold again, bit for bit, right after loading.
#include "trireme/train/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/comm/factory.h"
#include "trireme/settings/parse.h"

namespace trireme::train {
namespace {
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "trireme-train-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

model::ModelConfig small(model::Architecture architecture, bool tied) {
  model::ModelConfig c;
  set_architecture(c, architecture);
  c.vocab_size = 61;
  c.hidden_size = 48;
  c.intermediate_size = 96;
  c.num_hidden_layers = 2;
  c.num_attention_heads = c.num_key_value_heads = 6;
  c.head_dim = 8;
  c.max_position_embeddings = 16;
  c.tie_word_embeddings = tied;
  return c;
}

optim::OptimizerOptions chosen(const std::string& optimizer) {
  optim::OptimizerOptions options = optim::options_of(optimizer);
  options.weight_decay = 0.1;
  if (options.rule == optim::Rule::sgd) options.momentum = 0.9;
  return options;
}

struct Layout {
  const char* name;
  comm::MeshSizes mesh;
  plan::Strategy strategy;
  const char* optimizer = "AdamW";
  int ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }
};

constexpr plan::Strategy kFull = plan::Strategy::full_shard, kNone = plan::Strategy::no_shard;

// Master weights and optimizer state of all parameters, whole, by name: where several ranks hold an element, all must
// hold the same bits.
struct State {
  std::map<std::string, at::Tensor> tensors;
  bool operator==(const State& other) const {
    for (const auto& [name, tensor] : tensors)
      if (!other.tensors.contains(name) || !at::equal(tensor, other.tensors.at(name))) return false;
    return tensors.size() == other.tensors.size();
  }
  void add(const engine::GroupState& g) {
    for (size_t i = 0; i < g.layout->tensors().size(); ++i) {
      const shard::FlatTensor& t = g.layout->tensors()[i];
      add(g, t, (*g.parameters)[i], "master", g.master);
      for (const engine::OptimizerTensor& state : g.optimizer) add(g, t, (*g.parameters)[i], state.name, state.tensor);
    }
    for (const engine::WholeTensor& state : g.whole) {
      at::Tensor& whole = tensors[state.parameter->name + "." + state.name];
      const int64_t numel = c10::multiply_integers(state.shape), each = state.elements_each;
      if (!whole.defined()) whole = at::full({numel}, kUnseen, at::kDouble);
      const auto join = [&](int64_t local, int64_t full, int64_t count) {
        const at::Tensor mine = state.tensor.narrow(0, local, count), theirs = whole.narrow(0, full, count);
        EXPECT_TRUE(theirs.eq(kUnseen).logical_or(theirs.eq(mine)).all().item<bool>()) << state.name;
        theirs.copy_(mine);
      };
      if (each == 0) {
        join(0, 0, numel);
        continue;
      }
      const int64_t held = state.parameter->numel();
      model::for_each_run(*state.parameter, 0, held, [&](int64_t local, int64_t full, int64_t count) {
        join(local / each, full / each, (count + each - 1) / each);
      });
    }
  }
  static constexpr double kUnseen = -7.0;

 private:
  void add(const engine::GroupState& g, const shard::FlatTensor& t, const model::ParameterSpec& spec,
           const std::string& what, const at::Tensor& held) {
    at::Tensor& whole = tensors[spec.name + "." + what];
    int64_t numel = 1;
    for (int64_t s : spec.whole_shape()) numel *= s;
    if (!whole.defined()) whole = at::full({numel}, kUnseen, held.options());
    const int64_t begin = std::max(g.held.begin, t.offset), end = std::min(g.held.end, t.offset + t.numel);
    if (begin >= end) return;
    model::for_each_run(spec, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
      const at::Tensor mine = held.narrow(0, t.offset + local - g.held.begin, count);
      const at::Tensor theirs = whole.narrow(0, full, count);
      const at::Tensor agree = theirs.eq(kUnseen).logical_or(theirs.eq(mine));
      EXPECT_TRUE(agree.all().item<bool>()) << spec.name << "." << what;
      theirs.copy_(mine);
    });
  }
};

using Work = std::function<void(engine::Engine&, const model::Model&, comm::Communicator& world, int rank)>;

/// Runs `work` on thread ranks, each with an engine, and joins what the engines then hold.
State on_ranks(const model::ModelConfig& config, const model::Precision& precision, const Layout& layout,
               const Work& work, const model::Grouping& grouping = {}, bool save_copy = false) {
  const auto n = static_cast<size_t>(layout.ranks());
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(n);
  std::mutex mutex;
  State state;
  const auto run = [&](int rank) {
    at::set_num_threads(1);
    plan::StepRequest request{
        .precision = precision, .shape = {1, 16}, .mesh = {layout.mesh, layout.ranks()}, .rank = rank};
    request.strategy = layout.strategy;
    request.save_copy = save_copy;
    request.optimizer = chosen(layout.optimizer);
    const model::Model model = model::build_model(config, precision, request.parallel(), grouping);
    const plan::StepPlan plan = plan::make_step_plan(model, request);
    engine::Engine engine(
        model, plan,
        engine::connect(
            plan,
            {.name = "", .backend = n > 1 ? "threads" : "auto", .store = store, .timeout = std::chrono::seconds(60)}));
    comm::Communicator& world = *engine.communicators().world;
    work(engine, model, world, rank);
    world.barrier()->wait();
    const std::lock_guard lock(mutex);
    for (const engine::GroupState& g : engine.state()) state.add(g);
  };
  const auto guarded = [&](int rank) {
    try {
      run(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < layout.ranks(); ++rank) threads.emplace_back(guarded, rank);
  threads.clear();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return state;
}

void train(engine::Engine& engine, int rank, int steps, const std::string& optimizer = "AdamW", int first = 1) {
  engine::StepInputs inputs;
  inputs.supervised_tokens = 32;
  for (int step = first; step < first + steps; ++step) {
    inputs.optimizer = chosen(optimizer);
    inputs.optimizer.lr = 3e-3;
    inputs.optimizer.step = step;
    inputs.load_batch = [&](int, const engine::BatchTensors& to) {
      const at::Tensor &tokens = to.inputs, &targets = to.targets;
      for (int64_t i = 0; i < tokens.numel(); ++i) {
        tokens.data_ptr<int64_t>()[i] = (7 * i + 11 * step + 5 * rank) % 61;
        targets.data_ptr<int64_t>()[i] = (3 * i + step) % 61;
      }
    };
    engine.train_step(inputs);
  }
}

const Layout kLayouts[] = {{"one rank", {.shard = 1}, kNone},
                           {"full_shard 2", {.shard = 2}, kFull},
                           {"no_shard 4", {.shard = 4}, kNone},
                           {"zero1 3", {.shard = 3}, plan::Strategy::zero1},
                           {"hybrid zero2", {.replicate = 2, .shard = 2}, plan::Strategy::shard_grad_op},
                           {"tp 3", {.shard = 1, .tp = 3}, kNone},
                           {"pp 2 x full_shard 2", {.pp = 2, .shard = 2}, kFull},
                           {"pp 2 x cp 2 x tp 3", {.pp = 2, .shard = 1, .cp = 2, .tp = 3}, kFull},
                           {"full_shard 4", {.shard = 4}, kFull},
                           {"tp 2", {.shard = 1, .tp = 2}, kNone},
                           {"pp 2", {.pp = 2, .shard = 1}, kNone},
                           {"pp 2 x tp 2", {.pp = 2, .shard = 1, .tp = 2}, kNone},
                           {"cp 2", {.shard = 1, .cp = 2}, kNone},
                           {"no_shard 2", {.shard = 2}, kNone}};

void save_and_load_everywhere(const model::ModelConfig& config, const model::Precision& precision,
                              std::initializer_list<int> savers) {
  for (int saver : savers) {
    const Layout& saved = kLayouts[saver];
    const Folder folder;
    Settings settings;
    settings.out_dir = folder.path();
    const RunState at_save{.step = 3,
                           .samples = 6,
                           .tokens = 96,
                           .data = data::DataIdentity({{"the data", "so much"}, {"train.max_seq_length", "8"}}),
                           .settings_yaml = "seed: 1\n"};
    const State original =
        on_ranks(config, precision, saved,
                 [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
                   engine.initialize(1);
                   train(engine, rank, 3);
                   save_run(engine, model, settings, at_save, world);
                 });
    for (const auto& [name, tensor] : original.tensors)
      ASSERT_GT(tensor.abs().max().item<double>(), 0) << name << ": nothing to compare";
    for (const Layout& layout : kLayouts) {
      const State loaded =
          on_ranks(config, precision, layout,
                   [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                     engine.initialize(2);  // other weights, so that what is not loaded shows
                     const RunState state = load_run(engine, model, folder.path() / "step-00000003", world);
                     EXPECT_EQ(to_json(state), to_json(at_save));
                   });
      EXPECT_TRUE(loaded == original) << "saved on " << saved.name << ", loaded on " << layout.name;
    }
  }
}

TEST(Checkpointing, WeightsAndMomentsAreBitEqualRightAfterLoadOnAnyMesh) {
  save_and_load_everywhere(small(model::Architecture::llama, false), {at::kFloat, at::kFloat}, {1, 2, 6, 7, 13});
}

TEST(Checkpointing, TiedAndDoublePrecisionModelsComeBackBitEqual) {
  save_and_load_everywhere(small(model::Architecture::gpt2, true), {at::kDouble, at::kDouble}, {4, 5});
}

TEST(Checkpointing, MastersOfBf16RunsComeBackBitEqualThoughTheModelFilesAreBf16) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kBFloat16, at::kFloat};
  const Folder folder;
  Settings settings;
  settings.out_dir = folder.path();
  settings.save.dtype = checkpoint::SaveDtype::bf16;
  const State original =
      on_ranks(config, precision, kLayouts[1],
               [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
                 engine.initialize(1);
                 train(engine, rank, 2);
                 save_run(engine, model, settings, {.step = 2}, world);
               });
  const State loaded = on_ranks(config, precision, kLayouts[6],
                                [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                                  load_run(engine, model, folder.path() / "step-00000002", world);
                                });
  EXPECT_TRUE(loaded == original);
}

// A frozen group has no optimizer's tensors, and no master where the file holds all its bits; a run that trains all of
// the model goes on from such a checkpoint, and the other way round.
TEST(Checkpointing, FrozenGroupsAreSavedAsWeightsAndComeBackBitEqual) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kBFloat16, at::kFloat};
  const model::Grouping frozen{
      .frozen = {"embedding", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_proj.weight"}};
  const std::string stays = "model.embed_tokens.weight", trained = "model.layers.0.mlp.down_proj.weight";
  const Folder folder;
  Settings settings;
  settings.out_dir = folder.path();
  const auto begin = [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
    engine.initialize(1);
    train(engine, rank, 2);
    save_run(engine, model, settings, {.step = 2}, world);
  };
  const auto go_on = [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
    engine.initialize(2);
    load_run(engine, model, folder.path() / "step-00000002", world);
  };
  const State original = on_ranks(config, precision, kLayouts[1], begin, frozen);
  const checkpoint::Checkpoint saved = checkpoint::open_checkpoint(folder.path() / "step-00000002");
  EXPECT_FALSE(saved.has_tensor(stays + ".master") || saved.has_tensor(stays + ".exp_avg"));
  EXPECT_TRUE(saved.has_tensor(trained + ".master") && saved.has_tensor(trained + ".exp_avg"));
  EXPECT_FALSE(original.tensors.contains(stays + ".exp_avg"));
  for (const int layout : {0, 6, 10})
    EXPECT_TRUE(on_ranks(config, precision, kLayouts[layout], go_on, frozen) == original) << kLayouts[layout].name;
  const State all = on_ranks(config, precision, kLayouts[1], go_on);
  EXPECT_TRUE(at::equal(all.tensors.at(stays + ".master"), original.tensors.at(stays + ".master").to(at::kFloat)));
  EXPECT_TRUE(at::equal(all.tensors.at(trained + ".exp_avg"), original.tensors.at(trained + ".exp_avg")));
  EXPECT_EQ(all.tensors.at(stays + ".exp_avg").abs().max().item<double>(), 0);
}

TEST(Checkpointing, FrozenWeightsKeepTheBitsThatTheModelFilesDoNotHold) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Grouping frozen{.frozen = {"embedding", "model.layers.0.mlp.down_proj.weight"}};
  const std::string stays = "model.embed_tokens.weight";
  const std::pair<at::ScalarType, checkpoint::SaveDtype> cases[] = {{at::kFloat, checkpoint::SaveDtype::bf16},
                                                                    {at::kDouble, checkpoint::SaveDtype::as_loaded}};
  for (const auto& [dtype, file] : cases) {
    const model::Precision precision{dtype, dtype};
    const Folder folder;
    Settings settings;
    settings.out_dir = folder.path();
    settings.save.dtype = file;
    const State original = on_ranks(
        config, precision, kLayouts[1],
        [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
          engine.initialize(1);
          train(engine, rank, 2);
          save_run(engine, model, settings, {.step = 2}, world);
        },
        frozen);
    const int layouts[] = {0, 6, 1};
    for (int step = 2; step < 5; ++step) {  // each start saves what the next one loads
      const State loaded = on_ranks(
          config, precision, kLayouts[layouts[step - 2]],
          [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
            engine.initialize(2);
            RunState state = load_run(engine, model, folder.path() / checkpoint::step_folder_name(step), world);
            ++state.step;
            save_run(engine, model, settings, state, world);
          },
          frozen);
      EXPECT_TRUE(loaded == original) << "step " << step;
    }
    // Weights that came from a file of bfloat16 need no more than that file.
    RunState from_bf16{.step = 9};
    from_bf16.source.tensors[stays] = {checkpoint::Dtype::bf16, "model.safetensors"};
    settings.save.dtype = checkpoint::SaveDtype::as_loaded;
    on_ranks(
        config, precision, kLayouts[0],
        [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
          save_run(engine, model, settings, from_bf16, world);
        },
        frozen);
    const checkpoint::Checkpoint narrow = checkpoint::open_checkpoint(folder.path() / "step-00000009");
    EXPECT_EQ(narrow.tensor(stays).dtype, checkpoint::Dtype::bf16);
    EXPECT_FALSE(narrow.has_tensor(stays + ".master"));
  }
}

// AdamW's first step moves a weight by the learning rate. With the run's third step in its bias correction, it would be
// two thirds of it; in the thousandth, six times as far.
TEST(Checkpointing, AWeightThatIsUnfrozenBeginsWithTheOptimizersFirstStep) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kFloat, at::kFloat};
  const std::string early = "model.layers.0.mlp.down_proj.weight", late = "model.embed_tokens.weight";
  const model::Grouping late_frozen{.frozen = {late}}, early_frozen{.frozen = {early}};
  const Folder folder;
  Settings settings;
  settings.out_dir = folder.path();
  settings.save.keep_last = 0;
  const auto saved = [&](int step) { return folder.path() / checkpoint::step_folder_name(step); };
  const auto untrained = [&](int step) {
    return parse_run_state(checkpoint::open_checkpoint(saved(step)).state_json, saved(step)).untrained_steps;
  };
  // Goes on from step `from`, and saves. The run has skipped a step, so the optimizer counts one less.
  const auto go_on = [&](int from, const Layout& layout, const model::Grouping& grouping, int steps = 1) {
    return on_ranks(
        config, precision, layout,
        [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
          engine.initialize(1);
          RunState state = load_run(engine, model, saved(from), world, LoadWhat::run, "AdamW");
          train(engine, rank, steps, "AdamW", from);
          state.step = from + steps;
          save_run(engine, model, settings, state, world);
        },
        grouping);
  };
  const auto moved = [&](const State& before, const State& after, const std::string& name) {
    return (after.tensors.at(name + ".master") - before.tensors.at(name + ".master")).abs().max().item<double>();
  };
  const State at_3 = on_ranks(
      config, precision, kLayouts[1],
      [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
        engine.initialize(1);
        train(engine, rank, 2);
        save_run(engine, model, settings, {.step = 3, .loss_scale = {.scale = 8, .skipped = 1}}, world);
      },
      late_frozen);
  EXPECT_TRUE(untrained(3).empty());
  for (const int layout : {0, 1, 6}) {
    SCOPED_TRACE(kLayouts[layout].name);
    const State two_steps = go_on(3, kLayouts[layout], {}, 2), at_4 = go_on(3, kLayouts[layout], {});
    EXPECT_NEAR(moved(at_3, at_4, late), 3e-3, 1e-4);
    EXPECT_EQ(untrained(4), (std::map<std::string, int64_t>{{late, 2}}));
    EXPECT_TRUE(go_on(4, kLayouts[layout], {}) == two_steps) << "the next start knows it";
    EXPECT_EQ(untrained(5), untrained(4));
    const State at_6 = go_on(5, kLayouts[layout], early_frozen);
    EXPECT_EQ(untrained(6), untrained(4));
    EXPECT_NEAR(moved(at_6, go_on(6, kLayouts[layout], {}), early), 3e-3, 1e-4);
    EXPECT_EQ(untrained(7), (std::map<std::string, int64_t>{{early, 5}, {late, 2}}));
  }
}

TEST(Checkpointing, TheStateSaysThatAnEvaluationIsDue) {
  for (const bool due : {false, true}) {
    const RunState state{.step = 5, .evaluation_due = due, .settings_yaml = "seed: 1\n"};
    EXPECT_EQ(parse_run_state(to_json(state), "out").evaluation_due, due);
  }
}

TEST(Checkpointing, UntrainedStepsThatTheRunHasNotTakenAreRefused) {
  RunState state{.step = 5, .settings_yaml = "seed: 1\n", .loss_scale = {.scale = 8, .skipped = 1}};
  state.untrained_steps["w"] = 4;
  EXPECT_EQ(parse_run_state(to_json(state), "out").untrained_steps, state.untrained_steps);
  for (const int64_t steps : {0, 5}) {
    state.untrained_steps["w"] = steps;
    EXPECT_THROW(parse_run_state(to_json(state), "out"), CheckpointError) << steps;
  }
}

/// A checkpoint of one rank's new model, as a run with `settings` saves it that was loaded to `before`.
fs::path save_small(const fs::path& out_dir, int64_t step, const Settings& settings,
                    const model::Precision& precision = {at::kFloat, at::kFloat}, const RunState& before = {}) {
  Settings to = settings;
  to.out_dir = out_dir;
  RunState state = before;
  state.step = step;
  state.settings_yaml = to_yaml(to);
  on_ranks(small(model::Architecture::llama, false), precision, kLayouts[0],
           [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
             engine.initialize(1);
             save_run(engine, model, to, state, world);
           });
  return out_dir / checkpoint::step_folder_name(step);
}

RunState load_small(const fs::path& from, const model::Precision& precision = {at::kFloat, at::kFloat},
                    const std::string& optimizer = "AdamW", LoadWhat what = LoadWhat::run) {
  RunState state;
  on_ranks(small(model::Architecture::llama, false), precision, kLayouts[0],
           [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
             state = load_run(engine, model, from, world, what, optimizer);
           });
  return state;
}

TEST(Checkpointing, ModelFilesAreFp32UnlessBf16OrTheSourceSaysOtherwiseInDoublePrecisionToo) {
  using checkpoint::Dtype;
  const model::Precision wide{at::kDouble, at::kDouble};
  const std::string name = "model.norm.weight";
  const auto stored_dtype = [&](const fs::path& saved, const std::string& tensor) {
    return checkpoint::open_checkpoint(saved).tensor(tensor).dtype;
  };
  for (const auto& [asked, dtype] :
       {std::pair(checkpoint::SaveDtype::fp32, Dtype::f32), std::pair(checkpoint::SaveDtype::as_loaded, Dtype::f32),
        std::pair(checkpoint::SaveDtype::bf16, Dtype::bf16)}) {
    const Folder folder;
    Settings settings;
    settings.save.dtype = asked;
    const fs::path saved = save_small(folder.path(), 1, settings, wide);
    EXPECT_EQ(stored_dtype(saved, name), dtype);
    EXPECT_EQ(stored_dtype(saved, name + ".master"), Dtype::f64) << "what training goes on with";
    EXPECT_THAT(base::read_file(saved / "config.json"),
                testing::HasSubstr(dtype == Dtype::f32 ? "\"float32\"" : "\"bfloat16\""));
  }
  const Folder folder;
  RunState kept;
  kept.source.tensors[name] = {Dtype::f64, "model.safetensors"};
  EXPECT_EQ(stored_dtype(save_small(folder.path(), 1, {}, wide, kept), name), Dtype::f64);
}

TEST(Checkpointing, HiddenFilesBesideAModelStayBehindAndSavesSucceed) {
  const Folder folder;
  const fs::path from = save_small(folder.path() / "from", 1, {});
  base::write_file_atomic(from / "tokenizer_config.json", "{}");
  base::write_file_atomic(from / "._tokenizer_config.json", "of another system");
  const RunState state = load_small(from, {at::kFloat, at::kFloat}, "", LoadWhat::weights);
  const fs::path saved = save_small(folder.path() / "to", 2, {}, {at::kFloat, at::kFloat}, state);
  EXPECT_TRUE(fs::exists(saved / "tokenizer_config.json"));
  EXPECT_FALSE(fs::exists(saved / "._tokenizer_config.json"));
}

TEST(Checkpointing, TheModelTheTokenizerAndTheResumeFolderOfTheSettingsAreNotDeleted) {
  const Folder folder;
  Settings all, settings;
  all.save.keep_last = 0;
  settings.save.keep_last = 1;
  settings.model.name = save_small(folder.path(), 1, all);
  settings.data.tokenizer = save_small(folder.path(), 2, all) / "tokenizer.json";
  settings.resume = {.from = train::Resume::From::folder, .folder = save_small(folder.path(), 3, all)};
  const fs::path other = save_small(folder.path(), 4, all);
  save_small(folder.path(), 5, settings);
  for (const int64_t step : {1, 2, 3, 5})
    EXPECT_TRUE(fs::exists(folder.path() / checkpoint::step_folder_name(step))) << step;
  EXPECT_FALSE(fs::exists(other));
}

TEST(Checkpointing, ARestartKeepsTheFolderThatTheUserNamedAndNotItsOwn) {
  const Folder folder;
  Settings all, settings;
  all.save.keep_last = 0;
  settings.save.keep_last = 1;
  const fs::path named = save_small(folder.path(), 1, all), earlier = save_small(folder.path(), 2, all);
  settings.resume = {.from = train::Resume::From::folder, .folder = earlier, .named = named};
  save_small(folder.path(), 3, settings);
  EXPECT_TRUE(fs::exists(named));
  EXPECT_FALSE(fs::exists(earlier));
  settings.resume.named = "";  // the run began with new weights
  save_small(folder.path(), 4, settings);
  EXPECT_FALSE(fs::exists(named));
}

TEST(Checkpointing, AdamAndAdamWDoNotTakeEachOthersStateThoughItsNamesAreTheSame) {
  for (const auto& [saver, loader] : {std::pair("AdamW", "Adam"), std::pair("Adam", "AdamW")}) {
    const Folder folder;
    Settings settings;
    settings.optimizer.name = optim::options_of(saver).rule;
    const fs::path saved = save_small(folder.path(), 1, settings);
    EXPECT_EQ(load_small(saved, {at::kFloat, at::kFloat}, saver).step, 1);
    EXPECT_NO_THROW(load_small(saved, {at::kFloat, at::kFloat}, loader, LoadWhat::weights));
    try {
      load_small(saved, {at::kFloat, at::kFloat}, loader);
      ADD_FAILURE() << loader << " took the state of " << saver;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr(fmt::format("is of another optimizer: {} saved it, this run's is {}; go on with "
                                                 "--optimizer {}, or begin a new run from its weights, for instance "
                                                 "trireme pretrain {}",
                                                 saver, loader, saver, saved.string())));
    }
  }
}

TEST(Checkpointing, WhatAnOptimizerKeepsComesBackOnAnyMeshAndNoOtherOneTakesIt) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kFloat, at::kFloat};
  for (const char* optimizer : {"SGD", "Lion"}) {
    const Folder folder;
    Settings settings;
    settings.out_dir = folder.path();
    const fs::path saved = folder.path() / "step-00000002";
    const auto load = [&](const char* name, comm::MeshSizes mesh, LoadWhat what = LoadWhat::run) {
      return on_ranks(config, precision, {name, mesh, kFull, name},
                      [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                        engine.initialize(2);
                        load_run(engine, model, saved, world, what);
                      });
    };
    const State original =
        on_ranks(config, precision, {optimizer, {.shard = 2}, kFull, optimizer},
                 [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
                   engine.initialize(1);
                   train(engine, rank, 2, optimizer);
                   save_run(engine, model, settings, {.step = 2}, world);
                 });
    const std::string kept = std::string(optimizer) == "SGD" ? "momentum_buffer" : "exp_avg";
    EXPECT_GT(original.tensors.at("model.norm.weight." + kept).abs().max().item<double>(), 0);
    EXPECT_TRUE(load(optimizer, {.pp = 2, .shard = 1, .tp = 2}) == original);
    try {
      load("AdamW", {.shard = 2});
      ADD_FAILURE() << "AdamW took the state of " << optimizer;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("keeps " + kept +
                                                     " of each parameter, and this run's optimizer keeps exp_avg and "
                                                     "exp_avg_sq; go on with its optimizer, optimizer.momentum"));
    }
    const State weights = load("AdamW", {.shard = 2}, LoadWhat::weights);
    EXPECT_TRUE(weights.tensors.at("model.norm.weight.master").equal(original.tensors.at("model.norm.weight.master")));
  }
}

TEST(Checkpointing, MomentsOfEightBitsGoFromAndToTensorParallelRanks) {
  model::ModelConfig config = small(model::Architecture::llama, false);
  config.hidden_size = config.intermediate_size = 512, config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 4, config.head_dim = 128;
  const model::Precision precision{at::kFloat, at::kFloat};
  const comm::MeshSizes meshes[] = {{.shard = 1}, {.shard = 2, .tp = 2}, {.shard = 3}, {.shard = 1, .tp = 2}};
  for (const comm::MeshSizes& saver : {meshes[0], meshes[1]}) {
    const Folder folder;
    Settings settings;
    settings.out_dir = folder.path();
    const State original =
        on_ranks(config, precision, {"saves", saver, kFull, "AdamW8bit"},
                 [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                   engine.initialize(1);
                   train(engine, 0, 2, "AdamW8bit");
                   save_run(engine, model, settings, {.step = 2}, world);
                 });
    const std::string down = "model.layers.0.mlp.down_proj.weight.";
    EXPECT_EQ(original.tensors.at(down + "absmax1").numel(), 512 * 512 / 256);
    EXPECT_FALSE(original.tensors.at(down + "state1").eq(State::kUnseen).any().item<bool>());
    EXPECT_GT(original.tensors.at(down + "absmax2").min().item<double>(), 0);
    for (const comm::MeshSizes& mesh : meshes) {
      const State loaded =
          on_ranks(config, precision, {"loads", mesh, kFull, "AdamW8bit"},
                   [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                     engine.initialize(2);
                     load_run(engine, model, folder.path() / checkpoint::step_folder_name(2), world, LoadWhat::run);
                   });
      EXPECT_TRUE(loaded == original) << "tp " << mesh.tp << ", shard " << mesh.shard;
    }
  }
}

TEST(Checkpointing, WhatRulesByTensorKeepComesBackOnAnyMesh) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kFloat, at::kFloat};
  const std::pair<const char*, const char*> rules[] = {{"LARS", "layers.1.mlp.down_proj.weight.momentum_buffer"},
                                                       {"LAMB", "layers.1.mlp.down_proj.weight.exp_avg_sq"},
                                                       {"Adafactor", "layers.1.mlp.down_proj.weight.exp_avg_sq_col"},
                                                       {"Muon", "norm.weight.exp_avg"}};
  for (const auto& [rule, kept] : rules) {
    SCOPED_TRACE(rule);
    const Folder folder;
    Settings settings;
    settings.out_dir = folder.path();
    const model::Grouping grouping{.matrices_apart = std::string(rule) == "Muon"};
    // With local accumulation off, every mesh of data ranks saves the same; half of the saves are from a copy.
    for (const bool copied : {false, true}) {
      const int64_t step = copied ? 3 : 2;
      const State original = on_ranks(
          config, precision, {rule, {.replicate = 2, .shard = 2}, kFull, rule},
          [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
            engine.initialize(1);
            train(engine, rank, 2, rule);
            if (copied)
              checkpoint::save_checkpoint(save_request(engine.copy_state(), engine.plan(), settings, {.step = step}),
                                          world);
            else
              save_run(engine, model, settings, {.step = step}, world);
          },
          grouping, copied);
      EXPECT_GT(original.tensors.at("model." + std::string(kept)).abs().max().item<double>(), 0);
      for (const comm::MeshSizes& mesh :
           {comm::MeshSizes{.pp = 2, .shard = 1, .tp = 2}, {.shard = 4}, {.shard = 1}, {.shard = 2, .tp = 2}}) {
        const State loaded = on_ranks(
            config, precision, {rule, mesh, kFull, rule},
            [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
              engine.initialize(2);
              load_run(engine, model, folder.path() / checkpoint::step_folder_name(step), world, LoadWhat::run);
            },
            grouping);
        EXPECT_TRUE(loaded == original);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::train
