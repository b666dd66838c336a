#include "dialect_test.h"

namespace trireme::dialects {
namespace {

std::string ours(std::string key, std::string text) {
  config::Given given{.key = std::move(key), .text = std::move(text), .source = {}};
  systems_of_tests().rename(given);
  return given.key + " " + given.text;
}

TEST(LitGpt, NamesClassesByModuleAndArguments) {
  EXPECT_EQ(ours("data.class_path", "litgpt.data.Alpaca"), "data Alpaca");
  EXPECT_EQ(ours("data", "my.txt"), "data my.txt");
  EXPECT_EQ(ours("data.init_args.json_path", "chat.jsonl"), "data.train_data_path chat.jsonl");
  EXPECT_EQ(ours("optimizer.class_path", "torch.optim.AdamW"), "optimizer AdamW");
  EXPECT_EQ(ours("train.epochs", "5"), "train.epochs 5");
}

TEST(LitGpt, AMapInPlaceOfAClassIsRefusedWithItsKeys) {
  const std::string map = R"({"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.0001}})";
  EXPECT_EQ(ours("optimizer", map), "optimizer " + map);  // nothing is cut off
  try {
    parse_settings(std::vector<std::string>{"--optimizer", map},
                   {.command = "pretrain",
                    .others = &systems_of_tests(),
                    .environment = [](const char*) -> const char* { return nullptr; }});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not '" + map + "'"));
    EXPECT_THAT(error.what(),
                HasSubstr("\n  a map is given key by key, for instance --optimizer AdamW --optimizer.lr 0.001"));
  }
}

TEST(LitGpt, SaysWhereASetLiesAndWhatOfItIsLearned) {
  EXPECT_EQ(ours("data.download_dir", "data/dolly"), "data.train_data_path data/dolly");
  EXPECT_EQ(ours("data.mask_prompt", "true"), "data.learn replies");
  EXPECT_EQ(ours("data.mask_prompt", "false"), "data.learn all");
}

TEST(LitGpt, NamesTemplatesByModels) {
  EXPECT_EQ(ours("data.prompt_style", "alpaca"), "data.chat_template alpaca");
  EXPECT_EQ(ours("data.prompt_style", "phi-3"), "data.chat_template phi3");
  EXPECT_EQ(ours("data.prompt_style", "tinyllama"), "data.chat_template zephyr");
  EXPECT_EQ(ours("data.prompt_style", "codellama"), "data.chat_template mistral");
  for (const char* model : {"qwen2.5", "qwen3", "smollm2"})
    EXPECT_EQ(ours("data.prompt_style", model), "data.chat_template chatml");
  EXPECT_EQ(ours("data.chat_template", "qwen3"), "data.chat_template qwen3");  // not LitGPT's word for the setting
}

TEST(LitGpt, TheRateHasBothSpellings) {
  EXPECT_EQ(read("--train.learning_rate 3e-5").settings.optimizer.lr, 3e-5);
  EXPECT_EQ(read("--optimizer.lr 3e-5").settings.optimizer.lr, 3e-5);
  EXPECT_EQ(read("--optimizer torch.optim.AdamW --optimizer.init_args.lr 3e-5").settings.optimizer.lr, 3e-5);
}

std::string optimizer_file(const std::string& name, const std::string& arguments = "") {
  return "model_name: llama-5m\ntrain: {max_steps: 20}\noptimizer:\n  class_path: " + name + "\n  init_args: {" +
         arguments + "}\n";
}

TEST(LitGpt, AdafactorIsPyTorchs) {
  const optim::OptimizerSettings plain =
      read_text("a.yaml", optimizer_file("torch.optim.Adafactor")).settings.optimizer;
  EXPECT_EQ(plain.scale_parameter, true);
  EXPECT_EQ(plain.relative_step, std::nullopt);
  EXPECT_EQ(plain.lr, 0.01);
  EXPECT_EQ(read_text("a.yaml", optimizer_file("torch.optim.Adafactor", "lr: 0.005, weight_decay: 0.0"))
                .settings.optimizer.lr,
            0.005);
  EXPECT_THAT(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "weight_decay: 0.1")),
              HasSubstr("set weight_decay 0, or take AdamW"));
  EXPECT_THAT(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "lr: 0.05")),
              HasSubstr("below 1 / sqrt(step), and here 0.05 counts always"));
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "lr: 0.05"), "--optimizer.lr 0.01"), "");
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "lr: 0.05, scale_parameter: false")), "");
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.AdamW", "lr: 0.05, weight_decay: 0.1")), "");
  EXPECT_EQ(read_text("a.yaml", optimizer_file("transformers.Adafactor")).settings.optimizer.relative_step, true);
}

