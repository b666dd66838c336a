#include <fmt/format.h>

#include "dialect_test.h"

namespace trireme::dialects {
namespace {

std::string refused(const std::string& json, const std::string& words = "") {
  return refusal_of("ds.json", json, words);
}
Settings of(const std::string& json, const std::string& words = "") {
  return read_text("ds.json", json, words).settings;
}

TEST(DeepSpeed, TwoOfThreeBatchSizesGiveTheThirdOnTheRanksThatStart) {
  const Settings b_m = of(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", "--devices 4");
  EXPECT_EQ(b_m.train.global_batch_size, 64);
  EXPECT_EQ(b_m.train.micro_batch_size, 4);
  const Settings b_g = of(R"({"train_batch_size": 64, "gradient_accumulation_steps": 4})", "--devices 4");
  EXPECT_EQ(b_g.train.micro_batch_size, 4);
  const Settings m_g =
      of(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})", "--devices 4 --mesh.tp 2");
  EXPECT_EQ(m_g.train.global_batch_size, 16);  // tensor parallel ranks read the same sequences
  EXPECT_EQ(of(R"({"train_batch_size": 64})", "--devices 4").train.micro_batch_size, 16);
  EXPECT_EQ(of(R"({"train_micro_batch_size_per_gpu": 2})", "--devices 4").train.global_batch_size, 8);
}

TEST(DeepSpeed, MissingKeysOfAnOptimizerHaveItsDefaultsThere) {
  const auto optimizer = [](const std::string& type, const std::string& params = "", const std::string& words = "") {
    return of(R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}}", words).optimizer;
  };
  EXPECT_EQ(optimizer("Lion").betas, (std::array{0.9, 0.999}));
  EXPECT_EQ(optimizer("Lion", R"("betas": [0.9, 0.98])").betas, (std::array{0.9, 0.98}));
  EXPECT_EQ(optimizer("Lion", R"("betas": "auto")").betas, std::nullopt);
  EXPECT_EQ(optimizer("Lion", "", "--optimizer SGD").betas, std::nullopt);  // which has none
  EXPECT_EQ(optimizer("Adagrad").lr, 0.01);
  EXPECT_EQ(optimizer("Adagrad", R"("lr": 0.5)").lr, 0.5);
  EXPECT_EQ(optimizer("Adagrad", "", "--optimizer AdamW").lr, 0.001);
  EXPECT_EQ(of(R"({"optimizer": {"type": "Adagrad"}, "scheduler": {"type": "WarmupDecayLR",
                   "params": {"total_num_steps": 10}}})")
                .optimizer.lr,
            0.001);
  const optim::OptimizerSettings muon = optimizer("Muon"), one_rate = optimizer("Muon", R"("lr": 0.1)");
  EXPECT_EQ(muon.lr, 0.02);
  EXPECT_EQ(muon.adam_lr, 3e-4);
  EXPECT_EQ(muon.betas, (std::array{0.9, 0.95}));
  EXPECT_EQ(muon.eps, 1e-10);
  EXPECT_EQ(one_rate.lr, 0.1);
  EXPECT_EQ(one_rate.adam_lr, std::nullopt);  // as lr
}

TEST(DeepSpeed, SchedulersThatSetRatesSetThoseOfAllParameters) {
  const auto of_muon = [](const std::string& type, const std::string& with, const std::string& params = "") {
    return of(R"({"optimizer": {"type": "Muon", "params": {)" + params + R"(}}, "scheduler": {"type": ")" + type +
              R"(", "params": {)" + with + "}}}")
        .optimizer;
  };
  const std::string given = R"("muon_lr": 0.1, "adam_lr": 0.2)";
  for (const std::string& params : {std::string(), given}) {
    const std::vector<std::tuple<std::string, std::string, double>> schedulers = {
        {"WarmupLR", R"("warmup_max_lr": 0.01)", 0.01},
        {"WarmupDecayLR", R"("total_num_steps": 10, "warmup_num_steps": 2)", 0.001},
        {"LRRangeTest", R"("lr_range_test_min_lr": 0.01)", 0.01},
        {"LRRangeTest", R"("lr_range_test_step_size": 4)", 0.001},
        {"OneCycle", R"("cycle_min_lr": 0.001, "cycle_max_lr": 0.01, "cycle_momentum": false)", 0.01}};
    for (const auto& [type, with, rate] : schedulers) {
      EXPECT_EQ(of_muon(type, with, params).lr, rate) << type << " " << params;
      EXPECT_EQ(of_muon(type, with, params).adam_lr, std::nullopt) << type << " " << params;  // as lr
    }
  }
  const std::string warmup = R"("total_num_steps": 10, "warmup_num_steps": 2)";
  for (const std::string type : {"WarmupLR", "WarmupCosineLR"}) {  // these rise to the optimizer's own rates
    const std::string with = type == "WarmupLR" ? R"("warmup_num_steps": 2)" : warmup;
    EXPECT_EQ(of_muon(type, with).adam_lr, 3e-4) << type;
    EXPECT_EQ(of_muon(type, with, given).adam_lr, 0.2) << type;
  }
}

