// What people type who come from elsewhere, and the words that the refusal must hold: the thing and the way out.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "settings_test.h"
#include "trireme/config/declaration.h"
#include "trireme/config/hints.h"
#include "trireme/config/value.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/parse.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

const Overlay kPretrain{.command = "pretrain", .section = "launch"};

struct Row {
  std::vector<std::string> arguments;
  std::vector<std::string> words;
};

TEST(Refusals, OfTheCommandLineNameTheThingAndTheWayOut) {
  const std::vector<Row> rows = {
      {{"--train.max_steps", "1e30"}, {"train.max_steps must be at most 9,000,000,000,000,000,000, not 1e30"}},
      {{"--devices", "1e30"}, {"devices must be at least 1 and at most 100,000, not 1e30"}},
      {{"--devices=-1e30"}, {"devices must be at least 1 and at most 100,000, not -1e30"}},
      {{"--mesh.pp", "4294967296"}, {"mesh.pp must be at least 1 and at most 100,000, not 4294967296"}},
      {{"--comm.timeout", "3000000h"}, {"comm.timeout must be at most 100 years (36500d), not 3000000h"}},
      {{"--wandb"}, {"wandb is not available", "metrics.jsonl"}},
      {{"--wandb_project", "x"}, {"wandb_project is not available", "metrics.jsonl"}},
      {{"--report_to", "tensorboard"}, {"unknown setting report_to", "train.loggers [tensorboard]", "metrics.jsonl"}},
      {{"--tensorboard"}, {"unknown setting tensorboard", "train.loggers [tensorboard]"}},
      {{"--compile"}, {"compile is not available", "nothing is compiled"}},
      {{"--torch_compile=true"}, {"nothing is compiled"}},
      {{"--fp16"}, {"unknown setting fp16", "precision 16-mixed"}},
      {{"--bf16"}, {"precision bf16-mixed"}},
      {{"--amp"}, {"precision bf16-mixed"}},
      {{"--deepspeed", "ds.json"}, {"cannot open ds.json"}},
      {{"--fsdp", "full_shard auto_wrap"}, {"strategy full_shard"}},
      {{"--lora.rnk", "8"}, {"unknown setting lora.rnk", "lora.r"}},
      {{"--use_dora"}, {"magnitudes (DoRA) are lora.dora"}},
      {{"--qlora"}, {"weights in 4 bits with quantize bnb.nf4"}},
      {{"--load_in_8bit"}, {"frozen weights in 8 bits are quantize q8_0"}},
      {{"--gpu", "0"}, {"accelerator cuda"}},
      {{"--initial_checkpoint", "out"},
       {"to start from weights, name their folder as the model", "trireme pretrain FOLDER"}},
      {{"--resume_from_checkpoint", "out"}, {"set resume to true, auto or a folder"}},
      {{"--dataset_name", "c4"}, {"nothing is downloaded", "data.train_data_path"}},
      {{"--attn_implementation", "sdpa"}, {"leave it out"}},
      {{"--tran", "3"}, {"unknown setting tran", "the group train", "train.global_batch_size"}},
      {{"--data", "my.txt"}, {"not 'my.txt'", "a path is given with --data TextFiles --data.train_data_path my.txt"}},
      {{"--data", "a b/c"}, {"a path is given with --data TextFiles --data.train_data_path 'a b/c'"}},
      {{"--out_dir", ""}, {"out_dir wants text, not an empty text"}},
      {{"--data.train_data_path="}, {"data.train_data_path wants text", "not an empty text"}},
      {{"--data.tokenizer", ""}, {"data.tokenizer wants text", "not an empty text"}},
      {{"--train.max_norm", "0"}, {"train.max_norm must be above 0, not 0", "null means no clipping"}},
      {{"--generate.prompt", "x"}, {"generate.prompt belongs to trireme generate", "pretrain does not read it"}},
      {{"--bench.steps", "3"}, {"bench.steps belongs to trireme bench"}},
      {{"--prepare.output", "x"}, {"prepare.output belongs to trireme data"}},
      {{std::string(200'000, 'x')}, {"what is 'xxx"}},
      {{"--" + std::string(200'000, 'x'), "1"}, {"unknown setting xxx"}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> arguments = {"llama-5m"};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    const std::string text = refusal(arguments, kPretrain);
    for (const std::string& word : row.words) EXPECT_THAT(text, HasSubstr(word)) << row.arguments[0].substr(0, 40);
    EXPECT_LT(text.size(), 1000u) << row.arguments[0].substr(0, 40);
  }
}

// Rewards belong to a task, as grpo.* do, and not to one command: whoever shows, plans or times such a run reads them.
TEST(Refusals, RewardsAreReadByEveryCommandThatReadsTheirTask) {
  for (const char* command : {"pretrain", "grpo", "plan", "bench train", "explain memory"}) {
    const Overlay overlay{.command = command, .section = "launch"};
    for (const std::vector<std::string>& typed : {std::vector<std::string>{"--grpo.beta", "0.1"},
                                                  {"--reward.functions", "[exact]"},
                                                  {"--reward.length", "9"}}) {
      std::vector<std::string> words = {"llama-5m", "--task", "rewards"};
      words.insert(words.end(), typed.begin(), typed.end());
      EXPECT_EQ(refusal(words, overlay), "") << command << " " << typed[0];
    }
  }
}

TEST(Refusals, OfAFileSayWhatIsWrongWithItsForm) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> rows = {
      {"tran: {max_steps: 3}\n", {"unknown setting tran", "the group train"}},
      {"train:\n\tmax_steps: 3\n", {"line 2 is indented with a tab", "spaces only"}},
      {"\ttrain: {max_steps: 3}\n", {"line 1 is indented with a tab"}},
      {"train:\n  max_steps: 3\n \tmax_tokens: 4\n", {"line 3 is indented with a tab"}},
      {"train:\n  max_steps: 3\n   max_tokens: 4\n", {":3: max_tokens: 4", "with the same indentation"}},
      {"train:\n  max_steps: 3\n max_tokens: 4\n", {":3: max_tokens: 4", "with the same indentation"}},
      {"train:\n  max_steps 3\n", {"train"}},
      {"out_dir: \"\"\n", {"out_dir wants text, not an empty text"}},
      {"train: {max_steps: 3\n", {"is not valid YAML"}},
      {std::string(size_t{2} << 20, '#'), {"too large for a file of this kind", "more than 1 MiB"}},
  };
  for (const auto& [yaml, words] : rows) {
    const YamlFile file(yaml);
    const std::string text = refusal({"--config", file.path()}, kPretrain);
    for (const std::string& word : words) EXPECT_THAT(text, HasSubstr(word)) << yaml.substr(0, 80);
  }
  EXPECT_THAT(refusal({"--config", "/dev/zero"}), HasSubstr("too large for a file of this kind"));  // and has an end
}

TEST(Refusals, AFileMayHoldSettingsOfSeveralCommands) {
  const YamlFile file("generate: {prompt: It is}\nbench: {steps: 3}\n");
  EXPECT_EQ(refusal({"--config", file.path()}, kPretrain), "");
  EXPECT_EQ(refusal({"--generate.prompt", "x"}, {.command = "explain config"}), "");
  EXPECT_EQ(refusal({"--steps", "3"}, {.command = "bench train", .section = "bench"}), "");
}

TEST(Refusals, ACommandThatDoesNotTrainTakesNoTypedSettingsOfTraining) {
  const Overlay evaluate{.command = "evaluate",
                         .positional = "evaluate.checkpoint",
                         .unread_groups = {"model", "data", "train", "optimizer"},
                         .read_keys = {"data.text_field"},
                         .section = "evaluate"};
  EXPECT_THAT(refusal({"run", "--data.tokenizer", "x"}, evaluate),
              testing::AllOf(HasSubstr("data.tokenizer belongs to training"),
                             HasSubstr("trireme evaluate trains nothing and takes the model's own; leave it out")));
  EXPECT_THAT(refusal({"run", "--model.num_hidden_layers=3"}, evaluate), HasSubstr("belongs to training"));
  EXPECT_THAT(refusal({"run", "--learning_rate=3"}, evaluate), Not(HasSubstr("optimizer.lr")));
  EXPECT_THAT(refusal({"run", "--train.max_seq_length", "32"}, evaluate),
              HasSubstr("for trireme evaluate say --max_seq_length"));
  EXPECT_EQ(refusal({"run", "--data.text_field", "x", "--max_seq_length", "32", "--mesh.tp", "2"}, evaluate), "");
  const YamlFile file("data: {tokenizer: x}\ntrain: {max_steps: 3}\n");
  EXPECT_EQ(refusal({"run", "--config", file.path()}, evaluate), "");
}

TEST(Refusals, ProposeNoSettingOfAnotherCommandOnTheCommandLine) {
  for (const std::string word : {"--hardware", "--prompt", "--hardwar"})
    EXPECT_THAT(refusal({word, "x"}, kPretrain), Not(testing::AnyOf(HasSubstr("bench.h"), HasSubstr("generate.p"))));
  EXPECT_THAT(refusal({"--hardware", "x"}, {.command = "explain config"}), HasSubstr("it is bench.hardware"));
}

TEST(Refusals, OfTheEnvironmentNameTheNearestVariable) {
  const auto refusal_of_variable = [](const std::string& name) {
    Overlay overlay = kPretrain;
    overlay.environment = no_environment;
    overlay.variables = {name};
    return refusal({}, overlay);
  };
  EXPECT_THAT(refusal_of_variable("TRIREME_TRAIN_MICRO_BATCHSIZE"),
              HasSubstr("TRIREME_TRAIN_MICRO_BATCHSIZE in the environment is no setting\n"
                        "  the nearest is TRIREME_TRAIN_MICRO_BATCH_SIZE"));
  EXPECT_THAT(
      refusal_of_variable("TRIREME_CONFIG"),
      HasSubstr("TRIREME_CONFIG in the environment is no setting\n  a file is named on the command line: --config "
                "FILE"));
  EXPECT_THAT(refusal_of_variable("TRIREME_SEDE"), HasSubstr("the nearest is TRIREME_SEED"));
  EXPECT_THAT(refusal_of_variable("TRIREME_OPTIMIZER_QUUX"), HasSubstr("unset TRIREME_OPTIMIZER_QUUX"));
  EXPECT_THAT(refusal_of_variable("TRIREME_TRAIN"), HasSubstr("train is a group of settings"));
  EXPECT_THAT(refusal_of_variable("TRIREME_MICRO_BATCH_SIZE"), HasSubstr("it is TRIREME_TRAIN_MICRO_BATCH_SIZE"));
  EXPECT_EQ(refusal_of_variable("TRIREME_PATH"), "");
  for (const char* name : {"TRIREME_TRAIN_MICRO_BATCH_SIZE", "TRIREME_JOB_ID", "TRIREME_RUN", "TRIREME_STORE_FD",
                           "TRIREME_DATA_SERVICE_HOST", "TRIREME_DATA_PORT_80_TCP", "TRIREME_PROMETHEUS_PORT",
                           "TRIREME_HOME", "TRIREME_SLOW", "PATH", "TRIREME_LAUNCH_TOKEN_FILE"})
    EXPECT_EQ(refusal_of_variable(name), "") << name;
}

TEST(Refusals, AnExampleIsAValueThatSomebodyWouldGive) {
  Settings settings;
  declare(settings).for_each([](const Section&, const Setting& setting) {
    const std::string example = example_text(setting);
    EXPECT_NE(example, "") << setting.key;
    if (is_absent(setting)) {
      EXPECT_NE(example, setting.rules.absent) << setting.key;
    }
    const auto refused = assign(setting, {.key = std::string(setting.key), .text = example});
    EXPECT_FALSE(refused) << setting.key << ": " << (refused ? refused->headline : "");
    EXPECT_FALSE(is_absent(setting)) << setting.key << " " << example;
  });
  EXPECT_THAT(refusal({"--json"}, {.command = "bench ops", .section = "bench"}),
              HasSubstr("for instance --bench.json=result.json"));
  EXPECT_THAT(refusal({"--optimizer.betas"}), HasSubstr("--optimizer.betas='[0.9, 0.95]'"));
}

TEST(Refusals, HelpShowsTheShortNamesThatWork) {
  EXPECT_THAT(help_text({"generate"}, {.section = "generate"}), HasSubstr("--generate.prompt  (or --prompt)  text"));
  EXPECT_THAT(help_text({"generate"}), Not(HasSubstr("(or --prompt)")));
  EXPECT_THAT(help_text({"launch"}, {.others = &other_systems()}), HasSubstr("--launch.nnodes  (or --nnodes)"));
}

TEST(Refusals, HelpKnowsSingleSettings) {
  const std::string help = help_text({"train.max_norm"});
  EXPECT_THAT(help, HasSubstr("--train.max_norm"));
  EXPECT_THAT(help, Not(HasSubstr("--train.max_steps")));
  try {
    help_text({"max_norm"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("it is train.max_norm"));
  }
}

TEST(Refusals, TheLowestLearningRateFollowsTheHighest) {
  EXPECT_EQ(verdict(settings_from("--optimizer.lr 3e-5"), 1), "");
  EXPECT_DOUBLE_EQ(lowest_lr(settings_from("--optimizer.lr 3e-5")), 3e-6);
  EXPECT_EQ(lowest_lr(settings_from("--optimizer.lr 2e-3")), 6e-5);
  EXPECT_EQ(lowest_lr(settings_from("--train.min_lr 1e-7")), 1e-7);
}

TEST(Refusals, OfAStepThatIsTooLongAList) {
  EXPECT_EQ(verdict(settings_from("--train.global_batch_size 100000 --train.micro_batch_size 1"), 1), "");
  EXPECT_THAT(verdict(settings_from("--train.global_batch_size 1e9 --train.micro_batch_size 4"), 2),
              testing::AllOf(HasSubstr("a step of 125,000,000 micro-batches on each rank is too long a list"),
                             HasSubstr("raise train.micro_batch_size")));
  EXPECT_THAT(refusal({"--train.micro_batch_size", "9e15"}), HasSubstr("train.micro_batch_size must be at least 1"));
  EXPECT_THAT(refusal({"--grpo.num_generations", "9e15"}), HasSubstr("grpo.num_generations must be at least 1"));
  EXPECT_THAT(refusal({"--generate.cache_tokens", "9e15"}), HasSubstr("generate.cache_tokens must be at least 1"));
}

// An int holds these numbers, and 4294967296 would be 0 there: all checkpoints, as many threads as there are cores.
TEST(Refusals, OfNumbersThatNoRunCanHave) {
  for (const char* key : {"launch.threads_per_rank", "launch.max_restarts", "save.keep_last"})
    EXPECT_THAT(refusal({fmt::format("--{}", key), "4294967296"}), HasSubstr(fmt::format("{} must be at least", key)));
}

TEST(Refusals, OfAnAddressForNumbersThatIsNone) {
  EXPECT_EQ(verdict(settings_from("--train.prometheus_port 9100 --train.prometheus_address 0.0.0.0"), 1), "");
  EXPECT_THAT(verdict(settings_from("--train.prometheus_port 9100 --train.prometheus_address localhost"), 1),
              HasSubstr("train.prometheus_address localhost is no IPv4 address"));
}

TEST(Refusals, OfBackendsThatCannotCarryARun) {
  const auto refusal_of_backend = [](const std::string& backend, int64_t ranks) -> std::string {
    try {
      validate_backend(settings_from("--comm.backend " + backend), ranks);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_of_backend("dry-run", 1), HasSubstr("trireme explain"));
  EXPECT_THAT(refusal_of_backend("threads", 2), HasSubstr("shm or gloo"));
  EXPECT_EQ(refusal_of_backend("threads", 1), "");
  EXPECT_EQ(refusal_of_backend("gloo", 2), "");
  EXPECT_EQ(verdict(settings_from("--comm.backend dry-run"), 2), "");  // for plans
  EXPECT_THAT(verdict(settings_from("--comm.backend nccl"), 2), HasSubstr("needs accelerator cuda"));
}

std::string refusal_of_places(const std::string& arguments) {
  try {
    validate_places(settings_from(arguments));
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Refusals, OfPlacesThatCannotBeWritten) {
  const YamlFile file("x");
  EXPECT_THAT(refusal_of_places("--out_dir " + file.path()), HasSubstr(file.path() + " is a file"));
  EXPECT_THAT(refusal_of_places("--out_dir " + file.path() + "/inside"), HasSubstr(file.path() + " is a file"));
  EXPECT_THAT(refusal_of_places("--bench.json /nowhere/at/all.json"), HasSubstr("there is no folder /nowhere/at"));
  EXPECT_THAT(refusal_of_places("--evaluate.json /tmp"), HasSubstr("is a folder"));
  EXPECT_EQ(refusal_of_places("--out_dir /tmp/trireme-none/x --profile.schedule /tmp/trireme-none/x/s.svg"), "");
  EXPECT_EQ(refusal_of_places("--out_dir new --bench.json result.json"), "");
  for (const std::string& device : std::vector<std::string>{"/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})
    EXPECT_THAT(refusal_of_places("--evaluate.json " + device), HasSubstr(device + " is a device or a pipe"));
  EXPECT_EQ(refusal_of_places("--evaluate.json /dev/shm/result.json"), "");
  EXPECT_THAT(refusal_of_places("--generate.output -"), HasSubstr("generate.output - is not standard output"));
  EXPECT_THAT(refusal_of_places("--evaluate.json -"), HasSubstr("evaluate.json - is not standard output"));
}

TEST(Refusals, OfFoldersToOffloadTo) {
  const YamlFile file("x");
  const auto refusal = [](const std::string& path) {
    return refusal_of_places("--offload.optimizer disk --offload.path " + path);
  };
  EXPECT_THAT(refusal(file.path()), HasSubstr("offload.path " + file.path() + ": Not a directory\n  set offload.path"));
  EXPECT_THAT(refusal("/nowhere"), HasSubstr("offload.path /nowhere: No such file or directory\n  set offload.path"));
}

// A folder in which nobody may write. access() asks for the real user, whom root exchanges here.
class ReadOnlyFolder {
 public:
  ReadOnlyFolder() : path_(std::filesystem::temp_directory_path() / fmt::format("read-only-{}", ::getpid())) {
    std::filesystem::create_directory(path_);
    ::chmod(path_.c_str(), 0555);
    if (::geteuid() == 0) is_root_ = ::setreuid(65534, 0) == 0;
    can_write_ = ::access(path_.c_str(), W_OK) == 0;
  }
  ~ReadOnlyFolder() {
    if (is_root_) EXPECT_EQ(::setreuid(0, 0), 0);
    std::filesystem::remove(path_);
  }
  std::string path() const { return path_.string(); }
  bool can_write() const { return can_write_; }  ///< root, who may not become another user

 private:
  std::filesystem::path path_;
  bool is_root_ = false, can_write_ = false;
};

TEST(Refusals, OfFoldersInWhichNothingCanBeWritten) {
  const ReadOnlyFolder folder;
  if (folder.can_write()) GTEST_SKIP() << "this user may write everywhere";
  EXPECT_THAT(refusal_of_places("--evaluate.json " + folder.path() + "/new.json"),
              HasSubstr("new.json cannot be written: Permission denied\n  name a file in another folder"));
  EXPECT_THAT(refusal_of_places("--offload.optimizer disk --offload.path " + folder.path()),
              HasSubstr("offload.path " + folder.path() + ": Permission denied"));
  validate_out_dir(std::filesystem::temp_directory_path() / "new" / "mine");
  try {
    validate_out_dir(folder.path() + "/new/mine");
    ADD_FAILURE() << "nothing was refused";
  } catch (const UsageError& refusal) {
    EXPECT_THAT(refusal.what(), HasSubstr("out_dir " + folder.path() + "/new/mine: nothing can be written in " +
                                          folder.path() + ": Permission denied\n  name a folder"));
  }
}

TEST(Refusals, OfResultsBehindALinkThatCannotBeWritten) {
  const std::string link = std::filesystem::temp_directory_path() / fmt::format("trireme-link-{}", ::getpid());
  const auto refusal_of_link_to = [&](const std::string& target) {
    std::filesystem::remove(link);
    std::filesystem::create_symlink(target, link);
    return refusal_of_places("--evaluate.json " + link);
  };
  EXPECT_THAT(refusal_of_link_to("/nowhere/at/all.json"), HasSubstr("there is no folder /nowhere/at"));
  EXPECT_THAT(refusal_of_link_to("/proc/self/fd/1"), HasSubstr(link + " is a device or a pipe"));
  EXPECT_EQ(refusal_of_link_to("new.json"), "");
  EXPECT_THAT(refusal_of_places("--evaluate.json " + link + " --evaluate.predictions " +
                                (std::filesystem::temp_directory_path() / "new.json").string()),
              HasSubstr("is the file of evaluate.predictions, too"));
  std::filesystem::remove(link);
}

TEST(Refusals, OfResultsThatWouldBeWrittenOverAnotherFile) {
  const YamlFile file("x");
  const std::filesystem::path path = file.path();
  const std::string there = path.string(), also = (path.parent_path() / "." / path.filename()).string();
  EXPECT_THAT(refusal_of_places("--evaluate.classify " + there + " --evaluate.predictions " + also),
              testing::AllOf(HasSubstr("evaluate.predictions " + also + " is the file of evaluate.classify, too"),
                             HasSubstr("name another file")));
  EXPECT_THAT(refusal_of_places("--evaluate.tasks [piqa=a.jsonl,copa=" + there + "] --evaluate.json " + there),
              HasSubstr("is the file of evaluate.tasks, too"));
  EXPECT_THAT(refusal_of_places("--generate.prompts new.jsonl --generate.output ./new.jsonl"),
              HasSubstr("is the file of generate.prompts, too"));
  const std::string both = refusal_of_places("--evaluate.json new.json --evaluate.predictions new.json");
  EXPECT_THAT(both, HasSubstr("evaluate.json new.json is the file of evaluate.predictions, too"));
  EXPECT_EQ(both.find("error:"), both.rfind("error:")) << both;
  EXPECT_EQ(refusal_of_places("--evaluate.json a.json --evaluate.predictions b.jsonl --evaluate.text c.txt"), "");
}

TEST(Refusals, OfFilesOfTheModelThatIsRead) {
  namespace fs = std::filesystem;
  const fs::path run = fs::temp_directory_path() / fmt::format("results-beside-a-model-{}", ::getpid());
  const std::string model = (run / "step-00000001").string();
  fs::create_directories(model);
  for (const char* name : {"config.json", "model.safetensors"}) std::ofstream(fs::path(model) / name) << "{}";
  for (const std::string& named : {model, run.string(), run.string() + "/"})
    for (const char* name : {"model.safetensors", "config.json"})
      EXPECT_THAT(refusal_of_places(fmt::format("--evaluate.checkpoint {} --evaluate.json {}/{}", named, model, name)),
                  testing::AllOf(HasSubstr(fmt::format("{}/{} is a file of the model in {}", model, name, model)),
                                 HasSubstr("name one in another folder")));
  EXPECT_EQ(refusal_of_places(fmt::format("--evaluate.checkpoint {0} --evaluate.json {0}/new.json", model)), "");
  std::ofstream(fs::path(model) / "old.json") << "{}";
  EXPECT_EQ(refusal_of_places(fmt::format("--evaluate.checkpoint {0} --evaluate.json {0}/old.json", model)), "")
      << "an earlier result";
  EXPECT_THAT(refusal_of_places(fmt::format("--evaluate.checkpoint other --evaluate.json {}/config.json", model)),
              HasSubstr("is a file of the model in"))
      << "also of one that this command does not read";
  for (const char* name : {"run.json", "metrics.jsonl"}) std::ofstream(run / name) << "{}";
  for (const char* name : {"run.json", "metrics.jsonl"})
    EXPECT_THAT(refusal_of_places(fmt::format("--evaluate.json {}/{}", run.string(), name)),
                HasSubstr("is a file of the run in"));
  fs::remove_all(run);
}

TEST(Refusals, OfFilesThatAreNoEarlierResults) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("no-results-{}", ::getpid());
  fs::create_directories(folder);
  const auto refused = [&](const char* key, const char* name, const std::string& contents) {
    const std::string file = (folder / name).string();
    std::ofstream(file) << contents;
    return refusal_of_places(fmt::format("--{} {}", key, file));
  };
  EXPECT_THAT(refused("evaluate.json", "notes.txt.json", "my notes"),
              HasSubstr("holds something else than an earlier"));
  EXPECT_THAT(refused("profile.schedule", "m.yaml", "train:\n"), HasSubstr("holds something else than an earlier"));
  for (const auto& [key, name, contents] : {std::tuple("evaluate.json", "a.json", " {}"),
                                            {"evaluate.predictions", "b", ""},
                                            {"profile.schedule", "c.svg", "<svg"},
                                            {"profile.schedule", "d.txt", "rank"}})
    EXPECT_EQ(refused(key, name, contents), "");
  EXPECT_THAT(refusal_of_places(fmt::format("--evaluate.text {0} --evaluate.json {0}/a.json", folder.string())),
              HasSubstr("is a file in the folder of evaluate.text"));
  Settings blank;
  blank.out_dir = "  ";
  EXPECT_THROW(validate_places(blank), UsageError);
  fs::remove_all(folder);
}

TEST(Refusals, OfACommandsOwnFiles) {
  std::optional<std::string> output = "/nowhere/at/all.json";
  const auto refusal_of_own = [&]() -> std::string {
    try {
      validate_places(std::vector<Section>{
          {.name = "", .title = "", .rows = {{"output", &output, "file", {.writes_file = true}}}}});
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_of_own(), HasSubstr("output /nowhere/at/all.json cannot be written: there is no folder"));
  output = "all.json";
  EXPECT_EQ(refusal_of_own(), "");
  output.reset();
  EXPECT_EQ(refusal_of_own(), "");
}

}  // namespace
}  // namespace trireme