TEST(LitGpt, AClassMayHaveNoArguments) {
  for (const char* arguments : {"{}", "", "null"}) {
    const std::string file =
        std::string("model_name: llama-5m\ndata:\n  class_path: litgpt.data.Alpaca\n  init_args: ") + arguments +
        "\noptimizer:\n  init_args: " + arguments + "\n  class_path: torch.optim.SGD\n";
    EXPECT_EQ(refusal_of("a.yaml", file), "") << arguments;
    EXPECT_EQ(read_text("a.yaml", file).settings.data.name, data::Corpus::alpaca) << arguments;
    EXPECT_EQ(read_text("a.yaml", file).settings.optimizer.name, optim::Rule::sgd) << arguments;
  }
}

TEST(LitGpt, AFileWithoutARateHasPyTorchs) {
  for (const auto& [name, rate] : {std::pair{"Adagrad", 0.01}, {"AdamW", 0.001}, {"SGD", 0.001}})
    EXPECT_EQ(read_text("a.yaml", optimizer_file(std::string("torch.optim.") + name)).settings.optimizer.lr, rate)
        << name;
  EXPECT_EQ(read_text("a.yaml", optimizer_file("torch.optim.Adagrad", "lr: 0.5")).settings.optimizer.lr, 0.5);
}

TEST(LitGpt, ArgumentsOfAnOptimizerThatAskForNothingAreIgnored) {
  // As `litgpt pretrain --print_config` writes them.
  const std::string common = "maximize: false, foreach: null, differentiable: false, fused: null";
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.AdamW", "amsgrad: false, capturable: false, " + common)),
            "");
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.SGD", "dampening: 0.0, nesterov: false, " + common)), "");
  EXPECT_EQ(refusal_of("a.yaml",
                       optimizer_file("torch.optim.Adagrad", "lr_decay: 0.0, initial_accumulator_value: 0, " + common)),
            "");
  EXPECT_EQ(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "beta2_decay: -0.8, d: 1.0, foreach: false")),
            "");
  EXPECT_THAT(refusal_of("a.yaml", optimizer_file("torch.optim.AdamW", "amsgrad: true")), HasSubstr("AMSGrad"));
  EXPECT_THAT(refusal_of("a.yaml", optimizer_file("torch.optim.SGD", "dampening: 0.1")), HasSubstr("dampening"));
  EXPECT_THAT(refusal_of("a.yaml", optimizer_file("torch.optim.Adafactor", "d: 2.0")), HasSubstr("a size of 1"));
}

TEST(LitGpt, FlagsOfThunderCountOrAreToldToHaveNoEffect) {
  const ParsedSettings parsed =
      read("--compiler thunder --bucketing_strategy LAYER --sharding_strategy ZERO2 --executors [nvfuser]");
  EXPECT_EQ(parsed.settings.strategy, plan::Strategy::shard_grad_op);
  EXPECT_EQ(parsed.settings.wrap.by, model::WrapBy::layer);
  EXPECT_THAT(accounts_of(parsed), HasSubstr("compiler: ignored: nothing is compiled at run time here"));
  EXPECT_TRUE(read("--profile --out_dir out/x").settings.profile.measure);
}

constexpr const char* kTinyLlama = R"(model_name: tiny-llama-1.1b
model_config:
out_dir: out/pretrain/tiny-llama
precision: bf16-mixed
initial_checkpoint_dir:
resume: false
data:
  class_path: litgpt.data.JSON
  init_args:
    json_path: my.json
train:
  save_interval: 1000
  log_interval: 1
  global_batch_size: 512
  micro_batch_size: 4
  lr_warmup_steps: 2000
  epochs:
  max_tokens: 3000000000000
  max_steps:
  max_seq_length: 2048
  tie_embeddings:
  max_norm: 1.0
  min_lr: 4.0e-05
