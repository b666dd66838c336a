// free-transformer's YAML, Hydra's overrides and torchrun's options.
#include <fmt/format.h>

#include "dialect_test.h"

namespace trireme::dialects {
namespace {

std::string refused_words(const std::string& words) {
  try {
    read(words);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

constexpr const char* kGuide = R"(distributed:
  use_fsdp: true
  fsdp_sharding_strategy: "shard_grad_op"
  fsdp_backward_prefetch: "backward_post"
  fsdp_forward_prefetch: false
  fsdp_auto_wrap_policy: "transformer_auto_wrap"
  fsdp_min_num_params: 1000000
  fsdp_state_dict_type: "full_state_dict"
  fsdp_mixed_precision: true
  fsdp_param_dtype: "bfloat16"
  fsdp_reduce_dtype: "float32"
  fsdp_buffer_dtype: "float32"
training:
  batch_size: 64
  learning_rate: 2e-4
  gradient_checkpointing: true
  bf16: true
  gradient_clip_norm: 0.5
)";

TEST(FreeTransformer, TheGuidesFileCountsKeyByKey) {
  const ParsedSettings parsed = read_text("free.yaml", kGuide, "--devices 2");
  const Settings& s = parsed.settings;
  EXPECT_EQ(s.strategy, plan::Strategy::shard_grad_op);
  EXPECT_EQ(s.schedule.prefetch_backward, schedule::PrefetchBackward::post);
  EXPECT_FALSE(s.schedule.prefetch_forward);
  EXPECT_EQ(s.wrap.min_num_params, 1'000'000);
  EXPECT_EQ(s.precision.format, model::NumberFormat::bf16_mixed);
  EXPECT_EQ(s.train.micro_batch_size, 64);
  EXPECT_EQ(s.train.global_batch_size, 128);
  EXPECT_EQ(s.recompute.mode, schedule::Recompute::full);
  EXPECT_EQ(s.train.max_norm, 0.5);
  EXPECT_EQ(s.optimizer.lr, 2e-4);
  EXPECT_EQ(s.optimizer.betas, (std::array{0.9, 0.95}));  // its default
  EXPECT_EQ(parsed.accounts.size(), 16u);
}

TEST(FreeTransformer, TwoKeysOfOneSettingAreRefused) {
  for (const auto& [lines, setting] :
       {std::pair{"  warmup_steps: 2\n  warmup_ratio: 0.1\n  max_steps: 50\n", "train.lr_warmup_steps is set twice"},
        {"  grad_clip: 1.0\n  max_grad_norm: 0.3\n", "train.max_norm is set twice"},
        {"  save_every: 7\n  save_steps: 9\n", "train.save_interval is set twice"}})
    try {
      read_text("free.yaml", std::string("training:\n  batch_size: 4\n") + lines);
      ADD_FAILURE() << lines;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(setting));
    }
  EXPECT_EQ(read_text("free.yaml", "training:\n  grad_clip: 0.3\n  max_grad_norm: 3e-1\n").settings.train.max_norm,
            0.3);
}

TEST(FreeTransformer, TheBaselineHasAShapeAndTheFreeOneIsNotBuilt) {
  const std::string shape =
      "model: {vocab_size: 1000, hidden_dim: 128, num_layers: 4, num_heads: 4, num_kv_heads: 4, ffn_hidden_dim: 512, "
      "max_seq_len: 128}\ntraining: {beta1: 0.8, max_steps: 200, warmup_ratio: 0.1, min_lr_ratio: 0.5}\n";
  const Settings s = read_text("base.yaml", shape).settings;
  EXPECT_EQ(s.model.hidden_size, 128);
  EXPECT_EQ(s.model.head_dim, 32);
  EXPECT_EQ(s.strategy, plan::Strategy::no_shard);
  EXPECT_EQ(s.train.lr_warmup_steps, 20);
  EXPECT_EQ(s.train.min_lr, 1.5e-4);
  EXPECT_EQ(s.optimizer.betas, (std::array{0.8, 0.95}));
  EXPECT_EQ(read_text("base.yaml", shape, "--use-fsdp").settings.strategy, plan::Strategy::full_shard);
  const Settings free = read_text("free.yaml",
                                  "model: {hidden_dim: 128, latent_dim: 8, split_layer: 3}\n"
                                  "training: {beta_kl: 0.5, kappa_free_bits: 0.34657359027997264}\n")
                            .settings;
  EXPECT_EQ(free.model.free.latent_bits, 8);
  EXPECT_EQ(free.model.free.split_layer, 3);
  EXPECT_EQ(free.model.free.kl_weight, 0.5);
  EXPECT_DOUBLE_EQ(free.model.free.free_bits.value_or(0), 0.5);  // nats there, bits here
  EXPECT_FALSE(s.model.free.latent_bits);
  EXPECT_THAT(refusal_of("free.yaml", "model: {hidden_dim: 128, encoder_layers: 2}\n"), HasSubstr("one block"));
}

TEST(Hydra, AMeshSaysHowManyRanksThereAreQuotedOrNot) {
  for (const char* mesh : {"model.mesh_shape=[[4,2],[fsdp,tp]]", "model.mesh_shape=[[4,2],[\"fsdp\",\"tp\"]]"}) {
    const Settings s = read(std::string("model=gemma3_1b ") + mesh).settings;
    EXPECT_EQ(s.model.name, "gemma3_1b");
    EXPECT_EQ(s.mesh.shard, 4);
    EXPECT_EQ(s.mesh.tp, 2);
    EXPECT_EQ(s.devices, 8);
  }
  EXPECT_EQ(read("model.mesh_shape=[[8,1],[fsdp,tp]] num_nodes=2").settings.devices, 4);
  const Settings copies = read("model.mesh_shape=[[2,2],[dp,fsdp]]").settings;
  EXPECT_EQ(copies.strategy, plan::Strategy::hybrid_shard);
  EXPECT_EQ(read("model.mesh_shape=[[1],[fsdp]]").settings.devices, std::nullopt);  // one rank is what starts anyway
  EXPECT_THAT(refused_words("model.mesh_shape=[[4,2],[fsdp]]"), HasSubstr("[[4,2],[fsdp]] is no mesh"));
  EXPECT_THAT(refused_words("model.mesh_shape=[[4],[gpu]]"), HasSubstr("there is no axis gpu"));
}

TEST(Hydra, BatchesAreDividedOverTheDataRanks) {
  const Settings s =
      read(
          "model.mesh_shape=[[4,2],[fsdp,tp]] training.micro_batch_size=8 training.gradient_accumulation_steps=4 "
          "training.sync_gradients_every=4 training.mixed_precision=bf16 training.profile_communication=true")
          .settings;
  EXPECT_EQ(s.train.micro_batch_size, 2);
  EXPECT_EQ(s.train.global_batch_size, 32);
  EXPECT_EQ(s.accumulation, plan::Accumulation::local);
  EXPECT_EQ(s.precision.format, model::NumberFormat::bf16_mixed);
  EXPECT_EQ(s.profile.schedule, "outputs/tunix-grpo/2026-01-02/03-04-05/communication.json");
  EXPECT_THAT(refused_words("training.gradient_accumulation_steps=4 training.sync_gradients_every=2"),
              HasSubstr("training.sync_gradients_every 2 is not built yet"));
  EXPECT_THAT(refused_words("training.gradient_accumulation_steps=4 training.sync_gradients_every=3"),
              HasSubstr("does not divide"));
  EXPECT_THAT(refused_words("model.mesh_shape=[[4],[fsdp]] training.micro_batch_size=6"),
              HasSubstr("a batch of 6 cannot be divided over 4 data-parallel ranks"));
}

TEST(Hydra, LengthsAndWarmUpsFollowFromBatchesAndKeysOfRewardsAreOurs) {
  const Settings s =
      read(
          "training.num_batches=1000 training.num_epochs=2 training.train_fraction=0.5 optimizer.warmup_ratio=0.1 "
          "optimizer.learning_rate=3e-6 optimizer.beta1=0.8 optimizer.beta2=0.98 optimizer.max_grad_norm=0.1")
          .settings;
  EXPECT_EQ(s.train.max_steps, 1000);
  EXPECT_EQ(s.train.lr_warmup_steps, 100);
  EXPECT_EQ(s.optimizer.betas, (std::array{0.8, 0.98}));
  EXPECT_EQ(s.train.max_norm, 0.1);
  EXPECT_EQ(read("grpo.num_generations=4 model.mesh_shape=[[2,1],[fsdp,tp]]").settings.grpo.num_generations, 4);
  EXPECT_THAT(refused_words("+experiment=quick_test"), HasSubstr("there is no experiment quick_test"));
  const Folder folder;
  std::filesystem::create_directories(folder / "conf/experiment");
  folder.write("conf/experiment/itself.yaml", "experiment: itself\n");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder / "");
  EXPECT_THAT(refused_words("+experiment=itself"), HasSubstr("conf/experiment/itself.yaml includes itself"));
  std::filesystem::current_path(here);
}

// A folder of configuration as agent-tunix has it.
class TunixFolder {
 public:
  TunixFolder() {
    for (const char* group : {"conf/model", "conf/optimizer", "conf/grpo", "conf/training", "conf/experiment"})
      std::filesystem::create_directories(folder_ / group);
    folder_.write("conf/model/gemma3_1b.yaml",
                  "model_family: gemma3\nmodel_size: 1b\nlora_rank: 32\nmesh_shape: [[1, 4], [\"fsdp\", \"tp\"]]\n");
    folder_.write("conf/model/small.yaml",
                  "model_family: gemma3\nmodel_size: 270m\nlora_rank: 4\nmesh_shape: [[1], [fsdp]]\n");
    folder_.write("conf/optimizer/adamw.yaml", "learning_rate: 3e-6\nbeta1: 0.9\nwarmup_ratio: 0.1\n");
    folder_.write("conf/grpo/default.yaml", "num_generations: 4\nnum_iterations: 1\nbeta: 0.08\nepsilon: 0.2\n");
    folder_.write("conf/training/default.yaml",
                  "micro_batch_size: 4\nnum_batches: 100\nnum_epochs: 2\ntrain_data_dir: ./data/train\n"
                  "intermediate_checkpoint_dir: ./checkpoints\nwandb_project: mine\n");
    folder_.write(
        "conf/config.yaml",
        "defaults:\n  - model: gemma3_1b\n  - optimizer: adamw\n  - grpo: default\n  - training: default\n"
        "  - scheduler: not_here\n  - _self_\n\nproject_name: rewards\nseed: 7\ndebug: false\n"
        "training: {num_epochs: 3}\nhydra: {run: {dir: 'outputs/${project_name}/${now:%H}'}, callbacks: {}}\n");
    folder_.write("conf/experiment/quick.yaml",
                  "# @package _global_\n# for tests\ndefaults:\n  - override /model: small\n"
                  "training: {num_batches: 10}\nwandb_disabled: true\nexperiment_name: quick\ntags: [a, b]\n");
  }
  ParsedSettings read_file(const std::string& name, const std::string& command = "grpo") const {
    return read("--config " + (folder_ / name), command);
  }
  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
};

TEST(Hydra, AFileOfAGroupHasItsKeysBelowTheGroup) {
  const TunixFolder conf;
  EXPECT_THAT(conf.read_file("conf/config.yaml").files,
              testing::IsSupersetOf({conf.folder() / "conf/config.yaml", conf.folder() / "conf/optimizer/adamw.yaml"}));
  EXPECT_EQ(
      read("--train.max_steps 50 --config " + (conf.folder() / "conf/optimizer/adamw.yaml")).settings.optimizer.lr,
      3e-6);
  const Settings rewards = conf.read_file("conf/grpo/default.yaml").settings;
  EXPECT_EQ(rewards.grpo.num_generations, 4);
  EXPECT_EQ(rewards.train.epochs, std::nullopt);  // TRL's default would be 3
  const Settings model = conf.read_file("conf/model/gemma3_1b.yaml").settings;
  EXPECT_EQ(model.model.name, "gemma3_1b");
  EXPECT_EQ(model.devices, 4);
  conf.folder().write("conf/grpo/trl.yaml", "model_name_or_path: llama-5m\nnum_generations: 4\nmax_steps: 40\n");
  EXPECT_EQ(conf.read_file("conf/grpo/trl.yaml").settings.train.max_steps, 40);  // TRL's, in a folder of that name
  conf.folder().write("conf/training/own.yaml", "model: llama-5m\ntrain: {max_steps: 3}\n");
  EXPECT_TRUE(conf.read_file("conf/training/own.yaml", "pretrain").accounts.empty());
}

TEST(Hydra, DefaultsAreTheFilesOfGroupsBesideIt) {
  const TunixFolder conf;
  const ParsedSettings parsed = conf.read_file("conf/config.yaml");
  const Settings& s = parsed.settings;
  EXPECT_EQ(s.model.name, "gemma3_1b");
  EXPECT_EQ(s.lora.r, 32);
  EXPECT_EQ(s.optimizer.lr, 3e-6);
  EXPECT_EQ(s.grpo.num_generations, 4);
  EXPECT_EQ(s.train.max_steps, 300);  // batches of the group, epochs of the file itself
  EXPECT_EQ(s.train.lr_warmup_steps, 30);
  EXPECT_EQ(s.seed, 7);
  EXPECT_EQ(s.out_dir, "outputs/rewards/2026-01-02/03-04-05");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("training.wandb_project: ignored: project_name names the folder\n"));
}

