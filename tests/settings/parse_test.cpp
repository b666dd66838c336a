#include "trireme/settings/parse.h"

#include <chrono>

#include "settings_test.h"
#include "trireme/base/stopwatch.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Parse, WithoutArgumentsEverythingIsTheDefault) {
  const ParsedSettings parsed = parse_line({});
  EXPECT_EQ(parsed.settings, Settings{});
  EXPECT_EQ(parsed.provenance.at("train.micro_batch_size").place, "default");
  EXPECT_FALSE(parsed.given("train.micro_batch_size"));
}

TEST(Parse, ThreeSpellingsOfAnArgumentMeanTheSame) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--train.micro_batch_size", "7"},
                                                    {"--train.micro_batch_size=7"},
                                                    {"train.micro_batch_size=7"}}) {
    EXPECT_EQ(parse_line(arguments).settings.train.micro_batch_size, 7) << arguments[0];
  }
}

TEST(Parse, EveryTypeIsRead) {
  const Settings s = parse_line({"llama-32m",
                                 "--devices",
                                 "2",
                                 "--optimizer.lr=2e-3",
                                 "--optimizer.betas",
                                 "[0.9, 0.95]",
                                 "--comm.timeout",
                                 "1500ms",
                                 "--save.max_shard_bytes=16MiB",
                                 "--train.max_tokens",
                                 "3e9",
                                 "--strategy",
                                 "ddp",
                                 "--resume",
                                 "out/run",
                                 "--launch.pin",
                                 "false",
                                 "--engine.poison",
                                 "--model.tie_word_embeddings=true",
                                 "--train.max_norm=null",
                                 "--mesh.shard",
                                 "auto",
                                 "--data",
                                 "TextFiles",
                                 "--data.train_data_path",
                                 "a file.txt"})
                         .settings;
  EXPECT_EQ(s.model.name, "llama-32m");
  EXPECT_EQ(s.devices, 2);
  EXPECT_EQ(s.optimizer.lr, 2e-3);
  EXPECT_EQ(s.optimizer.betas, (std::array<double, 2>{0.9, 0.95}));
  EXPECT_EQ(s.comm.timeout, 1500ms);
  EXPECT_EQ(s.save.max_shard_bytes, int64_t{16} << 20);
  EXPECT_EQ(s.train.max_tokens, 3'000'000'000);
  EXPECT_EQ(s.strategy, Strategy::no_shard);
  EXPECT_EQ(s.resume, (train::Resume{train::Resume::From::folder, "out/run"}));
  EXPECT_FALSE(s.launch.pin);
  EXPECT_TRUE(s.engine.poison);
  EXPECT_EQ(s.model.tie_word_embeddings, true);
  EXPECT_EQ(s.train.max_norm, std::nullopt);
  EXPECT_EQ(s.mesh.shard, std::nullopt);
  EXPECT_EQ(s.data.name, data::Corpus::text_files);
  EXPECT_EQ(s.data.train_data_path, "a file.txt");
}

TEST(Parse, AFlagDoesNotSwallowThePositionalValue) {
  const Settings s = parse_line({"--engine.poison", "llama-5m"}).settings;
  EXPECT_TRUE(s.engine.poison);
  EXPECT_EQ(s.model.name, "llama-5m");
}

TEST(Parse, AWordBehindAFlagIsItsValueInAnyCase) {
  for (const char* word : {"false", "False", "FALSE", "No", "OFF"}) {
    const Settings s = parse_line({"--data.append_eos", word, "llama-5m"}).settings;
    EXPECT_FALSE(s.data.append_eos) << word;
    EXPECT_EQ(s.model.name, "llama-5m") << word;
  }
}

TEST(Parse, NegativeNumbersAreValues) {
  EXPECT_THAT(refusal({"--seed", "-1"}), HasSubstr("seed must be at least 0, not -1"));
}

TEST(Parse, StrategyAliasesAreOneTable) {
  const std::vector<std::pair<const char*, Strategy>> words = {{"ddp", Strategy::no_shard},
                                                               {"zero1", Strategy::zero1},
                                                               {"zero2", Strategy::shard_grad_op},
                                                               {"shard_grad_op", Strategy::shard_grad_op},
                                                               {"zero3", Strategy::full_shard},
                                                               {"fsdp", Strategy::full_shard},
                                                               {"hsdp", Strategy::hybrid_shard},
                                                               {"hybrid_shard", Strategy::hybrid_shard},
                                                               {"hybrid_zero2", Strategy::hybrid_shard_zero2},
                                                               {"_HYBRID_SHARD_ZERO2", Strategy::hybrid_shard_zero2},
                                                               {"hybrid_shard_zero2", Strategy::hybrid_shard_zero2}};
  for (const auto& [word, strategy] : words) {
    EXPECT_EQ(parse_line({std::string("strategy=") + word}).settings.strategy, strategy) << word;
  }
  EXPECT_THAT(refusal({"strategy=full_shrd"}), HasSubstr("the nearest is full_shard"));
}

TEST(Parse, EveryParallelismCanBeAskedFor) {
  const Settings s =
      parse_line({"mesh.pp=4", "mesh.cp=2", "mesh.tp=8", "mesh.shard=auto", "--mesh.sequence_parallel",
                  "mesh.context=ulysses", "pipeline.schedule=zb_v", "pipeline.chunks=2", "accumulation=local",
                  "reduce=fast", "schedule.prefetch_forward=false", "schedule.prefetch_backward=post",
                  "schedule.limit_unsharded=5e8", "schedule.reduce_lag=2", "wrap.by=layer", "wrap.min_num_params=1e6",
                  "optimizer.lr_scaling=sqrt", "optimizer.base_batch_size=32"})
          .settings;
  EXPECT_EQ(s.mesh.pp, 4);
  EXPECT_EQ(s.mesh.cp, 2);
  EXPECT_EQ(s.mesh.tp, 8);
  EXPECT_EQ(s.mesh.shard, std::nullopt);
  EXPECT_TRUE(s.mesh.sequence_parallel);
  EXPECT_EQ(s.mesh.context, Context::ulysses);
  EXPECT_EQ(s.pipeline.schedule, "zb_v");
  EXPECT_EQ(s.pipeline.chunks, 2);
  EXPECT_EQ(s.accumulation, Accumulation::local);
  EXPECT_FALSE(s.schedule.prefetch_forward);
  EXPECT_EQ(s.schedule.prefetch_backward, PrefetchBackward::post);
  EXPECT_EQ(s.schedule.limit_unsharded, 500'000'000);
  EXPECT_EQ(s.schedule.reduce_lag, 2);
  EXPECT_EQ(s.wrap.by, WrapBy::layer);
  EXPECT_EQ(s.wrap.min_num_params, 1'000'000);
  EXPECT_EQ(s.optimizer.lr_scaling, LrScaling::sqrt);
  EXPECT_EQ(s.optimizer.base_batch_size, 32);
}

TEST(Parse, ListsAreWrittenWithOrWithoutBrackets) {
  for (const char* text : {"[4,4,4,3]", "4,4,4,3", "(4, 4, 4, 3)", " [ 4 , 4 , 4 , 3 ] "}) {
    EXPECT_EQ(parse_line({"--pipeline.split", text}).settings.pipeline.split, (std::vector<int64_t>{4, 4, 4, 3}))
        << text;
  }
  EXPECT_EQ(parse_line({"pipeline.split=auto"}).settings.pipeline.split, std::nullopt);
  EXPECT_EQ(parse_line({"recompute.values=mid"}).settings.recompute.values, (std::vector<std::string>{"mid"}));
  EXPECT_EQ(parse_line({"wrap.units=[embedding, 'block 3', head]"}).settings.wrap.units,
            (std::vector<std::string>{"embedding", "block 3", "head"}));
}

TEST(Parse, AListThatDoesNotFitIsRefused) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"pipeline.split=4,x", "pipeline.split wants a list of whole numbers or auto, not '4,x'"},
      {"pipeline.split=4,,3", "wants a list of whole numbers"},
      {"pipeline.split=[4,3", "wants a list of whole numbers"},
      {"pipeline.split=4,0", "pipeline.split must be at least 1, not 4,0"},
      {"pipeline.split=[]", "wants a list of whole numbers or auto, not '[]'"},
      {"recompute.values=[mid,hiden]",
       "recompute.values wants a list of qkv, attended, mid or hidden, not "
       "'[mid,hiden]'\n  command line: recompute.values=[mid,hiden]\n"
       "  the nearest is hidden"},
      {"recompute.values=", "wants a list of qkv"},
      {"seed=[1]", "seed wants a whole number, not '[1]'"}};
  for (const auto& [argument, text] : wrong) EXPECT_THAT(refusal({argument}), HasSubstr(text)) << argument;
}

