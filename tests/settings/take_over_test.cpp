#include "trireme/settings/take_over.h"

#include <algorithm>

#include "settings_test.h"
#include "trireme/config/declaration.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParsedSettings taken(const std::string& saved, const std::vector<std::string>& now) {
  ParsedSettings parsed = parse_line(now);
  take_over(parsed, to_yaml(settings_from(saved)), "out/a/step-00000010");
  return parsed;
}

TEST(TakeOver, ARunKeepsItsSettingsAndTheCommandLineChangesSingleOnes) {
  const std::string saved =
      "llama-32m model.hidden_size=256 data=TextFiles data.train_data_path=t.txt train.global_batch_size=16 "
      "train.max_steps=100 optimizer.lr=1e-4 optimizer.betas=[0.9,0.95] save.keep_last=7 seed=5 recompute=full";
  const ParsedSettings parsed = taken(saved, {"--optimizer.lr", "3e-4"});
  Settings wanted = settings_from(saved);
  wanted.optimizer.lr = 3e-4;
  EXPECT_EQ(parsed.settings, wanted);
  EXPECT_EQ(parsed.provenance.at("train.global_batch_size").place, "checkpoint out/a/step-00000010");
  EXPECT_FALSE(parsed.given("train.global_batch_size"));
  EXPECT_THAT(explain(parsed), HasSubstr("checkpoint out/a/step-00000010"));
}

TEST(TakeOver, WhereAndOnHowManyRanksIsNotTheCheckpointsToSay) {
  const ParsedSettings parsed = taken(
      "llama-32m out_dir=out/a devices=8 num_nodes=2 strategy=hybrid_shard mesh.replicate=2 mesh.tp=2 "
      "comm.backend=gloo "
      "launch.threads_per_rank=3 launch.max_restarts=2 resume=true overwrite=true profile.schedule=x.svg",
      {});
  Settings wanted;
  wanted.model.name = "llama-32m";
  EXPECT_EQ(parsed.settings, wanted);
}

TEST(TakeOver, EverySettingIsOfTheRunOrOfThePlace) {
  all_settings().for_each([](const Section& section, const Setting& setting) {
    const std::string_view group = section.name;
    const bool of_the_run = group == "model" || group == "data" || group == "train" || group == "eval" ||
                            group == "optimizer" || group == "lr_schedule" || group == "precision" || group == "save" ||
                            group == "recompute" || group == "lora" || group == "checkpoint" || group == "free" ||
                            group == "objective" || group == "dpo" || group == "grpo" || group == "reward";
    const bool of_one_start = setting.key == "data.on_change";  // a permission, which is given once
    if (!group.empty()) {
      EXPECT_EQ(all_settings().resumed(setting.key) != Resumed::no, of_the_run && !of_one_start) << setting.key;
    }
  });
}

TEST(TakeOver, OfAModelDataOrOptimizerOfAnotherNameNothingIsTaken) {
  const std::string saved =
      "llama-32m model.hidden_size=256 data=TextFiles data.train_data_path=t.txt optimizer=SGD optimizer.momentum=0.9";
  const Settings same = taken(saved, {"llama-32m"}).settings;
  EXPECT_EQ(same.model.hidden_size, 256);
  const Settings other = taken(saved, {"llama-5m", "--optimizer=AdamW", "--data=Austen"}).settings;
  EXPECT_FALSE(other.model.hidden_size);
  EXPECT_FALSE(other.optimizer.momentum);
  EXPECT_FALSE(other.data.train_data_path);
}