TEST(Hydra, AnExperimentOverridesItsGroups) {
  const TunixFolder conf;
  const ParsedSettings parsed = conf.read_file("conf/experiment/quick.yaml");
  EXPECT_EQ(parsed.settings.lora.r, 4);
  EXPECT_EQ(parsed.settings.train.max_steps, 10);
  for (const char* told : {"wandb_disabled: ignored: metrics are always",
                           "experiment_name: ignored: out_dir says which", "tags: ignored: metrics are always"})
    EXPECT_THAT(accounts_of(parsed), HasSubstr(told));
}

TEST(Hydra, ItsScheduleBeginsAndEndsAtZero) {
  const std::string mesh = "model.mesh_shape=[[2,1],[fsdp,tp]] training.max_steps=15 ";
  const Folder folder;
  const std::string file =
      "--config " + folder.write("run.yaml", "training: {num_batches: 15}\noptimizer: {learning_rate: 3e-6}\n");
  for (const std::string& words : {mesh + "optimizer.learning_rate=3e-6", mesh + "optimizer.warmup_ratio=0.1",
                                   mesh + "scheduler.warmup_steps_ratio=0.1", file}) {
    const Settings s = read(words).settings;
    EXPECT_EQ(s.train.min_lr, 0) << words;
    EXPECT_EQ(s.lr_schedule.first_step, 0) << words;
  }
  EXPECT_EQ(read(mesh + "optimizer.warmup_ratio=0.1").settings.train.lr_warmup_steps, 1);  // Python's int(1.5)
  EXPECT_EQ(read(mesh + "optimizer.learning_rate=3e-6 train.min_lr=1e-7").settings.train.min_lr, 1e-7);
  for (const char* words : {"", "optimizer.lr=3e-6", "optimizer.learning_rate=3e-6 train.lr_decay=constant"}) {
    const Settings s = read(mesh + words).settings;  // Trireme's own rate, and another schedule
    EXPECT_EQ(s.train.min_lr, std::nullopt) << words;
    EXPECT_EQ(s.lr_schedule.first_step, 1) << words;
  }
}