TEST(Parse, MethodsThatAreNotBuiltAreRefusedByName) {
  EXPECT_THAT(refusal({"mesh.ep=2"}), HasSubstr("mesh.ep is not available\n  command line: mesh.ep=2\n"
                                                "  the axis ep is reserved for experts"));
  EXPECT_THAT(refusal({"train.lr_warmup_fraction=0.1"}), HasSubstr("train.lr_warmup_steps"));
  EXPECT_THAT(refusal({"--quantize", "bnb.int8"}), HasSubstr("quantize wants none, bnb.nf4"));
}

TEST(Parse, AMistypedKeyIsRefusedInTheShapeOfTheHouse) {
  const YamlFile file("model: llama-5m\ntrain:\n  learnig_rate: 2e-3\n");
  EXPECT_EQ(refusal({"--config", file.path()}), "error: unknown setting train.learnig_rate\n  " + file.path() +
                                                    ":3: learnig_rate: 2e-3\n  the learning rate is optimizer.lr");
}

TEST(Parse, AWrongTypeNamesTheTypeAndShowsWhatWasGiven) {
  EXPECT_EQ(refusal({"--train.max_steps", "many"}),
            "error: train.max_steps wants a whole number or null, not 'many'\n  command line: --train.max_steps many");
  EXPECT_THAT(refusal({"--train.log_interval", "1.5"}), HasSubstr("wants a whole number, not '1.5'"));
  EXPECT_THAT(refusal({"--launch.pin=maybe"}), HasSubstr("wants true or false, not 'maybe'"));
  EXPECT_THAT(refusal({"--optimizer.betas=0.9"}),
              HasSubstr("wants two numbers such as [0.9, 0.95] or auto, not '0.9'"));
  EXPECT_THAT(refusal({"--comm.timeout=soon"}), HasSubstr("wants a time such as 30s"));
  EXPECT_THAT(refusal({"--save.max_shard_bytes=big"}), HasSubstr("wants a size such as 512MiB"));
  EXPECT_THAT(refusal({"--optimizer.lr="}), HasSubstr("wants a number, not an empty text"));
  EXPECT_THAT(refusal({"--data=OpenWebText"}),
              HasSubstr("JSON, Alpaca, Alpaca2k, AlpacaGPT4, Dolly, LongForm, FLAN, LIMA or Deita, not 'OpenWebText'"));
}