TEST(DeepSpeed, ValuesThatAskForNothingAreNotRefused) {
  const ParsedSettings parsed =
      read_text("ds.json", R"({"fp16": null, "steps_per_print": "inf", "optimizer": {"type": "AdamW", "params": {
                "fp32_optimizer_states": true, "eps_inside_sqrt": false, "ns_method": "gram", "dampening": 0.00}}})");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("fp16: ignored: it is empty\n"));
  EXPECT_GT(parsed.settings.train.log_interval, 1'000'000);
  EXPECT_THAT(accounts_of(parsed), HasSubstr("optimizer.params.dampening: ignored: it is off\n"));
  EXPECT_GT(of(R"({"steps_per_print": "Infinity"})").train.log_interval, 1'000'000);
  EXPECT_THAT(refused(R"({"steps_per_print": "often"})"),
              HasSubstr("steps_per_print wants a whole number, not often\n"));
  EXPECT_THAT(refused(R"({"optimizer": {"type": "AdamW", "params": {"fp32_optimizer_states": false}}})"),
              HasSubstr("moments are kept in fp32 here\n"));
  EXPECT_THAT(refused(R"({"train_batch_size": 8, "fp17": null})"), HasSubstr("DeepSpeed has no key fp17"));
}

TEST(DeepSpeed, BatchSizesThatContradictEachOtherAreRefusedWithBothLines) {
  EXPECT_EQ(refused("{\n\"train_batch_size\": 64,\n\"train_micro_batch_size_per_gpu\": 4,\n"
                    "\"gradient_accumulation_steps\": 2\n}",
                    "--devices 4"),
            "error: train_batch_size 64 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 2 x 4 "
            "data-parallel ranks\n  ds.json:2: \"train_batch_size\": 64,\n"
            "  ds.json:4: \"gradient_accumulation_steps\": 2\n"
            "  give two of the three, or another number of --devices");
  EXPECT_THAT(refused(R"({"train_batch_size": 65, "gradient_accumulation_steps": 4})", "--devices 4"),
              HasSubstr("train_batch_size 64 or 80 fits"));
  EXPECT_THAT(refused(R"({"train_batch_size": 0})"), HasSubstr("train_batch_size must be at least 1, not 0"));
}

TEST(DeepSpeed, StagesAreStrategiesAndNumbersMayBeWrittenAsFloats) {
  const char* strategies[] = {"no_shard", "zero1", "shard_grad_op", "full_shard"};
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(config::name_of(of("{\"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}}").strategy),
              strategies[stage]);
  EXPECT_EQ(of(R"({"zero_optimization": true})").strategy, plan::Strategy::zero1);
  EXPECT_EQ(of(R"({"train_batch_size": 4})").strategy, plan::Strategy::no_shard);  // DeepSpeed's default
  EXPECT_EQ(of(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}})").wrap.min_num_params, 500'000'000);
  EXPECT_EQ(of(R"({"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}})").schedule.limit_unsharded,
            1'000'000'000);
}

TEST(DeepSpeed, GroupsOfMiCSAndHpzAreHybrid) {
  const Settings s = of(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2}})", "--devices 4");
  EXPECT_EQ(s.strategy, plan::Strategy::hybrid_shard);
  EXPECT_EQ(s.mesh.shard, 2);
  EXPECT_EQ(of(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})", "--devices 4").strategy,
            plan::Strategy::full_shard);
  EXPECT_THAT(refused(R"({"zero_optimization": {"stage": 2, "mics_shard_size": 2}})", "--devices 4"),
              HasSubstr("it needs stage 3"));
  EXPECT_EQ(refused(R"({"zero_optimization": {"mics_shard_size": -1}})"), "");
}