TEST(Hydra, TheDistanceToTheReferenceIsTunixs) {
  const auto mode = [](const std::string& words, const char* command) {
    return read(words, command).settings.grpo.kl_loss_mode;
  };
  const std::string mesh = "model.mesh_shape=[[2,1],[fsdp,tp]] ";
  EXPECT_EQ(mode("", "grpo"), model::KlLoss::low_var_kl);
  EXPECT_EQ(mode(mesh, "grpo"), model::KlLoss::kl);
  EXPECT_EQ(mode(mesh + "grpo.kl_loss_mode=mse_kl", "grpo"), model::KlLoss::mse_kl);
  EXPECT_FALSE(read(mesh).given("grpo.kl_loss_mode"));  // other commands do not read it
}

TEST(Hydra, ARunLiesWhereHydraPutsIt) {
  const std::string mesh = "model.mesh_shape=[[2,1],[fsdp,tp]] ";
  const Settings s = read(mesh).settings;
  EXPECT_EQ(s.out_dir, "outputs/tunix-grpo/2026-01-02/03-04-05");
  EXPECT_EQ(s.launch.log_link, "train.log");
  EXPECT_EQ(s.train.loggers, std::vector<std::string>{"tensorboard"});
  EXPECT_EQ(read("training.wandb_project=sums training.profile_communication=true").settings.profile.schedule,
            "outputs/sums/2026-01-02/03-04-05/communication.json");
  EXPECT_EQ(read(mesh + "training.checkpoint_dir=out/x training.wandb_project=sums").settings.out_dir, "out/x");
  EXPECT_EQ(read(mesh + "hydra.run.dir=out/y").settings.out_dir, "out/y");
  EXPECT_EQ(read(mesh + "hydra.run.dir=outputs/${now:%Y}").settings.out_dir, s.out_dir);
  EXPECT_EQ(read(mesh + "--out_dir out/z --launch.log_link none").settings.out_dir, "out/z");
  EXPECT_THAT(refused_words(mesh + "training.wandb_project=../x"), HasSubstr("../x is no name of a folder"));
  EXPECT_EQ(read("--train.max_steps 3").settings.launch.log_link, std::nullopt);
}

