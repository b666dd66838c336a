// What a run saves on some ranks, engines of any number of ranks hold again, bit for bit, right after loading.
#include "trireme/train/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/comm/threads.h"

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
  c.architecture = architecture;
  c.vocab_size = 61;
  c.hidden_size = 48;
  c.intermediate_size = 80;
  c.num_hidden_layers = 2;
  c.num_attention_heads = c.num_key_value_heads = 3;
  c.head_dim = 16;
  c.max_position_embeddings = 16;
  c.tie_word_embeddings = tied;
  return c;
}

struct Layout {
  int ranks;
  bool shard;
};

// Master weights and both moments of all groups, joined over the ranks: where several ranks hold an element, all
// must hold the same bits.
struct State {
  std::vector<at::Tensor> tensors;
  bool operator==(const State& other) const {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (!at::equal(tensors[i], other.tensors[i])) return false;
    return tensors.size() == other.tensors.size();
  }
};

State join(const std::vector<std::vector<engine::GroupState>>& ranks) {
  State state;
  for (size_t g = 0; g < ranks[0].size(); ++g)
    for (at::Tensor engine::GroupState::* member :
         {&engine::GroupState::master, &engine::GroupState::exp_avg, &engine::GroupState::exp_avg_sq}) {
      const engine::GroupState& first = ranks[0][g];
      const at::Tensor flat = at::full({first.layout->numel()}, -7.0, (first.*member).options());
      for (const auto& rank : ranks) flat.narrow(0, rank[g].held.begin, rank[g].held.size()).copy_(rank[g].*member);
      for (const auto& rank : ranks)
        EXPECT_TRUE(at::equal(flat.narrow(0, rank[g].held.begin, rank[g].held.size()), rank[g].*member));
      for (const shard::FlatTensor& t : first.layout->tensors())
        state.tensors.push_back(flat.narrow(0, t.offset, t.numel).clone());
    }
  return state;
}

using Work = std::function<void(engine::Engine&, const model::Model&, comm::Communicator& world, int rank)>;

/// Runs `work` on thread ranks, each with an engine, and joins what the engines then hold.
State on_ranks(const model::ModelConfig& config, const model::Precision& precision, const Layout& layout,
               const Work& work) {
  at::set_num_threads(1);
  const model::Model model = model::build_model(config, precision);
  const auto n = static_cast<size_t>(layout.ranks);
  std::shared_ptr<comm::SharedSegment> segments[3];
  for (auto& segment : segments)
    if (n > 1) segment = comm::make_thread_segment(layout.ranks);
  std::vector<std::unique_ptr<engine::Engine>> engines(n);
  std::vector<std::vector<engine::GroupState>> states(n);
  std::vector<std::exception_ptr> errors(n);
  const auto run = [&](int rank) {
    at::set_num_threads(1);
    comm::CommunicatorPtr comms[3];
    const char* names[] = {"world", "gather", "reduce"};
    for (int i = 0; i < 3; ++i)
      comms[i] = comm::make_communicator({.name = names[i],
                                          .backend = n > 1 ? "threads" : "auto",
                                          .rank = rank,
                                          .size = layout.ranks,
                                          .timeout = std::chrono::seconds(60),
                                          .thread_segment = segments[i]});
    engines[rank] = std::make_unique<engine::Engine>(
        model,
        plan::make_step_plan(
            model,
            {.precision = precision, .shape = {1, 16}, .rank = rank, .num_ranks = layout.ranks, .shard = layout.shard}),
        engine::Communicators{.gather = comms[1], .reduce = comms[2], .world = comms[0]});
    work(*engines[rank], model, *comms[0], rank);
    states[rank] = engines[rank]->state();
    comms[0]->barrier()->wait();
  };
  const auto guarded = [&](int rank) {
    try {
      run(rank);
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < layout.ranks; ++rank) threads.emplace_back(guarded, rank);
  threads.clear();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return join(states);
}

void train(engine::Engine& engine, int rank, int steps) {
  engine::StepInputs inputs;
  inputs.supervised_tokens = 32;
  for (int step = 1; step <= steps; ++step) {
    inputs.optimizer = {.lr = 3e-3, .weight_decay = 0.1, .step = step};
    inputs.load_batch = [&](int, const at::Tensor& tokens, const at::Tensor& targets) {
      for (int64_t i = 0; i < tokens.numel(); ++i) {
        tokens.data_ptr<int64_t>()[i] = (7 * i + 11 * step + 5 * rank) % 61;
        targets.data_ptr<int64_t>()[i] = (3 * i + step) % 61;
      }
    };
    engine.train_step(inputs);
  }
}

constexpr Layout kLayouts[] = {{1, false}, {2, true}, {2, false}, {4, true}, {4, false}};

void save_and_load_everywhere(const model::ModelConfig& config, const model::Precision& precision) {
  for (const Layout& saved : {Layout{2, true}, Layout{2, false}}) {
    const Folder folder;
    config::Settings settings;
    settings.out_dir = folder.path();
    const RunState at_save{.step = 3,
                           .samples = 6,
                           .tokens = 96,
                           .data_fingerprint = 0xfedcba9876543210,
                           .data_seed = 5,
                           .settings_yaml = "seed: 1\n"};
    const State original =
        on_ranks(config, precision, saved,
                 [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
                   engine.initialize(1);
                   train(engine, rank, 3);
                   save_run(engine, model, settings, at_save, world);
                 });
    for (const at::Tensor& tensor : original.tensors)
      ASSERT_GT(tensor.abs().max().item<double>(), 0) << "nothing to compare";
    for (const Layout& layout : kLayouts) {
      const State loaded =
          on_ranks(config, precision, layout,
                   [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                     engine.initialize(2);  // other weights, so that what is not loaded shows
                     const RunState state = load_run(engine, model, folder.path() / "step-00000003", world);
                     EXPECT_EQ(to_json(state), to_json(at_save));
                   });
      EXPECT_TRUE(loaded == original) << "saved on " << saved.ranks << (saved.shard ? " full_shard" : " no_shard")
                                      << ", loaded on " << layout.ranks << (layout.shard ? " full_shard" : " no_shard");
    }
  }
}

TEST(Checkpointing, WeightsAndMomentsAreBitEqualRightAfterLoadOnAnyNumberOfRanks) {
  save_and_load_everywhere(small(model::Architecture::llama, false), {at::kFloat, at::kFloat});
}

TEST(Checkpointing, TiedAndDoublePrecisionModelsComeBackBitEqual) {
  save_and_load_everywhere(small(model::Architecture::gpt2, true), {at::kDouble, at::kDouble});
}

TEST(Checkpointing, MastersOfBf16RunsComeBackBitEqualThoughTheModelFilesAreBf16) {
  const model::ModelConfig config = small(model::Architecture::llama, false);
  const model::Precision precision{at::kBFloat16, at::kFloat};
  const Folder folder;
  config::Settings settings;
  settings.out_dir = folder.path();
  settings.save.dtype = config::SaveDtype::bf16;
  const State original =
      on_ranks(config, precision, {2, true},
               [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int rank) {
                 engine.initialize(1);
                 train(engine, rank, 2);
                 save_run(engine, model, settings, {.step = 2}, world);
               });
  const State loaded = on_ranks(config, precision, {4, true},
                                [&](engine::Engine& engine, const model::Model& model, comm::Communicator& world, int) {
                                  load_run(engine, model, folder.path() / "step-00000002", world);
                                });
  EXPECT_TRUE(loaded == original);
}

}  // namespace
}  // namespace trireme::train