TEST(DeepSpeed, ItsAdamIsAdamWAndHasNoDecayByDefault) {
  const Settings s = of(R"({"optimizer": {"type": "Adam", "params": {"lr": 2e-4}}})");
  EXPECT_EQ(s.optimizer.name, optim::Rule::adamw);
  EXPECT_EQ(s.optimizer.lr, 2e-4);
  EXPECT_EQ(s.optimizer.weight_decay, 0);
  EXPECT_EQ(s.train.lr_decay, optim::LrDecay::constant);  // no scheduler
  EXPECT_EQ(of(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})").optimizer.name,
            optim::Rule::adam);
  EXPECT_THAT(refused(R"({"optimizer": {"type": "OneBitAdam"}})"), HasSubstr("momentum is not compressed here"));
  EXPECT_THAT(refused(R"({"optimizer": {"type": "AdamW", "params": {"amsgrad": true}}})"),
              HasSubstr("without AMSGrad"));
}

TEST(DeepSpeed, ParametersThatItOrWeCannotHaveAreRefused) {
  const auto with = [](const std::string& parameter) {
    return R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-4, )" + parameter + "}}}";
  };
  EXPECT_THAT(refused(with(R"("bias_correction": false)")),
              HasSubstr("moments are always corrected for their bias here\n"));
  EXPECT_EQ(refused(with(R"("bias_correction": true)")), "");
  EXPECT_THAT(refused(with(R"("max_grad_norm": 1.0)")),
              testing::AllOf(HasSubstr("DeepSpeed's optimizers have no max_grad_norm\n"),
                             HasSubstr("\n  say gradient_clipping")));
}

TEST(DeepSpeed, ItsSchedulersAreSchedulesOfTheirNames) {
  const Settings s = of(R"({"optimizer": {"type": "Lamb", "params": {"lr": 1e-4, "max_coeff": 5}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-6, "warmup_max_lr": 2e-4,
      "warmup_num_steps": 10, "total_num_steps": 50, "warmup_type": "linear"}}})");
  EXPECT_EQ(config::name_of(s.train.lr_decay), "WarmupDecayLR");
  EXPECT_EQ(s.optimizer.lr, 2e-4);  // the scheduler's counts
  EXPECT_EQ(s.train.lr_warmup_steps, 10);
  EXPECT_EQ(s.train.max_steps, 50);
  EXPECT_EQ(s.optimizer.trust_bounds, (std::array{0.01, 5.0}));
  EXPECT_EQ(
      config::name_of(
          of(R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_size": 5}}})").train.lr_decay),
      "LRRangeTest");
  EXPECT_THAT(refused(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4}}})"),
              HasSubstr("say \"cycle_momentum\": false in scheduler.params"));
  EXPECT_THAT(refused(R"({"scheduler": {"type": "CosineLR"}})"), HasSubstr("DeepSpeed has no scheduler CosineLR"));
}

TEST(DeepSpeed, Fp16HasItsLossScale) {
  const auto p = read_text("ds.json", R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12,
      "loss_scale_window": 500, "hysteresis": 3, "min_loss_scale": 2}})");
  const std::string told = given_yaml(p);
  for (const char* line : {"16-mixed", "scale_rule: deepspeed", "initial_loss_scale: 4096", "loss_scale_window: 500",
                           "loss_scale_hysteresis: 3", "min_loss_scale: 2"})
    EXPECT_THAT(told, HasSubstr(line));
  EXPECT_THAT(given_yaml(read_text("ds.json", R"({"fp16": {"enabled": true}})")),
              HasSubstr("initial_loss_scale: 65536"));
  EXPECT_THAT(given_yaml(read_text("ds.json", R"({"fp16": {"enabled": true, "loss_scale": 128}})")),
              HasSubstr("loss_scale: 128"));
}

TEST(DeepSpeed, ClippingAtZeroIsNoClippingAndItsDefaultIsOne) {
  EXPECT_FALSE(of(R"({"gradient_clipping": 0.0})").train.max_norm.has_value());
  EXPECT_EQ(of(R"({"train_batch_size": 2})").train.max_norm, 1.0);
}