TEST(Hydra, TunixsNamesOfMatricesAreOurs) {
  const auto targets = [](const std::string& pattern) {
    return read_text("conf.yaml",
                     "model:\n  mesh_shape: \"[[2,1],[fsdp,tp]]\"\n  lora_module_path: \"" + pattern + "\"\n")
        .settings.lora.target_modules;
  };
  EXPECT_EQ(targets(".*q_einsum|.*kv_einsum|.*attn_vec_einsum|.*gate_proj"),
            std::vector<std::string>{".*q_proj|.*(k_proj|v_proj)|.*o_proj|.*gate_proj"});
  EXPECT_EQ(targets(".*qkv_einsum"), std::vector<std::string>{".*(q_proj|k_proj|v_proj)"});
  EXPECT_THAT(refused_words("model.mesh_shape=[[2,1],[fsdp,tp]] model.lora_module_path=.*gating_einsum"),
              HasSubstr("names matrices by a part that is not known here"));
}

TEST(Trl, RatesWarmUpSavesAndEvaluationsAreThoseOfTransformers) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  const auto of = [&](const std::string& more) { return read_text("grpo.yaml", start + more, "", "grpo").settings; };
  EXPECT_EQ(of("").lr_schedule.first_step, 0);
  EXPECT_EQ(of("warmup_ratio: 0.03\n").train.lr_warmup_steps, 2);
  EXPECT_EQ(of("warmup_ratio: 0.5\nwarmup_steps: 3\n").train.lr_warmup_steps, 3);
  EXPECT_EQ(of("").train.save_interval, 500);
  EXPECT_EQ(of("save_strategy: \"no\"\nsave_steps: 7\n").train.save_interval, 0);
  EXPECT_THAT(refusal_of("grpo.yaml", start + "save_strategy: epoch\n", "", "grpo"), HasSubstr("not by epoch"));
  EXPECT_EQ(of("eval_strategy: steps\nlogging_steps: 20\n").eval.interval, 20);
}

TEST(Trl, DapoCountsTheTokensOfTheWholeRollout) {
  const auto of = [&](const std::string& more) {
    return read_text("grpo.yaml", "num_generations: 4\nmax_steps: 40\n" + more, "", "grpo").settings.grpo;
  };
  for (const char* loss : {"", "loss_type: dapo\n"}) {  // which is the default
    const train::GrpoSettings grpo = of(std::string(loss) + "steps_per_generation: 2\n");
    EXPECT_EQ(grpo.batch_size, 2 * *grpo.mini_batch_size);
    EXPECT_EQ(grpo.loss_agg_mode, train::LossAggregation::rollout_token_mean) << loss;
  }
}

TEST(Trl, SchedulesOfDeepSpeedAndPyTorchCountStepsAsTheyDo) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  for (const char* schedule : {"WarmupLR", "WarmupDecayLR", "OneCycleLR"})
    EXPECT_EQ(read_text("grpo.yaml", start, std::string("--train.lr_decay ") + schedule, "grpo")
                  .settings.lr_schedule.first_step,
              1)
        << schedule;
  const Folder folder;
  const std::string words =
      "--deepspeed_config " +
      folder.write("ds.json", R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto",
          "total_num_steps": "auto", "warmup_max_lr": "auto"}}})");
  const Settings s = read_text("grpo.yaml", start, words, "grpo").settings;
  EXPECT_EQ(s.train.lr_decay, optim::LrDecay::warmup_decay_lr);
  EXPECT_EQ(s.lr_schedule.first_step, 1);
}

TEST(Trl, SchedulesOfTransformersHaveTheirOptions) {
  const std::string start = "num_generations: 4\nmax_steps: 40\nlearning_rate: 1e-5\nlr_scheduler_type: ";
  const auto of = [&](const std::string& more) { return read_text("grpo.yaml", start + more, "", "grpo").settings; };
  const Settings cosine = of("cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.5, num_cycles: 0.5}\n");
  EXPECT_EQ(cosine.train.lr_decay, optim::LrDecay::cosine);
  EXPECT_DOUBLE_EQ(cosine.train.min_lr.value_or(0), 5e-6);
  EXPECT_EQ(of("cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 2e-7}\n").train.min_lr, 2e-7);
  EXPECT_EQ(of("cosine_with_min_lr\nlr_scheduler_kwargs: '{\"min_lr\": 3e-7}'\n").train.min_lr,
            3e-7);  // JSON as a text
  EXPECT_EQ(of("linear\nlr_scheduler_kwargs: '{}'\n").train.min_lr, 0);
  const Settings power = of("polynomial\nlr_scheduler_kwargs: {power: 2}\n");
  EXPECT_EQ(power.train.lr_decay, optim::LrDecay::polynomial);
  EXPECT_EQ(power.lr_schedule.power, 2);
  EXPECT_EQ(power.train.min_lr, 1e-7);  // transformers' lr_end
  EXPECT_EQ(of("inverse_sqrt\nlr_scheduler_kwargs: {timescale: 9}\n").lr_schedule.timescale, 9);
  EXPECT_EQ(of("linear\n").train.min_lr, 0);
  const auto refused = [&](const std::string& more) { return refusal_of("grpo.yaml", start + more, "", "grpo"); };
  EXPECT_THAT(refused("linear\nlr_scheduler_kwargs: '{\"min_lr\": }'\n"),
              HasSubstr("lr_scheduler_kwargs is not valid JSON: "));
  EXPECT_THAT(refused("cosine_with_min_lr\n"), HasSubstr("say min_lr or min_lr_rate in lr_scheduler_kwargs"));
  EXPECT_THAT(refused("cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-7, min_lr_rate: 0.1}\n"),
              HasSubstr("keep one of them"));
  EXPECT_THAT(refused("linear\nlr_scheduler_kwargs: {min_lr: 1e-7}\n"),
              HasSubstr("the schedule linear has no min_lr\n"));
  EXPECT_THAT(refused("cosine_with_restarts\n"), HasSubstr("there is no schedule cosine_with_restarts"));
}