TEST(Parse, OutOfRangeSaysTheBound) {
  EXPECT_EQ(refusal({"--devices", "0"}),
            "error: devices must be at least 1 and at most 100,000, not 0\n  command line: --devices 0");
  EXPECT_THAT(refusal({"--data.val_split_fraction=1"}), HasSubstr("must be above 0 and below 1, not 1"));
  EXPECT_THAT(refusal({"--optimizer.betas=[0.9,1.0]"}), HasSubstr("optimizer.betas must be at least 0 and below 1"));
  EXPECT_THAT(refusal({"--comm.timeout=0s"}), HasSubstr("comm.timeout must be above 0s"));
  EXPECT_EQ(refusal({"--generate.top_p=1"}), "");
}

TEST(Parse, AllThatIsWrongIsSaidAtOnce) {
  const std::string text = refusal({"--devices", "0", "--sede=1", "--train.epochs", "x", "a", "b"});
  EXPECT_THAT(text, HasSubstr("error: devices must be at least 1"));
  EXPECT_THAT(text, HasSubstr("\n\nerror: unknown setting sede"));
  EXPECT_THAT(text, HasSubstr("\n\nerror: train.epochs wants"));
  EXPECT_THAT(text, HasSubstr("\n\nerror: what is 'b'?\n  model is a already"));
}

TEST(Parse, ASettingWithoutItsValueIsRefused) {
  EXPECT_THAT(refusal({"--devices"}), HasSubstr("--devices needs a value"));
  EXPECT_THAT(refusal({"--devices", "--seed", "1"}), HasSubstr("--devices needs a value"));
  EXPECT_THAT(refusal({"--config"}), HasSubstr("--config needs the path"));
  EXPECT_THAT(refusal({"--train"}), HasSubstr("train is a group of settings"));
  EXPECT_THAT(refusal({"--tarin.max_step"}), HasSubstr("unknown setting tarin.max_step"));
}

TEST(Parse, LaterArgumentsWinAndAFileCountsWhereItStands) {
  const YamlFile file("seed: 5\ntrain.max_steps: 9\n");
  EXPECT_EQ(parse_line({"--seed=1", "--seed=2"}).settings.seed, 2);
  EXPECT_EQ(parse_line({"--config", file.path(), "--seed=2"}).settings.seed, 2);
  const ParsedSettings parsed = parse_line({"--seed=2", "--config", file.path()});
  EXPECT_EQ(parsed.settings.seed, 5);
  EXPECT_EQ(parsed.settings.train.max_steps, 9);
  EXPECT_EQ(parsed.provenance.at("train.max_steps").place, file.path() + ":2");
}