TEST(DeepSpeed, AutoLeavesTheRunsOwnSetting) {
  const ParsedSettings parsed = read_text("ds.json", R"({"train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
      "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
      "weight_decay": "auto"}}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}})",
                                          "--optimizer.lr 5e-4 --train.micro_batch_size 2");
  EXPECT_EQ(parsed.settings.optimizer.lr, 5e-4);
  EXPECT_EQ(parsed.settings.train.micro_batch_size, 2);
  EXPECT_THAT(accounts_of(parsed), HasSubstr("optimizer.params.lr: optimizer.lr is left\n"));
  const train::TrainSettings whole = of(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})").train;
  EXPECT_EQ(whole.global_batch_size, 64);
  EXPECT_EQ(whole.micro_batch_size, train::TrainSettings().micro_batch_size);
  EXPECT_THAT(refused(R"({"zero_optimization": {"stage": "auto"}})"),
              HasSubstr("DeepSpeed takes no auto for zero_optimization.stage"));
}

TEST(DeepSpeed, AutoOfKeysThatItFillsInNowhereIsItsDefault) {
  const ParsedSettings parsed = read_text("ds.json", R"({"zero_optimization": {"stage": 3, "overlap_comm": "auto",
      "stage3_gather_16bit_weights_on_model_save": "auto", "sub_group_size": "auto", "zero_quantized_weights": "auto",
      "stage3_max_live_parameters": "auto", "offload_optimizer": {"device": "auto", "pin_memory": "auto"}},
      "fp16": {"enabled": true, "loss_scale": "auto", "initial_scale_power": "auto"}})");
  const ParsedSettings plain =
      read_text("ds.json", R"({"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}})");
  EXPECT_EQ(to_yaml(parsed.settings), to_yaml(plain.settings));
  EXPECT_THAT(accounts_of(parsed),
              HasSubstr("zero_optimization.offload_optimizer.device: ignored: DeepSpeed drops auto, so its default "
                        "counts\n"));
  EXPECT_THAT(refused(R"({"activation_checkpointing": {"number_checkpoints": "auto"}})"),
              HasSubstr("DeepSpeed takes no auto for"));
}

TEST(DeepSpeed, KeysThatBeginWithAnUnderscoreAreComments) {
  const ParsedSettings parsed = read_text(
      "ds.json", R"({"_comment": "for Llama", "seed": 7, "zero_optimization": {"_why": {"a": 1}, "stage": 2}})");
  EXPECT_EQ(parsed.settings.seed, 7);
  EXPECT_THAT(accounts_of(parsed), HasSubstr("_comment: ignored: it begins with _, so it is a comment\n"));
}

TEST(DeepSpeed, NoLiveParametersReleaseEachUnitAtOnce) {
  for (const char* key : {"stage3_max_live_parameters", "max_live_parameters"})
    EXPECT_EQ(of(std::string(R"({"zero_optimization": {"stage": 3, ")") + key + "\": 0}}").schedule.limit_unsharded, 1)
        << key;
}

TEST(DeepSpeed, AutoLeavesWhatACommandHasByItself) {
  const auto tuned = [](const std::string& json) {
    const Folder folder;
    return parse_settings(split("--config " + folder.write("ds.json", json) + " --devices 2"),
                          {.values = {{"optimizer.lr", "2e-5"},
                                      {"optimizer.weight_decay", "0.3"},
                                      {"train.lr_warmup_steps", "10"},
                                      {"train.max_norm", "0.5"},
                                      {"train.global_batch_size", "16"}},
                           .command = "finetune_full",
                           .others = &systems_of_tests(),
                           .environment = [](const char*) -> const char* { return nullptr; }})
        .settings;
  };
  const std::string optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}})";
  const std::string warmup = R"("warmup_min_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto")";
  for (const char* type : {"WarmupLR", "WarmupDecayLR"}) {
    const Settings s = tuned("{\"gradient_clipping\": \"auto\", " + optimizer + R"(, "scheduler": {"type": ")" + type +
                             R"(", "params": {"warmup_max_lr": "auto", )" + warmup + "}}}");
    EXPECT_EQ(s.optimizer.lr, 2e-5) << type;
    EXPECT_EQ(s.optimizer.weight_decay, 0.3) << type;
    EXPECT_EQ(s.train.lr_warmup_steps, 10) << type;
    EXPECT_EQ(s.train.max_norm, 0.5) << type;
  }
  EXPECT_EQ(tuned(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 5}}})").optimizer.lr,
            0.001);
  EXPECT_EQ(tuned("{" + optimizer + R"(, "scheduler": {"type": "WarmupDecayLR"}})").optimizer.lr, 2e-5);
  const Settings plain = tuned("{" + optimizer + "}");  // the run's own schedule, as transformers makes it
  EXPECT_EQ(plain.train.lr_decay, optim::LrDecay::cosine);
  EXPECT_EQ(plain.train.lr_warmup_steps, 10);
}