TEST(Trl, OptimizersOfTransformersHaveWhatTheyRead) {
  const std::string start = "num_generations: 4\nmax_steps: 40\nadam_beta1: 0.8\nadam_epsilon: 1e-6\noptim: ";
  const auto of = [&](const std::string& name) {
    return read_text("grpo.yaml", start + name + "\n", "", "grpo").settings.optimizer;
  };
  for (const char* name : {"adamw_torch", "adamw_torch_fused", "paged_adamw_32bit"}) {
    EXPECT_EQ(of(name).name, optim::Rule::adamw) << name;
    EXPECT_EQ(of(name).eps, 1e-6) << name;
  }
  for (const char* name : {"adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"})
    EXPECT_EQ(of(name).name, optim::Rule::adamw8bit) << name;
  for (const char* name : {"lion_32bit", "paged_lion_32bit"}) {
    EXPECT_EQ(of(name).name, optim::Rule::lion) << name;
    EXPECT_EQ(of(name).betas, (std::array{0.8, 0.999})) << name;
    EXPECT_EQ(of(name).eps, std::nullopt) << name;
  }
  for (const char* name : {"sgd", "adafactor", "adagrad"})  // whose settings have none of these
    EXPECT_EQ(of(name).betas, std::nullopt) << name;
  for (const char* name : {"adamw_torch_4bit", "galore_adamw_8bit", "lion_8bit"})
    EXPECT_THAT(refusal_of("grpo.yaml", start + name + "\n", "", "grpo"), HasSubstr("there is no optimizer")) << name;
}

TEST(Trl, WithoutAStrategyARunIsEvaluatedAtItsEndAlone) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  const auto interval = [&](const std::string& more) {
    return read_text("grpo.yaml", start + more, "", "grpo").settings.eval.interval.value_or(0);
  };
  EXPECT_GT(interval(""), 40);
  EXPECT_GT(interval("eval_strategy: \"no\"\neval_steps: 5\n"), 40);
  EXPECT_EQ(interval("eval_strategy: steps\neval_steps: 5\n"), 5);
  EXPECT_EQ(read_text("grpo.yaml", start, "--eval.interval 7", "grpo").settings.eval.interval, 7);
  EXPECT_THAT(refusal_of("grpo.yaml", start + "eval_strategy: epoch\n", "", "grpo"),
              HasSubstr("evaluations come after so many steps, not by epoch\n  grpo.yaml:3: eval_strategy: epoch\n"
                        "  say eval_strategy: steps, and eval_steps"));
}

TEST(Trl, WarmUpNormAndKeptCheckpointsAreThoseOfTransformers) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  const auto of = [&](const std::string& more) { return read_text("grpo.yaml", start + more, "", "grpo"); };
  EXPECT_EQ(of("warmup_steps: 0.1\n").settings.train.lr_warmup_steps, 4);
  EXPECT_EQ(of("warmup_steps: 0\nwarmup_ratio: 0.5\n").settings.train.lr_warmup_steps, 20);
  for (const char* warmup : {"warmup_steps: 5\n", "warmup_ratio: 0.5\n"}) {
    const ParsedSettings none = of(std::string("lr_scheduler_type: constant\n") + warmup);
    EXPECT_EQ(none.settings.train.lr_warmup_steps, 0) << warmup;
    EXPECT_THAT(accounts_of(none), HasSubstr("ignored: lr_scheduler_type constant has no warm-up"));
    EXPECT_GT(of(std::string("lr_scheduler_type: constant_with_warmup\n") + warmup).settings.train.lr_warmup_steps, 0);
  }
  EXPECT_EQ(of("max_grad_norm: 0\n").settings.train.max_norm, std::nullopt);
  EXPECT_EQ(of("").settings.save.keep_last, 0);
  EXPECT_EQ(of("save_total_limit: 2\n").settings.save.keep_last, 2);
}

TEST(Trl, FieldsThatDecideNothingAreIgnoredAndOthersRefusedByName) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  const ParsedSettings parsed =
      read_text("grpo.yaml",
                start +
                    "tf32: true\ndataloader_num_workers: 4\ngradient_checkpointing: true\n"
                    "activation_checkpointing: false\nddp_timeout: 1800\nfsdp: \"\"\neval_delay: 0\n",
                "", "grpo");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("tf32: ignored: float32"));
  EXPECT_THAT(accounts_of(parsed), HasSubstr("gradient_checkpointing: ignored: activation_checkpointing counts"));
  const auto refused = [&](const std::string& more) { return refusal_of("grpo.yaml", start + more, "", "grpo"); };
  EXPECT_THAT(refused("deepspeed: ds.json\n"), HasSubstr("--deepspeed_config FILE"));
  EXPECT_THAT(refused("resume_from_checkpoint: out\n"), HasSubstr("--resume FOLDER"));
  EXPECT_THAT(refused("lr_scheduler_kwargs:\n  num_cycles: 2\n"), HasSubstr("is not built yet"));
}

TEST(Trl, OneMistakeIsToldOnce) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  EXPECT_EQ(refusal_of("grpo.yaml", start + "eval_strategy: steps\neval_steps: 0.5\n", "", "grpo"),
            "error: eval_steps wants a whole number, not 0.5\n  grpo.yaml:4: eval_steps: 0.5\n"
            "  a share of the run is not read: give steps");
  EXPECT_EQ(refusal_of("grpo.yaml", start + "fp16: true\nbf16: true\n", "", "grpo"),
            "error: bf16 and fp16 are both true\n  grpo.yaml:4: bf16: true\n  grpo.yaml:3: fp16: true\n"
            "  keep one of them");
}