eval:
  interval: 1000
  max_new_tokens:
  max_iters: 100
  initial_validation: false
  final_validation: true
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 4e-4
    weight_decay: 0.1
    betas:
      - 0.9
      - 0.95
devices: auto
tokenizer_dir: checkpoints/tiny
logger_name: tensorboard
seed: 42
)";

TEST(LitGpt, AFileOfTheConfigHubCountsKeyByKey) {
  const ParsedSettings parsed = read_text("tinyllama.yaml", kTinyLlama);
  const Settings& s = parsed.settings;
  EXPECT_EQ(s.model.name, "tiny-llama-1.1b");
  EXPECT_EQ(s.train.max_tokens, 3'000'000'000'000);
  EXPECT_EQ(s.optimizer.lr, 4e-4);
  EXPECT_EQ(s.optimizer.betas, (std::array{0.9, 0.95}));
  EXPECT_EQ(s.data.tokenizer, "checkpoints/tiny");
  EXPECT_THAT(accounts_of(parsed), HasSubstr("logger_name: train.loggers [tensorboard]"));
}

TEST(LitGpt, AFolderOfWeightsOrAModelConfigCountsMoreThanAName) {
  EXPECT_EQ(read_text("a.yaml", "model_name: pythia-160m\ninitial_checkpoint_dir: out/step\n").settings.model.name,
            "out/step");
  EXPECT_EQ(refusal_of("a.yaml", "model_name: llama-5m\nmodel: llama-32m\ntrain: {max_steps: 3}\n"),
            "error: model and model_name name two models\n  a.yaml:2: model: llama-32m\n  a.yaml:1: model_name: "
            "llama-5m\n  keep one of the two lines");
  EXPECT_THAT(
      accounts_of(read_text("a.yaml",
                            "model_name: mine\nmodel_config: {n_layer: 2, n_embd: 64, n_head: 2, vocab_size: 300, "
                            "norm_class_name: RMSNorm, mlp_class_name: LLaMAMLP, bias: false, "
                            "parallel_residual: false, rotary_percentage: 1.0, intermediate_size: 96}\n")),
      HasSubstr("model_name: ignored: model_config says what the model is\n"));
}

TEST(LitGpt, MissingKeysOfAFileHaveLitGptsDefaultsAndItsCommands) {
  const std::string file = "checkpoint_dir: base\ntrain: {epochs: 2}\n";
  const train::TrainSettings tuned = read_text("lora.yaml", file, "", "finetune_lora").settings.train;
  EXPECT_EQ(tuned.global_batch_size, 16);
  EXPECT_FALSE(tuned.max_norm.has_value());
  EXPECT_EQ(read_text("pretrain.yaml", file).settings.train.global_batch_size, 512);
  EXPECT_EQ(read_text("own.yaml", "train: {epochs: 2}\n").settings.train.global_batch_size, 64);  // not LitGPT's
}

TEST(LitGpt, FilesThatTuneHaveTheRatesOfItsFineTuning) {
  const std::string file = "checkpoint_dir: base\ntrain: {epochs: 2, min_lr: 6.0e-05}\ndata: {mask_prompt: false}\n";
  for (const char* command : {"finetune_full", "finetune_lora", "convert_config", "explain config"}) {
    const ParsedSettings parsed = read_text("tune.yaml", file, "", command);
    EXPECT_EQ(parsed.settings.lr_schedule.first_step, 0) << command;
    EXPECT_EQ(parsed.settings.train.min_lr, 0) << command;
    EXPECT_EQ(parsed.settings.train.global_batch_size, 16) << command;
    EXPECT_EQ(parsed.settings.save.keep_last, 0) << command;
    EXPECT_THAT(accounts_of(parsed), HasSubstr("train.min_lr: ignored: LitGPT does not read it when it tunes"));
    EXPECT_EQ(parsed.settings.data.learn, text::Learn::all) << command;
  }
  const Settings trained = read_text("pretrain.yaml", file).settings;
  EXPECT_EQ(trained.lr_schedule.first_step, 1);
  EXPECT_EQ(trained.train.min_lr, 6e-5);
}