TEST(DeepSpeed, AutoIsNoWarmUpIfTheRunSaysNone) {
  const auto steps = [](const std::string& number, const std::string& words = "") {
    return of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": )" + number + "}}}", words)
        .train.lr_warmup_steps;
  };
  EXPECT_EQ(steps(R"("auto")"), 0);
  EXPECT_EQ(steps(R"("auto")", "--train.lr_warmup_steps 7"), 7);
  EXPECT_EQ(steps("20"), 20);
  EXPECT_EQ(of(R"({"scheduler": {"type": "WarmupLR"}})").train.lr_warmup_steps, std::nullopt);  // DeepSpeed's 1000
}

TEST(DeepSpeed, AutoLeavesTheWholeBatchBesideAMicroBatch) {
  const auto whole = [](const std::string& more, const std::string& words = "") {
    return of("{\"train_micro_batch_size_per_gpu\": 2" + more + "}", "--devices 2 " + words).train.global_batch_size;
  };
  EXPECT_EQ(whole(""), 4);
  EXPECT_EQ(whole(R"(, "gradient_accumulation_steps": "auto")"), train::TrainSettings().global_batch_size);
  EXPECT_EQ(whole(R"(, "train_batch_size": "auto")"), train::TrainSettings().global_batch_size);
  EXPECT_EQ(whole(R"(, "train_batch_size": "auto", "gradient_accumulation_steps": 4)"), 16);
  EXPECT_EQ(of(R"({"train_batch_size": 32, "gradient_accumulation_steps": "auto"})").train.micro_batch_size,
            train::TrainSettings().micro_batch_size);
}

TEST(DeepSpeed, SettingsOnTheCommandLineCountMore) {
  const char* json =
      R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "steps_per_print": 7})";
  const Folder folder;
  const std::string path = folder.write("ds.json", json);
  const Settings s = read("--strategy zero1 --config " + path + " --train.log_interval 3").settings;
  EXPECT_EQ(s.strategy, plan::Strategy::zero1);
  EXPECT_EQ(s.train.log_interval, 3);
  const std::string own = folder.write("own.yaml", "train: {log_interval: 9}\n");
  EXPECT_EQ(read("--config " + own + " --config " + path).settings.train.log_interval, 7);  // files in their order
  EXPECT_EQ(read("--config " + path + " --config " + own).settings.train.log_interval, 9);
}

TEST(DeepSpeed, WhatLeavesDependsOnTheStage) {
  using schedule::Tier;
  const auto offload = [](const std::string& zero) {
    const Folder folder;
    return read("--config " + folder.write("ds.json", "{\"zero_optimization\": " + zero + "}")).settings.offload;
  };
  const auto one =
      offload(R"({"stage": 1, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}})");
  EXPECT_EQ(one, (schedule::OffloadSettings{.optimizer = Tier::cpu, .master = Tier::cpu}));
  const auto two =
      offload(R"({"offload_optimizer": {"device": "nvme", "nvme_path": "/scratch", "ratio": 0.5}, "stage": 2})");
  EXPECT_EQ(
      two,
      (schedule::OffloadSettings{
          .optimizer = Tier::disk, .master = Tier::disk, .gradients = Tier::disk, .ratio = 0.5, .path = "/scratch"}));
  const auto three =
      offload(R"({"stage": 3, "offload_param": {"device": "cpu", "nvme_path": "/x", "buffer_count": 5}})");
  EXPECT_EQ(three, (schedule::OffloadSettings{.parameters = Tier::cpu}));
}

TEST(DeepSpeed, TheDepthOfItsQueueIsHowManyBlocksADiskMoves) {
  const auto buffers = [](const std::string& device) {
    return of(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": ")" + device +
              R"("}}, "aio": {"queue_depth": 32}})")
        .offload.buffers;
  };
  EXPECT_EQ(buffers("nvme"), 32);
  EXPECT_EQ(buffers("cpu"), schedule::OffloadSettings{}.buffers);
}

TEST(DeepSpeed, OneFolderAndOneRatioAreOfAllThatLeaves) {
  EXPECT_THAT(refused(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3},
                          "offload_param": {"device": "cpu"}}})"),
              testing::HasSubstr("offload_optimizer.ratio is of the optimizer alone"));
  EXPECT_THAT(refused(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
                          "offload_param": {"device": "nvme", "nvme_path": "/b"}}})"),
              testing::HasSubstr("all that leaves goes to one folder"));
}