TEST(Trl, ValuesThatAskForNothingAreComparedAsNumbers) {
  const std::string start = "num_generations: 4\nmax_steps: 40\n";
  for (const char* line : {"repetition_penalty: 1.00", "repetition_penalty: 1e0", "top_entropy_quantile: 1.00",
                           "entropy_coef: 0.00", "neftune_noise_alpha: 0.", "lr_scheduler_kwargs: {num_cycles: .5}"})
    EXPECT_EQ(refusal_of("grpo.yaml", start + line + "\n", "", "grpo"), "") << line;
  EXPECT_THAT(refusal_of("grpo.yaml", start + "repetition_penalty: 1.01\n", "", "grpo"), HasSubstr("is not built yet"));
}

TEST(Trl, AccelerateConfigIsAFileOrOneOfItsOwn) {
  const std::string start = "num_generations: 8\nmax_steps: 40\n";
  const auto of = [&](const std::string& more, const std::string& words = "") {
    return read_text("grpo.yaml", start + more, words, "grpo").settings;
  };
  using enum plan::Strategy;
  for (const auto& [name, strategy] :
       {std::pair{"zero1", zero1}, std::pair{"zero2", shard_grad_op}, std::pair{"zero3", full_shard},
        std::pair{"fsdp1", full_shard}, std::pair{"fsdp2", full_shard}, std::pair{"multi_gpu", no_shard}}) {
    const Settings s = of(std::string("accelerate_config: ") + name + "\n");
    EXPECT_EQ(s.strategy, strategy) << name;
    EXPECT_EQ(s.devices, 8) << name;
    EXPECT_EQ(s.train.max_norm, 1.0) << name;  // the trainer's defaults
    EXPECT_EQ(s.optimizer.lr, 1e-6) << name;
  }
  EXPECT_EQ(of("accelerate_config: single_gpu\nnum_processes: 4\n").devices, 1);  // as Accelerate starts NO
  EXPECT_EQ(of("accelerate_config: zero2\nnum_processes: 4\n").devices, 4);
  EXPECT_EQ(of("accelerate_config: zero2\n", "--devices 2").devices, 2);
  EXPECT_EQ(of("num_processes: 2\n").devices, 2);
  EXPECT_EQ(of("num_processes: 4\n").grpo.batch_size, 4);  // 8 answers on each of four ranks

  const Folder folder;
  const std::string file =
      folder.write("acc.yaml", "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: 'no'\n");
  const std::string path = "accelerate_config: " + file + "\n";
  EXPECT_EQ(of(path).devices, 2);
  EXPECT_EQ(of(path).precision.format, model::NumberFormat::bf16_mixed);  // the trainer's default
  EXPECT_EQ(of(path + "bf16: false\n").precision.format, model::NumberFormat::fp32_true);
  EXPECT_EQ(of(path + "fp16: true\n").precision.format, model::NumberFormat::fp16_mixed);
  EXPECT_THAT(refusal_of("grpo.yaml", start + "accelerate_config: zero4\n", "", "grpo"),
              HasSubstr("zero4 is no file, and none of TRL's configurations\n"));
}

TEST(Trl, MixturesOfDatasetsAreLikeOne) {
  const std::string start = "num_generations: 8\nmax_steps: 40\ndataset_name: trl-lib/tldr\n";
  const std::string one = "datasets:\n  - path: prompts.jsonl\n", two = one + "  - path: more\n    split: train\n";
  const ParsedSettings parsed = read_text("grpo.yaml", start + one + "env: {CUDA_VISIBLE_DEVICES: 0}\n", "", "grpo");
  EXPECT_EQ(parsed.settings.grpo.prompts, "prompts.jsonl");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("dataset_name: ignored: datasets counts\n"));
  EXPECT_THAT(accounts_of(parsed), HasSubstr("env.CUDA_VISIBLE_DEVICES: ignored: variables are set before"));
  EXPECT_THAT(refusal_of("grpo.yaml", start + two, "", "grpo"),
              HasSubstr("there is no dataset [prompts.jsonl, {path: more, split: train}]\n"));
  EXPECT_EQ(read_text("grpo.yaml", start + two, "--grpo.prompts p.jsonl", "grpo").settings.grpo.prompts, "p.jsonl");
}

TEST(Trl, AFileIsConvertedWithTheRewardsAndPromptsThatItLacks) {
  const ParsedSettings parsed = read_text("grpo.yaml",
                                          "num_generations: 4\nmax_steps: 40\nreward_funcs: [accuracy]\n"
                                          "dataset_name: trl-lib/tldr\n",
                                          "--reward.functions [exact] --grpo.prompts p.jsonl", "convert_config");
  EXPECT_THAT(given_yaml(parsed), testing::AllOf(HasSubstr("functions: [exact]"), HasSubstr("prompts: p.jsonl")));
}

TEST(Trl, RewardsOfPythonAreReplacedWithTheirWeights) {
  const std::string file =
      "num_generations: 4\nmax_steps: 40\nreward_funcs: [code, format]\nreward_weights: [1.0, 0.1]\n";
  const auto of = [&](const std::string& words) {
    return read_text("grpo.yaml", file, words + " --grpo.prompts p.jsonl", "grpo").settings.reward;
  };
  EXPECT_EQ(of("--reward.functions [exact]").weights, std::nullopt);
  EXPECT_EQ(of("--reward.functions [exact,number]").weights, (std::vector<std::string>{"1.0", "0.1"}));
  EXPECT_EQ(of("--reward.command [python3,judge.py]").functions, std::vector<std::string>{"command"});
  EXPECT_EQ(of("--reward.command [python3,judge.py]").weights, std::nullopt);
  EXPECT_EQ(
      read_text("grpo.yaml", "num_generations: 4\nmax_steps: 40\nreward_weights: [1.0, 0.1]\nreward_funcs: [a, b]\n",
                "--reward.command [python3,judge.py] --grpo.prompts p.jsonl", "grpo")
          .settings.reward.weights,
      std::nullopt);
  EXPECT_THAT(
      refusal_of("grpo.yaml", "num_generations: 14\nper_device_train_batch_size: 16\nmax_steps: 4\n", "", "grpo"),
      HasSubstr("; --devices says how many ranks there are"));
}