TEST(LitGpt, WithoutAccumulationAWarmUpBeginsAtZero) {
  const auto first_step = [](const std::string& global, const std::string& words = "") {
    return read_text(
               "pretrain.yaml",
               "model_name: llama-5m\ndevices: 2\ntrain: {max_steps: 20, micro_batch_size: 4, global_batch_size: " +
                   global + "}\n",
               words)
        .settings.lr_schedule.first_step;
  };
  EXPECT_EQ(first_step("8"), 0);   // its step k has (k - 1) / warmup
  EXPECT_EQ(first_step("16"), 1);  // (k - 1/2) / warmup
  EXPECT_EQ(first_step("8", "--train.lr_decay WarmupLR"), 1);
  EXPECT_EQ(first_step("8", "--lr_schedule.first_step 1"), 1);
}

TEST(LitGpt, AScheduleMayHaveAnotherSystemsName) {
  const std::string file = "checkpoint_dir: base\ntrain: {epochs: 2, lr_decay: ";
  for (const char* schedule : {"cosine_with_min_lr", "Cosine"})
    EXPECT_EQ(read_text("tune.yaml", file + schedule + "}\n", "", "finetune_lora").settings.lr_schedule.first_step, 0)
        << schedule;
  EXPECT_EQ(read_text("tune.yaml", file + "none}\n", "", "finetune_lora").settings.lr_schedule.first_step, 1);
}

TEST(LitGpt, FilesThatTuneHaveAConversationInARowAndAlpacasPrompts) {
  const std::string start = "checkpoint_dir: base\ntrain: {epochs: 2}\n";
  const auto of = [&](const std::string& more, const std::string& command = "finetune_lora") {
    return read_text("tune.yaml", start + more, "", command).settings.data;
  };
  const std::string json = "data: {class_path: litgpt.data.JSON, init_args: {json_path: a.json}}\n";
  for (const char* command : {"finetune_full", "finetune_lora", "convert_config", "explain config"}) {
    EXPECT_EQ(of(json, command).packing, data::Packing::none) << command;
    EXPECT_EQ(of(json, command).chat_template, "alpaca") << command;
    EXPECT_EQ(of(json, command).learn, text::Learn::all) << command;
  }
  EXPECT_EQ(of("data: {class_path: litgpt.data.Alpaca2k, init_args: {mask_prompt: true}}\n").learn,
            text::Learn::replies);
  EXPECT_EQ(of(json, "pretrain").learn, text::Learn::replies);
  EXPECT_EQ(of("").chat_template, "alpaca");
  EXPECT_EQ(of("data: Deita\n").chat_template, "alpaca");
  EXPECT_EQ(of("data: FLAN\n").chat_template, std::nullopt);  // the set has its own
  EXPECT_EQ(of("data: LongForm\n").chat_template, std::nullopt);
  EXPECT_EQ(of("data: {class_path: litgpt.data.JSON, init_args: {json_path: a.json, prompt_style: tinyllama}}\n")
                .chat_template,
            "zephyr");
  EXPECT_EQ(of("data: {packing: best_fit}\n").packing, data::Packing::best_fit);
  EXPECT_EQ(of("", "pretrain").packing, data::Packing::wrapped);
  EXPECT_EQ(of("", "pretrain").chat_template, std::nullopt);
  const auto of_task = [&](const std::string& words) {
    return read_text("tune.yaml", start, words, "finetune_full").settings.data.packing;
  };
  EXPECT_EQ(of_task("--task classify"), data::Packing::wrapped);  // which refuses it
}

TEST(LitGpt, EachClassOfDataHoldsOutItsOwnShare) {
  const auto of = [](const std::string& data, const std::string& command = "finetune_lora",
                     const std::string& words = "") {
    return read_text("tune.yaml", "checkpoint_dir: base\ntrain: {epochs: 2}\n" + data, words, command).settings.data;
  };
  EXPECT_EQ(of("data: Alpaca\n").val_split_fraction, 0.03865);
  EXPECT_EQ(of("data: {class_path: litgpt.data.Alpaca2k, init_args: {mask_prompt: true}}\n").val_split_fraction, 0.05);
  EXPECT_EQ(of("data: AlpacaGPT4\n").val_split_fraction, 0.03847);
  EXPECT_EQ(of("data: LIMA\n").val_split_fraction, 0.1);
  EXPECT_EQ(of("data: Dolly\n").val_split_fraction, 0.1);
  EXPECT_EQ(of("data: {class_path: litgpt.data.JSON, init_args: {json_path: a.json}}\n").val_split_fraction, 0.05);
  EXPECT_EQ(of("data: Alpaca2k\n", "pretrain").val_split_fraction, 0.05);
  EXPECT_EQ(of("data: {class_path: litgpt.data.Alpaca2k, init_args: {val_split_fraction: 0.2}}\n").val_split_fraction,
            0.2);
  EXPECT_EQ(of("data: Alpaca2k\n", "finetune_full", "--data Alpaca").val_split_fraction, 0.03865);
}