TEST(DeepSpeed, WhatLeavesIsNoKeyThatItDoesNotHave) {
  EXPECT_THAT(
      refused(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_pth": "/a"}, "stage": 3}})"),
      testing::HasSubstr("offload_optimizer.nvme_path"));
  EXPECT_THAT(refused(R"({"zero_optimization": {"offload_optimizer": "cpu", "stage": 3}})"),
              testing::HasSubstr("it is a map of settings: {\"device\": \"cpu\"}"));
}

TEST(DeepSpeed, WithoutFp16AndBf16ItIsFloat32) {
  using enum model::NumberFormat;
  EXPECT_EQ(of(R"({"train_batch_size": 4})").precision.format, fp32_true);
  EXPECT_EQ(of(R"({"train_batch_size": 4, "fp16": {"loss_scale": 0}})").precision.format, fp32_true);
  EXPECT_EQ(of(R"({"train_batch_size": 4, "bf16": {"enabled": "auto"}})").precision.format, automatic);
  EXPECT_EQ(of(R"({"train_batch_size": 4})", "--precision bf16-mixed").precision.format, bf16_mixed);
}

TEST(DeepSpeed, AutocastLeavesWeightsWithoutMastersAsTheyAre) {
  const auto file = [](const std::string& masters, const std::string& autocast) {
    return R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true)" + masters + R"(}, "torch_autocast": )" +
           autocast + "}";
  };
  const std::string none = R"(, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true)",
                    on = R"({"enabled": true, "dtype": "torch.bfloat16"})";
  EXPECT_EQ(of(file(none, on)).precision.format, model::NumberFormat::bf16_true);
  EXPECT_EQ(of(file("", on)).precision.format, model::NumberFormat::bf16_mixed);
  EXPECT_THAT(accounts_of(read_text("ds.json", file(none, on))),
              HasSubstr("torch_autocast.enabled: precision, as bf16.enabled says it\n"));
  EXPECT_THAT(refused(file("", R"({"enabled": true, "dtype": "float16"})")),
              HasSubstr("torch_autocast computes in another dtype than bf16.enabled\n"));
}

TEST(DeepSpeed, AutomaticFp16HasItsLossScaleIfTheRunComputesInFp16) {
  const char* file = R"({"fp16": {"enabled": "auto", "initial_scale_power": 12, "loss_scale_window": 500}})";
  const model::PrecisionSettings half = of(file, "--precision 16-mixed").precision;
  EXPECT_EQ(half.initial_loss_scale, 4096);
  EXPECT_EQ(half.loss_scale_window, 500);
  EXPECT_EQ(half.scale_rule, model::ScaleRule::deepspeed);
  const ParsedSettings brain = read_text("ds.json", file, "--precision bf16-mixed");
  EXPECT_EQ(brain.settings.precision.initial_loss_scale, model::PrecisionSettings().initial_loss_scale);
  EXPECT_THAT(accounts_of(brain), HasSubstr("fp16.initial_scale_power: ignored: fp16 is off"));
}

TEST(DeepSpeed, AWarmUpGoesToItsOwnMaximum) {
  const auto rate = [](const std::string& more) {
    return of(R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}, "scheduler": {"type": "WarmupDecayLR",
                  "params": {"total_num_steps": 50, "warmup_num_steps": 5)" +
              more + "}}}")
        .optimizer.lr;
  };
  EXPECT_EQ(rate(""), 0.001);
  EXPECT_EQ(rate(R"(, "warmup_max_lr": 2e-4)"), 2e-4);
  EXPECT_EQ(rate(R"(, "warmup_max_lr": "auto")"), 3e-4);
  const std::string optimizer = R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}, )";
  EXPECT_EQ(of(optimizer + R"("scheduler": {"type": "WarmupLR"}})").optimizer.lr, 3e-4);  // the optimizer's
  EXPECT_EQ(of(optimizer + R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-4}}})").optimizer.lr,
            2e-4);
}