TEST(Trl, AWarmUpAsAShareNeedsNoLengthIfItsStepsAreGiven) {
  const std::string file = "num_generations: 4\nnum_train_epochs: 1\nwarmup_ratio: 0.1\n";
  EXPECT_EQ(read_text("grpo.yaml", file, "--train.lr_warmup_steps 7", "grpo").settings.train.lr_warmup_steps, 7);
  EXPECT_THAT(refusal_of("grpo.yaml", file, "", "grpo"), HasSubstr("or --train.max_steps or --train.lr_warmup_steps"));
  EXPECT_THAT(refusal_of("grpo.yaml", "num_generations: 4\nmax_steps: 4\nsave_steps: 0.1\n", "", "grpo"),
              HasSubstr("save_steps wants a whole number, not 0.1"));
  EXPECT_THAT(refusal_of("grpo.yaml", "num_generations: 4\nmax_steps: 4\nevaluation_strategy: steps\n", "", "grpo"),
              HasSubstr("its name is eval_strategy now"));
}

TEST(Trl, CommandsThatPlanAFileKnowItsTask) {
  const std::string file = "num_generations: 4\nmax_steps: 40\n";
  for (const char* command : {"plan", "explain memory", "explain schedule", "convert_config"})
    EXPECT_EQ(read_text("grpo.yaml", file, "", command).settings.task, train::Learning::rewards) << command;
  EXPECT_EQ(read_text("grpo.yaml", file + "accelerate_config: zero2\n", "", "plan").settings.task,
            train::Learning::rewards);
  EXPECT_THAT(given_yaml(read_text("grpo.yaml", file, "", "convert_config")), HasSubstr("task: rewards\n"));
}

TEST(Trl, FilesOfOtherTrainersAreRefused) {
  const std::string sft = "model_name_or_path: llama-5m\nlearning_rate: 1e-4\npacking: true\nmax_length: 512\n";
  for (const char* command : {"pretrain", "finetune_full", "finetune_lora", "finetune_dpo"})
    EXPECT_EQ(
        refusal_of("sft.yaml", sft, "", command),
        fmt::format("error: TRL's files are read for trireme grpo, not for trireme {}\n"
                    "  sft.yaml:1: model_name_or_path: llama-5m\n"
                    "  say the settings of TRL's sft and dpo by Trireme's names: learning_rate is optimizer.lr, and "
                    "so on (docs/coming-from.md)",
                    command));
  const std::string grpo = "num_generations: 4\nmax_steps: 40\n";
  for (const char* command : {"grpo", "explain config", "plan", "convert_config"})
    EXPECT_EQ(read_text("grpo.yaml", grpo, "", command).settings.grpo.num_generations, 4) << command;
  EXPECT_EQ(read_text("grpo.yaml", grpo, "--task rewards").settings.grpo.num_generations, 4);
  const std::string shared =
      "model_name_or_path: llama-5m\ndataset_name: alpaca.json\nlearning_rate: 1e-4\nnum_train_epochs: 1\n"
      "per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nbf16: true\noutput_dir: out/x\n";
  for (const char* command : {"explain config", "explain memory", "plan", "convert_config"})
    for (const char* more : {"use_peft: true\nlora_r: 8\n", "beta: 0.1\n", "packing: true\n", "loss_type: sigmoid\n"})
      EXPECT_THAT(refusal_of("dpo.yaml", shared + more, "", command),
                  testing::AllOf(HasSubstr("and this one has none of the keys by which those files are known\n"),
                                 HasSubstr("if it is of trl grpo, say --task rewards; else say the settings")))
          << command << " " << more;
  for (const char* more : {"loss_type: dapo\n", "mask_truncated_completions: true\n", "top_entropy_quantile: 1.0\n",
                           "entropy_coef: 0.0\n", "use_bias_correction_kl: true\n"})
    EXPECT_EQ(refusal_of("grpo.yaml", shared + more, "", "plan"), "") << more;
  EXPECT_EQ(read_text("grpo.yaml", shared, "", "grpo").settings.train.epochs, 1);
  EXPECT_EQ(read_text("grpo.yaml", shared, "--task rewards", "plan").settings.train.epochs, 1);
}

TEST(Torchrun, ItsOptionsAreThoseOfLaunching) {
  const Settings s =
      read("--nnodes 2:4 --rdzv-endpoint a:1 --nproc-per-node 3 --rdzv_backend c10d --max-restarts=2").settings;
  EXPECT_EQ(s.launch.nnodes, "2:4");
  EXPECT_EQ(s.launch.rdzv_endpoint, "a:1");
  EXPECT_EQ(s.devices, 3);
  EXPECT_EQ(s.launch.max_restarts, 2);
}

TEST(Torchrun, TheLocalRankOfALauncherHasNoEffectAndIsRefusedWithoutOne) {
  for (const char* words : {"--local_rank=0", "--local-rank=0", "--local_rank -1"}) {
    const ParsedSettings parsed = read(words);
    ASSERT_EQ(parsed.accounts.size(), 1u) << words;
    EXPECT_TRUE(parsed.accounts[0].is_ignored) << words;
  }
  EXPECT_THAT(refused_words("--local_rank=1"),
              HasSubstr("local_rank 1 is for a rank that a launcher started, but RANK is not set"));
  EXPECT_THAT(refused_words("--local_rank=first"), HasSubstr("local_rank wants a number, not first"));
  const Systems launched({.world_size = [](const Reading&) { return 2; }, .was_launched = [] { return true; }});
  const ParsedSettings parsed = parse_settings(
      split("--local_rank=1 --seed 3"),
      {.command = "pretrain", .others = &launched, .environment = [](const char*) -> const char* { return nullptr; }});
  EXPECT_EQ(parsed.settings.seed, 3);
  EXPECT_EQ(parsed.accounts.size(), 1u);
}