TEST(TakeOver, DetailsGoWithWhatTheyAreDetailsOf) {
  const std::string saved =
      "llama-32m train.lr_decay=polynomial lr_schedule.power=2 lr_schedule.first_step=0 precision=bf16-true "
      "precision.rounding=kahan";
  const Settings same = taken(saved, {"--train.lr_decay=polynomial", "--precision=bf16-true"}).settings;
  EXPECT_EQ(same.lr_schedule.power, 2);
  EXPECT_EQ(same.precision.rounding, model::Rounding::kahan);
  const Settings other = taken(saved, {"--train.lr_decay=cosine", "--precision=bf16-mixed"}).settings;
  EXPECT_FALSE(other.lr_schedule.power);
  EXPECT_EQ(other.lr_schedule.first_step, 0);  // every schedule with a warm-up has it
  EXPECT_EQ(other.precision.rounding, model::Rounding::nearest);
  const std::string halves =
      "llama-32m precision=16-mixed precision.scale_rule=deepspeed precision.loss_scale_hysteresis=4";
  EXPECT_EQ(taken(halves, {}).settings.precision.loss_scale_hysteresis, 4);
  EXPECT_FALSE(taken(halves, {"--precision.scale_rule=torch"}).settings.precision.loss_scale_hysteresis);
}

TEST(TakeOver, ADefaultOfAnotherSystemsFileDoesNotShiftTheSchedule) {
  const auto first_step = [](const std::string& place, const std::string& schedule) {
    ParsedSettings parsed = parse_line({"--train.lr_decay=" + schedule});
    parsed.settings.lr_schedule.first_step = 1;
    parsed.provenance["lr_schedule.first_step"] = {config::Source::Kind::file, place, ""};
    take_over(parsed, "lr_schedule:\n  first_step: 0\n", "out/c");
    return parsed.settings.lr_schedule.first_step;
  };
  EXPECT_EQ(first_step("pythia.yaml: LitGPT's default", "cosine"), 0);
  EXPECT_EQ(first_step("pythia.yaml:4", "cosine"), 1);  // the user's own
  EXPECT_EQ(taken("llama-32m lr_schedule.first_step=0", {"--train.lr_decay=WarmupLR"}).settings.lr_schedule.first_step,
            1);  // which has none
}

TEST(TakeOver, AMixtureAndASinglePathReplaceEachOther) {
  const std::string single = "llama-32m data=TextFiles data.train_data_path=a.txt data.seed=7";
  const std::string mixed = "llama-32m data=TextFiles data.mixture=[3a.txt,1b.txt] data.seed=7";
  const Settings to_mixture = taken(single, {"--data.mixture", "[3 a.txt, 1 b.txt]"}).settings;
  EXPECT_EQ(to_mixture.data.train_data_path, std::nullopt);
  EXPECT_EQ(to_mixture.data.seed, 7);
  const Settings to_path = taken(mixed, {"--data.train_data_path", "a.txt"}).settings;
  EXPECT_EQ(to_path.data.mixture, std::nullopt);
  EXPECT_EQ(to_path.data.train_data_path, "a.txt");
  EXPECT_THAT(*taken(mixed, {}).settings.data.mixture, ElementsAre("3a.txt", "1b.txt"));
  EXPECT_EQ(taken(single, {"--data.mixture", "null"}).settings.data.train_data_path, "a.txt");
}