TEST(DeepSpeed, AScheduleOfAnotherLengthIsTold) {
  const std::string file = R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 10,
                               "warmup_num_steps": 4}}})";
  const std::string told = "scheduler.params.total_num_steps: ignored: the run's own length counts";
  EXPECT_EQ(read_text("ds.json", file).settings.train.max_steps, 10);
  EXPECT_THAT(accounts_of(read_text("ds.json", file, "--train.max_steps 10")), Not(HasSubstr(told)));
  for (const char* length : {"--train.max_steps 7", "--train.epochs 1", "--train.max_tokens 1000000"})
    EXPECT_THAT(accounts_of(read_text("ds.json", file, length)), HasSubstr(told)) << length;
  EXPECT_EQ(read_text("ds.json", file, "--train.epochs 1").settings.train.max_steps, std::nullopt);
}

TEST(DeepSpeed, WhatIsNotBuiltIsRefusedByNameUnlessItIsOff) {
  EXPECT_EQ(refused(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "none", "pin_memory": true},
                       "zero_quantized_weights": false}, "fp16": {"enabled": false}})"),
            "");
}

TEST(DeepSpeed, AKeyThatItDoesNotHaveIsToldWithTheNearest) {
  EXPECT_EQ(refused("{\"train_batch_sizes\": 4, \"zero_optimization\": {}}"),
            "error: DeepSpeed has no key train_batch_sizes\n"
            "  ds.json:1: {\"train_batch_sizes\": 4, \"zero_optimization\": {}}\n  the nearest is train_batch_size");
  EXPECT_THAT(refused(R"({"train_batch_size": 4, "stage": 3})"), HasSubstr("there is zero_optimization.stage"));
  EXPECT_THAT(refused(R"({"zero_optimization": {"stagee": 3}})"), HasSubstr("the nearest is zero_optimization.stage"));
  EXPECT_THAT(refused(R"({"zero_optimization": {}, "optimzer": {"type": "AdamW"}})"),
              HasSubstr("the nearest is optimizer"));
}

TEST(DeepSpeed, AMapOfWhichNothingIsTakenIsToldOnce) {
  for (const char* map : {R"("quantize_training": {"enabled": true, "quantize_groups": 8, "quantize_bits": 4})",
                          R"("sparse_attention": {"mode": "fixed", "block": 16, "num_local_blocks": 4})"}) {
    const std::string text = refused(fmt::format("{{\"train_batch_size\": 4,\n{}}}", map));
    EXPECT_EQ(text.find("ds.json:2"), text.rfind("ds.json:2")) << text;
    EXPECT_THAT(text, testing::Not(HasSubstr("torch_autocast")));
  }
}

// Its own reader is Hjson's.
TEST(DeepSpeed, CommentsAndALastCommaAreReadOver) {
  EXPECT_EQ(refused("# ours\n{ // all\n\"train_batch_size\": 4, /* of\nall */ \"zero_optimization\": "
                    "{\"stage\": 1, # later\n},\n} // end"),
            "");
  EXPECT_THAT(refused("{ /* a\nb */ \"train_batch_size\": 4,\n\"train_batch_sizes\": \"a // b # \\\" /* c\", # d\n}"),
              HasSubstr("DeepSpeed has no key train_batch_sizes\n  ds.json:3: \"train_batch_sizes\": \"a // b"));
  for (const char* broken : {"{\"train_batch_size\": 4 /* }", "{,}", "{\"train_batch_size\": 4,,}",
                             "{\"train_batch_size\": [,]}", "{\"train_batch_size\": 4 / 2}"})
    EXPECT_THAT(refused(broken), HasSubstr("ds.json is not valid JSON: ")) << broken;
}

TEST(DeepSpeed, ItsFileIsJson) {
  EXPECT_THAT(refused("{\n\"train_batch_size\": 4\n\"seed\": 5}"),
              HasSubstr("ds.json is not valid JSON: syntax error"));
  EXPECT_THAT(refused("{\n\"train_batch_size\": 4\n\"seed\": 5}"), HasSubstr("\n  ds.json:3: \"seed\": 5}"));
  EXPECT_THAT(refused("{\"seed\": 4,\n\"train_batch_size\": 4,\n\"seed\": 5}"),
              HasSubstr("seed is set twice in ds.json"));
  EXPECT_THAT(refused(R"({"train_batch_size": "many"})"), HasSubstr("train_batch_size wants a whole number, not many"));
  EXPECT_THAT(refused(R"({"train_batch_size": 4, "zero_optimization": {"overlap_comm": "maybe"}})"),
              HasSubstr("wants true or false, not maybe"));
}

}  // namespace
}  // namespace trireme::dialects
