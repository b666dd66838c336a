#include "dialect_test.h"

namespace trireme::dialects {
namespace {

ParsedSettings yaml(const std::string& text, const std::string& words = "") { return read_text("a.yaml", text, words); }
std::string wrong(const std::string& text, const std::string& words = "") { return refusal_of("a.yaml", text, words); }

TEST(Accelerate, WithoutMixedPrecisionThereIsNone) {
  const std::string file = "distributed_type: MULTI_CPU\nnum_processes: 2\n";
  EXPECT_EQ(yaml(file).settings.precision.format, model::NumberFormat::fp32_true);
  EXPECT_EQ(yaml(file, "--precision bf16-mixed").settings.precision.format, model::NumberFormat::bf16_mixed);
}

TEST(Accelerate, TheFileForOneMachineIsReplicasOnSoManyRanks) {
  const ParsedSettings parsed = yaml(
      "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n"
      "mixed_precision: bf16\ngpu_ids: 0,1,2,3\nmain_training_function: main\nuse_cpu: false\n");
  EXPECT_EQ(parsed.settings.devices, 4);
  EXPECT_EQ(parsed.settings.strategy, plan::Strategy::no_shard);
  EXPECT_EQ(parsed.settings.precision.format, model::NumberFormat::bf16_mixed);
  EXPECT_EQ(parsed.accounts.size(), 8u);  // every key
}

TEST(Accelerate, TheFileForTwoMachinesCountsProcessesOfBoth) {
  const Settings s =
      yaml(
          "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 8\n"
          "machine_rank: 1\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\nmixed_precision: bf16\n")
          .settings;
  EXPECT_EQ(s.devices, 4);
  EXPECT_EQ(s.num_nodes, 2);
  EXPECT_EQ(s.launch.node_rank, 1);
  EXPECT_EQ(s.launch.master_addr, "10.0.0.1");
  EXPECT_THAT(wrong("distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 5\n"),
              HasSubstr("5 processes cannot be divided among 2 machines\n  a.yaml:3: num_processes: 5\n  a.yaml:2"));
}

TEST(Accelerate, NoDistributionIsOneProcessWhateverTheCounts) {
  const ParsedSettings parsed =
      yaml("distributed_type: \"NO\"\nnum_machines: 2\nmachine_rank: 1\nnum_processes: 8\nmixed_precision: bf16\n");
  EXPECT_EQ(parsed.settings.devices, 1);
  EXPECT_EQ(parsed.settings.num_nodes, 1);
  EXPECT_EQ(parsed.settings.launch.node_rank, std::nullopt);
  EXPECT_THAT(accounts_of(parsed), HasSubstr("num_processes: devices 1, as distributed_type NO starts one process\n"));
  EXPECT_EQ(yaml("distributed_type: \"NO\"\n").settings.devices, 1);
  EXPECT_EQ(yaml("distributed_type: \"NO\"\nnum_processes: 8\n", "--devices 4").settings.devices, 4);
}

TEST(Accelerate, MachinesOfTheCommandLineDivideItsProcesses) {
  const std::string file = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\n";
  const Settings two = yaml(file, "--num_nodes 2").settings;
  EXPECT_EQ(two.num_nodes, 2);
  EXPECT_EQ(two.devices, 4);
  EXPECT_THAT(wrong(file, "--num_nodes 3"), HasSubstr("8 processes cannot be divided among 3 machines\n"));
  EXPECT_EQ(yaml(file, "--num_nodes 3 --devices 2").settings.devices, 2);
  EXPECT_EQ(yaml("distributed_type: MULTI_GPU\nnum_processes: -1\n", "--devices 2").settings.devices, 2);
}

TEST(Accelerate, FsdpOfBothVersionsIsAStrategyWithItsPrefetchAndWrapping) {
  const Settings one =
      yaml(
          "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
          "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_forward_prefetch: true\n"
          "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 2000\n  fsdp_offload_params: false\n"
          "  fsdp_activation_checkpointing: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n")
          .settings;
  EXPECT_EQ(one.strategy, plan::Strategy::shard_grad_op);
  EXPECT_EQ(one.schedule.prefetch_backward, schedule::PrefetchBackward::post);
  EXPECT_TRUE(one.schedule.prefetch_forward);
  EXPECT_EQ(one.wrap.min_num_params, 2000);
  EXPECT_EQ(one.recompute.mode, schedule::Recompute::full);
  const std::string two = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: ";
  EXPECT_EQ(yaml(two + "true\n").settings.strategy, plan::Strategy::full_shard);
  EXPECT_EQ(yaml(two + "false\n").settings.strategy, plan::Strategy::shard_grad_op);
  const auto ignored =
      yaml("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_sharding_strategy: NO_SHARD}\n");
  EXPECT_EQ(ignored.settings.strategy, plan::Strategy::full_shard) << "version 2 reads fsdp_reshard_after_forward";
  EXPECT_EQ(yaml("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 3}\n").settings.strategy,
            plan::Strategy::no_shard);
  const auto offload = yaml("distributed_type: FSDP\nfsdp_config: {fsdp_offload_params: true}\n").settings.offload;
  using schedule::Tier;
  EXPECT_EQ(offload,
            (schedule::OffloadSettings{
                .optimizer = Tier::cpu, .master = Tier::cpu, .parameters = Tier::cpu, .gradients = Tier::cpu}));
}

TEST(Accelerate, HybridShardIsFullInsideAMachine) {
  const std::string file =
      "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n";
  EXPECT_EQ(yaml(file).settings.strategy, plan::Strategy::full_shard);
  EXPECT_EQ(yaml(file + "num_machines: 2\nmain_process_ip: a\n").settings.strategy, plan::Strategy::hybrid_shard);
}

TEST(Accelerate, ParallelismIsAMesh) {
  const Settings s =
      yaml(
          "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\nparallelism_config:\n"
          "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
          "  parallelism_config_tp_size: 2\n  parallelism_config_cp_size: 1\n")
          .settings;
  EXPECT_EQ(s.strategy, plan::Strategy::hybrid_shard);
  EXPECT_EQ(mesh_shape(s, 8), (MeshShape{1, 2, 2, 1, 2}));
}

TEST(Accelerate, MegatronIsTensorsAndAPipeline) {
  const Settings s =
      yaml(
          "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
          "  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 4\n  megatron_lm_sequence_parallelism: true\n"
          "  megatron_lm_use_distributed_optimizer: true\n  megatron_lm_gradient_clipping: 0.5\n",
          "--train.micro_batch_size 2")
          .settings;
  EXPECT_EQ(s.mesh.tp, 2);
  EXPECT_EQ(s.mesh.pp, 2);
  EXPECT_TRUE(s.mesh.sequence_parallel);
  EXPECT_EQ(s.strategy, plan::Strategy::zero1);
  EXPECT_EQ(s.train.global_batch_size, 2 * 4 * 2);  // two data-parallel ranks
  EXPECT_EQ(s.train.max_norm, 0.5);
}

TEST(Accelerate, DeepSpeedInlineAndInAFileOfItsOwn) {
  const Settings s =
      yaml(
          "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
          "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n  offload_optimizer_device: none\n",
          "--train.micro_batch_size 2")
          .settings;
  EXPECT_EQ(s.strategy, plan::Strategy::full_shard);
  EXPECT_EQ(s.train.global_batch_size, 16);
  EXPECT_EQ(yaml("distributed_type: DEEPSPEED\n").settings.strategy, plan::Strategy::shard_grad_op);

  const Folder folder;
  const std::string json =
      folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}})");
  const std::string own = folder.write(
      "a.yaml",
      "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: " + json + "\n");
  const ParsedSettings parsed = read("--config " + own);
  EXPECT_EQ(parsed.settings.strategy, plan::Strategy::zero1);
  EXPECT_EQ(parsed.settings.train.global_batch_size, 4);
  EXPECT_EQ(parsed.accounts.size(), 5u);
  EXPECT_EQ(parsed.files, (std::vector<std::string>{own, json})) << "convert_config writes over neither";
  const std::string both =
      folder.write("b.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: " + json +
                                 "\n  zero_stage: 2\n");
  try {
    read("--config " + both);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("deepspeed_config_file has its own zero_stage\n  " + both + ":3:"));
    EXPECT_THAT(error.what(), HasSubstr("\n  " + both + ":4: zero_stage: 2\n  keep one of the two"));
  }
}