TEST(Parse, TheEnvironmentComesBeforeTheArguments) {
  const auto environment = [](const char* name) -> const char* {
    if (std::string_view(name) == "TRIREME_SEED") return "7";
    return std::string_view(name) == "TRIREME_TRAIN_MAX_STEPS" ? "8" : nullptr;
  };
  const ParsedSettings parsed = parse_line({"--train.max_steps=9"}, {.environment = environment});
  EXPECT_EQ(parsed.settings.seed, 7);
  EXPECT_EQ(parsed.settings.train.max_steps, 9);
  EXPECT_EQ(parsed.provenance.at("seed").text, "TRIREME_SEED=7");
  EXPECT_TRUE(parsed.given("seed") && parsed.given("train.max_steps"));
  EXPECT_TRUE(!parsed.typed("seed") && parsed.typed("train.max_steps"));
  const auto wrong = [](const char* name) { return std::string_view(name) == "TRIREME_SEED" ? "x" : nullptr; };
  EXPECT_THAT(refusal({}, {.environment = wrong}), HasSubstr("environment: TRIREME_SEED=x"));
}

TEST(Parse, InheritedValuesOfOwnOptionsCountLessThanTypedOnes) {
  int64_t ranks = 1, machines = 1;
  const Section own{
      .name = "", .title = "options", .rows = {{"ranks", &ranks, "ranks"}, {"machines", &machines, "machines"}}};
  const auto inherited = [](const config::Parsed& typed) {
    std::vector<config::Given> given;
    for (const char* key : {"ranks", "machines"})
      if (!typed.typed(key))
        given.push_back({.key = key, .text = "2", .source = {Source::Kind::environment, "environment", "PET=2"}});
    return given;
  };
  const config::Parsed parsed =
      config::parse(std::vector<std::string>{"--ranks", "3"}, {.command = "x", .own = {own}, .inherited = inherited});
  EXPECT_EQ(ranks, 3);
  EXPECT_EQ(machines, 2);
  EXPECT_TRUE(parsed.given("machines") && !parsed.typed("machines"));
  EXPECT_EQ(parsed.provenance.at("machines").text, "PET=2");
}

TEST(Parse, ACommandBringsDefaultsSectionAndPositional) {
  const Overlay generate{
      .values = {{"devices", "1"}}, .command = "generate", .positional = "generate.checkpoint", .section = "generate"};
  const ParsedSettings parsed =
      parse_line({"out/run", "--prompt", "It is a truth", "--seed=3", "--out_dir", "x"}, generate);
  EXPECT_EQ(parsed.settings.generate.checkpoint, "out/run");
  EXPECT_EQ(parsed.settings.generate.prompt, "It is a truth");
  EXPECT_EQ(parsed.settings.generate.seed, 3);
  EXPECT_EQ(parsed.settings.seed, Settings{}.seed);
  EXPECT_EQ(parsed.settings.out_dir, "x");
  EXPECT_EQ(parsed.settings.devices, 1);
  EXPECT_EQ(parsed.provenance.at("devices").place, "default of generate");
  EXPECT_FALSE(parsed.given("devices"));
  EXPECT_FALSE(parsed.typed("devices"));
  EXPECT_TRUE(parsed.given("generate.prompt"));
}

TEST(Parse, APromptMayHoldAnEqualsSign) {
  EXPECT_EQ(parse_line({"--generate.prompt", "a = b"}).settings.generate.prompt, "a = b");
  EXPECT_EQ(parse_line({"--generate.prompt=--x=1"}).settings.generate.prompt, "--x=1");
}

TEST(Parse, HelpIsAnsweredWhateverElseIsWrong) {
  EXPECT_TRUE(parse_line({"--devices", "0", "--help"}).help);
  EXPECT_FALSE(parse_line({}).help);
}

TEST(Parse, RefusingTakesMilliseconds) {
  const base::Stopwatch watch;
  for (int i = 0; i < 10; ++i) EXPECT_NE(refusal({"--train.learnig_rate=1"}), "");
  EXPECT_LT(watch.seconds(), 2.0);  // generous: about 1 ms each even under a sanitizer
}

}  // namespace
}  // namespace trireme