TEST(LitGpt, AFileThatTunesWithoutDataTunesOnAlpaca) {
  const auto of = [](const std::string& words, const std::string& command = "finetune_full") {
    return read_text("tune.yaml", "checkpoint_dir: base\ntrain: {epochs: 2}\n", words, command).settings.data;
  };
  for (const char* command : {"finetune_full", "finetune_lora", "convert_config", "explain config"}) {
    EXPECT_EQ(of("", command).name, data::Corpus::alpaca) << command;
    EXPECT_EQ(of("", command).val_split_fraction, 0.03865) << command;
  }
  EXPECT_EQ(of("", "pretrain").name, data::Corpus::austen);
  EXPECT_EQ(of("--data LIMA").name, data::Corpus::lima);
  EXPECT_NE(of("--data.json_path chat.jsonl").name, data::Corpus::alpaca);  // not Alpaca's file
  EXPECT_EQ(of("--data.json_path chat.jsonl").val_split_fraction, 0.05);
}

TEST(LitGpt, FilesThatTuneHaveFiveEpochsIfNothingEndsThem) {
  const auto of = [](const std::string& train, const std::string& words = "") {
    return read_text("tune.yaml", "checkpoint_dir: base\ntrain:\n  micro_batch_size: 1\n" + train, words,
                     "finetune_lora")
        .settings.train;
  };
  EXPECT_EQ(of("").epochs, 5);
  EXPECT_EQ(of("  max_tokens:\n  max_steps:\n").epochs, 5);
  EXPECT_EQ(of("  max_tokens:\n  max_steps:\n  epochs: 2\n").epochs, 2);
  EXPECT_EQ(of("  max_tokens:\n  max_steps: 7\n").epochs, std::nullopt);
  EXPECT_EQ(of("  max_tokens:\n  max_steps:\n", "--train.max_steps 7").epochs, std::nullopt);
}

TEST(LitGpt, ACommandThatDoesNotTrainGoesByTheFilesKeys) {
  const auto of = [](const std::string& file) { return read_text("a.yaml", file, "", "convert_config").settings; };
  EXPECT_EQ(of("checkpoint_dir: base\n").eval.interval, 600);
  EXPECT_EQ(of("checkpoint_dir: base\nlora_r: 4\n").eval.interval, 100);
  EXPECT_EQ(of("checkpoint_dir: base\nlora_r: 4\n").train.global_batch_size, 16);
  EXPECT_EQ(of("initial_checkpoint_dir: base\n").train.global_batch_size, 512);
}

TEST(LitGpt, SetsThatAreNotReadByNameAreRefusedWithTheWayToReadTheirTexts) {
  for (const char* name : {"TinyLlama", "TinyStories", "MicroLlama", "OpenWebText", "litgpt.data.TinyLlama"}) {
    const std::string file = std::string("logger_name: csv\ndata: ") + name + "\n";
    EXPECT_THAT(refusal_of("a.yaml", file), HasSubstr("--data TextFiles --data.train_data_path FOLDER")) << name;
    EXPECT_EQ(refusal_of("a.yaml", file, "--data TextFiles --data.train_data_path texts"), "") << name;
  }
}

TEST(LitGpt, AWrongKeyInItsFileIsRefusedAsOneOfTrireme) {
  EXPECT_THAT(
      refusal_of("a.yaml", "logger_name: csv\ntrain:\n  max_stepps: 3\n"),
      HasSubstr(
          "error: unknown setting train.max_stepps\n  a.yaml:3: max_stepps: 3\n  the nearest is train.max_steps"));
}

}  // namespace
}  // namespace trireme::dialects