TEST(Accelerate, ADeepSpeedFileThatIsMissingIsOneMistake) {
  const std::string said =
      wrong("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: no/ds.json\n");
  EXPECT_TRUE(said.starts_with("error: cannot open no/ds.json")) << said;
  EXPECT_THAT(said,
              HasSubstr("\n  a.yaml:4: deepspeed_config_file: no/ds.json\n  deepspeed_config.deepspeed_config_file "
                        "names a file of DeepSpeed, which has to be there"));
  EXPECT_EQ(said.find("error:", 1), std::string::npos) << said;
  EXPECT_EQ(said.find("--config"), std::string::npos) << said;
}

TEST(Accelerate, KeysOfOldFilesAreKnown) {
  const ParsedSettings parsed = yaml(
      "distributed_type: DEEPSPEED\nnum_processes: 2\ndynamo_backend: 'NO'\ndeepspeed_config:\n"
      "  zero_stage: 3\n  seq_parallel_communication_data_type: bf16\n");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("dynamo_backend: ignored: nothing is compiled at run time here\n"));
  EXPECT_THAT(accounts_of(parsed), HasSubstr("seq_parallel_communication_data_type: ignored: tokens are sent"));
}

TEST(Accelerate, TheDeepSpeedFileSaysWhichPrecisionUnlessItLeavesIt) {
  const Folder folder;
  const auto words = [&](const std::string& mixed, const std::string& json) {
    const std::string file = folder.write("ds.json", json);
    return "--config " + folder.write("a.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\n" + mixed +
                                                    "\ndeepspeed_config:\n  deepspeed_config_file: " + file + "\n");
  };
  const auto of = [&](const std::string& mixed, const std::string& json) {
    return read(words(mixed, json)).settings.precision.format;
  };
  const auto wrong_pair = [&](const std::string& mixed, const std::string& json) -> std::string {
    try {
      read(words(mixed, json));
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  using enum model::NumberFormat;
  const std::string brain = R"({"bf16": {"enabled": true}})", half = R"({"fp16": {"enabled": true}})",
                    off = R"({"bf16": {"enabled": false}, "fp16": {"enabled": false}})",
                    left = R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})";
  for (const auto& [mixed, json] : {std::pair{"mixed_precision: fp16", brain}, std::pair{"fp16: true", brain},
                                    std::pair{"mixed_precision: bf16", half}, std::pair{"mixed_precision: fp8", half}})
    EXPECT_THAT(wrong_pair(mixed, json), HasSubstr("of the DeepSpeed file\n")) << mixed << json;
  EXPECT_THAT(wrong_pair("mixed_precision: fp16", brain),
              HasSubstr("error: mixed_precision fp16 contradicts bf16.enabled of the DeepSpeed file\n"));
  EXPECT_EQ(of("mixed_precision: \"no\"", brain), bf16_mixed);
  EXPECT_EQ(of("mixed_precision: \"no\"", half), fp16_mixed);
  EXPECT_EQ(of("mixed_precision: bf16", brain), bf16_mixed);
  EXPECT_EQ(of("mixed_precision: bf16", off), fp32_true);  // the file wins
  EXPECT_EQ(of("mixed_precision: bf16", left), bf16_mixed);
  EXPECT_EQ(of("mixed_precision: fp16", left), fp16_mixed);
  EXPECT_EQ(of("mixed_precision: bf16", "{}"), bf16_mixed);
  EXPECT_EQ(of("mixed_precision: fp8", brain), of("mixed_precision: fp8", "{}"));
  EXPECT_EQ(of("mixed_precision: \"no\"", R"({"bfloat16": {"enabled": true}})"), bf16_mixed);  // the old name
  EXPECT_THAT(accounts_of(read(words("mixed_precision: \"no\"", brain))),
              HasSubstr("mixed_precision: ignored: the DeepSpeed file says which precision\n"));
}