TEST(Dialects, AFileOfTriremeStaysTriremesAndANameDecidesWhereContentDoesNot) {
  const ParsedSettings own = read_text("own.yaml", "train: {max_steps: 3}\nmodel: llama-5m\n");
  EXPECT_TRUE(own.accounts.empty());
  EXPECT_THAT(
      refusal_of("a.yaml", "seed: 3\n", "--config_dialect acelerate"),
      HasSubstr("there is no dialect acelerate\n  --config_dialect takes trireme, deepspeed, accelerate, litgpt"));
  EXPECT_EQ(read_text("ds.txt", R"({"seed": 7})", "--config_dialect deepspeed").settings.seed, 7);
  EXPECT_EQ(read_text("ds.txt", R"({"seed": 7, "train_batch_size": 2})", "").settings.train.global_batch_size, 2);
}

TEST(Dialects, AKeyOfDeepSpeedDoesNotMakeAFileOfTriremeJson) {
  const auto refused = [](const std::string& more) { return refusal_of("own.yaml", "model: llama-5m\n" + more); };
  EXPECT_EQ(refused("bf16: true\n"),
            "error: unknown setting bf16\n  own.yaml:2: bf16: true\n  the number format is precision bf16-mixed");
  EXPECT_EQ(refused("fp16:\n  enabled: true\n"),
            "error: unknown setting fp16\n  own.yaml:2: fp16:\n  the number format is precision 16-mixed");
  EXPECT_THAT(refused("gradient_accumulation_steps: 4\n"),
              HasSubstr("unknown setting gradient_accumulation_steps\n  own.yaml:2: gradient_accumulation_steps: 4\n"
                        "  accumulation follows from train.global_batch_size"));
  EXPECT_THAT(refused("zero_optimization:\n  stage: 2\n"),
              HasSubstr("zero_optimization is a key of DeepSpeed; in its files, which are JSON, it becomes strategy"));
  EXPECT_EQ(read_text("ds.txt", "\n {\"train_batch_size\": 2}").settings.train.global_batch_size, 2);
}

TEST(Dialects, AFileIsReadWithTheRanksThatAnyOtherFileGives) {
  const Folder folder;
  const std::string counts =
      R"("train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "train_batch_size": )";
  const std::string of_8 = " --config " + folder.write("8.json", "{" + counts + "8}"),
                    of_16 = " --config " + folder.write("16.json", "{" + counts + "16}"),
                    two = " --config " + folder.write("two.yaml", "distributed_type: MULTI_CPU\nnum_processes: 2\n"),
                    tensors = " --config " + folder.write("tp.json", R"({"tensor_parallel": {"autotp_size": 2}})");
  for (const char* command : {"pretrain", "explain config", "convert_config"})
    for (const std::string& words : {of_8 + two, two + of_8}) {
      const Settings s = read(words, command).settings;
      EXPECT_EQ(s.train.global_batch_size, 8) << words;
      EXPECT_EQ(s.devices, 2) << words;
    }
  EXPECT_THROW(read(of_16 + two), UsageError);
  EXPECT_EQ(read(of_16 + " model.mesh_shape=[[4],[fsdp]]").settings.train.global_batch_size, 16);
  EXPECT_EQ(read(of_8 + " --devices 4" + tensors).settings.train.global_batch_size, 8);
}

TEST(Dialects, MistakesOfSeveralFilesAreToldOnce) {
  const Folder folder;
  const std::string one = folder.write("a.json", R"({"train_batch_size": 0})"),
                    two = folder.write("b.yaml", "distributed_type: MULTI_CPU\nnum_processes: 0\n");
  const std::string said = refused_words("--config " + one + " --config " + two);
  for (const char* sentence : {"train_batch_size must be at least 1", "num_processes 0 is not a number of ranks"}) {
    const size_t at = said.find(sentence);
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find(sentence, at + 1), std::string::npos) << said;
  }
}

TEST(Dialects, SharesAreOfTheRateAndLengthThatLaterFilesGive) {
  const Folder folder;
  const std::string cosine =
      " --config " + folder.write("ds.json", R"({"optimizer": {"type": "AdamW", "params": {"lr": 4e-4}}, "scheduler":
          {"type": "WarmupCosineLR", "params": {"total_num_steps": 20, "warmup_min_ratio": 0.5,
          "cos_min_ratio": 0.25}}})");
  const std::string free =
      " --config " + folder.write("free.yaml",
                                  "model: {hidden_dim: 128}\ntraining: {learning_rate: 4e-4, max_steps: 200, "
                                  "warmup_ratio: 0.1, min_lr_ratio: 0.25}\n");
  const std::string own = " --config " + folder.write("own.yaml", "optimizer: {lr: 1e-3}\ntrain: {max_steps: 50}\n"),
                    theirs = " --config " + folder.write("litgpt.yaml",
                                                         "logger_name: csv\noptimizer: {lr: 1e-3}\n"
                                                         "train: {max_steps: 50}\n");
  for (const std::string& later : {own, theirs, std::string(" --optimizer.lr 1e-3 --train.max_steps 50")}) {
    const Settings one = read(cosine + later).settings, two = read(free + later).settings;
    EXPECT_DOUBLE_EQ(one.train.min_lr.value_or(0), 2.5e-4) << later;
    EXPECT_DOUBLE_EQ(one.lr_schedule.warmup_from, 5e-4) << later;
    EXPECT_DOUBLE_EQ(two.train.min_lr.value_or(0), 2.5e-4) << later;
    EXPECT_EQ(two.train.lr_warmup_steps, 5) << later;
  }
  EXPECT_DOUBLE_EQ(read(own + cosine).settings.train.min_lr.value_or(0), 1e-4);
}

TEST(Dialects, OptionsThatNameAFileReadIt) {
  const Folder folder;
  const std::string json = folder.write("ds.json", R"({"zero_optimization": {"stage": 1}})");
  EXPECT_EQ(read("--deepspeed --deepspeed_config " + json).settings.strategy, plan::Strategy::zero1);
  EXPECT_EQ(read("--deepspeed " + json).settings.strategy, plan::Strategy::zero1);
}

}  // namespace
}  // namespace trireme::dialects