TEST(TakeOver, ARefusalOfAValueOfTheCheckpointSaysHowToSetItBack) {
  const auto told = [](const std::string& saved, const std::vector<std::string>& now) -> std::string {
    try {
      validate(taken(saved, now));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const std::string saved = "llama-5m train.max_steps=9 train.max_norm=null optimizer.in_backward=true";
  EXPECT_EQ(told(saved, {}), "");
  EXPECT_THAT(told(saved, {"--train.max_norm=1"}),
              HasSubstr("\n  optimizer.in_backward true comes from the checkpoint out/a/step-00000010: "
                        "--optimizer.in_backward false sets it back"));
  EXPECT_THAT(told(saved, {"--train.max_norm=1", "--optimizer.in_backward=true"}),
              testing::Not(HasSubstr("comes from the checkpoint")));
  const std::string short_one = "llama-5m train.max_steps=9 model.max_position_embeddings=64";
  const std::string text = told(short_one, {"--train.max_seq_length=128"});
  EXPECT_THAT(text, HasSubstr("do not fit a model made for 64"));
  EXPECT_THAT(text, testing::Not(HasSubstr("--model ")));  // which is a word there
}

TEST(TakeOver, AnEndThatIsGivenReplacesTheRunsEnds) {
  const Settings s = taken("llama-32m train.max_steps=100 train.max_tokens=5000", {"--train.epochs", "2"}).settings;
  EXPECT_EQ(s.train.epochs, 2);
  EXPECT_FALSE(s.train.max_steps);
  EXPECT_FALSE(s.train.max_tokens);
}

TEST(TakeOver, AKeyThatIsNoneAnyMoreIsLeftOutAndAValueThatIsNoneIsRefused) {
  ParsedSettings parsed = parse_line({});
  take_over(parsed, "seed: 9\nold_setting: 3\ntrain:\n  gone: 4\n", "c");
  EXPECT_EQ(parsed.settings.seed, 9);
  try {
    take_over(parsed, "precision: 3-true\n", "out/c");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint out/c has this value; give another --precision"));
  }
}

TEST(SettingsIn, AreThoseOfTheRunThatSavedThem) {
  const Settings saved = settings_from("llama-32m optimizer=SGD optimizer.momentum=0.9 precision=bf16-true devices=4");
  EXPECT_EQ(settings_in(to_yaml(saved)), saved);
  EXPECT_EQ(settings_in("old_setting: 3\noptimizer: none of ours\n"), Settings{});
}

TEST(ToGiveAgain, IsWhatACheckpointDoesNotKeepOrHasOtherwise) {
  const std::string saved = to_yaml(settings_from("llama-32m train.max_steps=100 optimizer.lr=1e-4 devices=2"));
  const auto words = [&](const std::string& more) {
    std::string line;
    for (const auto& [key, value] : to_give_again(saved, settings_from("llama-32m devices=2 " + more)))
      line += "--" + key + " " + value + " ";
    return line;
  };
  EXPECT_EQ(words("train.max_steps=100 optimizer.lr=1e-4 launch.threads_per_rank=3"), "");
  EXPECT_EQ(words("train.max_steps=400 optimizer.lr=1e-4 strategy=no_shard mesh.tp=2"),
            "--strategy no_shard --train.max_steps 400 --mesh.tp 2 ");
  EXPECT_EQ(words("train.max_tokens=400 optimizer.lr=2e-4 data.on_change=restart"),
            "--data.on_change restart --train.max_tokens 400 --optimizer.lr 0.0002 ");
  const std::string mesh = "train.max_steps=100 optimizer.lr=1e-4 pipeline.schedule=zb_v mesh.context=ulysses ";
  EXPECT_EQ(words(mesh), "") << "nothing reads them without mesh.pp and mesh.cp";
  EXPECT_THAT(words(mesh + "mesh.pp=2"), HasSubstr("--pipeline.schedule zb_v"));
}

TEST(ChangesSince, TellsWhatChangesWhatIsLearnedAndNothingElse) {
  const std::string saved = to_yaml(settings_from("llama-32m train.global_batch_size=64 optimizer.lr=1e-3 seed=1"));
  EXPECT_THAT(changes_since(saved, settings_from("llama-32m train.global_batch_size=32 optimizer.lr=2e-3 seed=2 "
                                                 "model.tie_word_embeddings=true devices=4 save.keep_last=1 "
                                                 "train.log_interval=5 out_dir=out/b")),
              ElementsAre("seed was 1, is 2 now", "model.tie_word_embeddings was null, is true now",
                          "train.global_batch_size was 64, is 32 now", "optimizer.lr was 0.001, is 0.002 now"));
  EXPECT_THAT(changes_since(saved, settings_from("llama-32m optimizer.lr=0.001 seed=1")), IsEmpty());
  EXPECT_THAT(changes_since("", Settings{}), IsEmpty());
}

}  // namespace
}  // namespace trireme