TEST(Accelerate, WhatItDoesNotHaveIsToldFromWhatIsNotForUs) {
  EXPECT_THAT(
      wrong("distributed_type: FSDP\nnum_procesess: 4\n"),
      HasSubstr("Accelerate has no key num_procesess\n  a.yaml:2: num_procesess: 4\n  the nearest is num_processes"));
  EXPECT_THAT(wrong("distributed_type: XLA\nnum_processes: 4\n"), HasSubstr("distributed_type XLA is not for"));
  EXPECT_EQ(wrong("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: ml.p3.2xlarge\n"),
            "error: compute_environment AMAZON_SAGEMAKER cannot be had\n  a.yaml:1: compute_environment: "
            "AMAZON_SAGEMAKER\n  commands run on machines that you name");
  EXPECT_EQ(wrong("distributed_type: NO\nmain_process_ip: ''\nmixed_precision: ''\n"), "");
  EXPECT_THAT(
      wrong("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 2, bf16_enabled: true}\n"),
      testing::Not(HasSubstr("the nearest")));
  EXPECT_THAT(wrong("num_processes: 4\n"), HasSubstr("has no distributed_type"));
  EXPECT_THAT(
      refusal_of("a.yaml", "distributed_type: [\n", "--config_dialect accelerate"),
      testing::AllOf(HasSubstr("a.yaml is not valid YAML"), testing::Not(HasSubstr("has no distributed_type"))));
}

TEST(Accelerate, SequenceParallelismWithoutTensorParallelismSaysWhatReadsIt) {
  const ParsedSettings parsed = read_text("config.yaml",
                                          "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config:\n"
                                          "  megatron_lm_tp_degree: 1\n  megatron_lm_sequence_parallelism: true\n");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("megatron_lm_sequence_parallelism: ignored: only a megatron_lm_tp_degree "
                                             "above 1 reads it\n"));
}

}  // namespace
}  // namespace trireme::dialects
