#include "trireme/train/setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/data/refusal.h"
#include "tests/data/temporary_folder.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/model/from_settings.h"
#include "trireme/observe/metrics.h"
#include "trireme/plan/step_plan.h"
#include "trireme/settings/parse.h"
#include "trireme/train/best_checkpoint.h"
#include "trireme/train/classify.h"
#include "trireme/train/grpo.h"
#include "trireme/train/preferences.h"
#include "trireme/train/texts_apart.h"

namespace trireme::train {
namespace {

// What the launcher compares with the machine's memory is the sum of what its ranks plan, though they differ: the last
// has the smallest shard, the owner of a large tensor holds more, and so does the first stage of a pipeline.
TEST(Setup, AHostNeedsWhatItsRanksPlan) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--optimizer=LAMB", "--strategy=zero1"},
                                               {"--optimizer=Muon", "--strategy=full_shard"},
                                               {"--mesh.pp=4", "--train.global_batch_size=32"},
                                               {"--mesh.pp=2", "--optimizer=LARS", "--strategy=zero2"},
                                               {"--strategy=full_shard"}}) {
    std::vector<std::string> words = {"llama-5m", "--devices=4", "--comm.backend=gloo", "--train.micro_batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    const Settings settings = parse_settings(words).settings;
    const model::ModelConfig config = model::config_of(settings.model);
    const int64_t planned = plan_host(settings);  // first: it sets the number of threads, as a rank does
    std::vector<int64_t> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const plan::StepRequest request = step_request(settings, config, rank, 4);
      const model::Model model = build_run_model(settings, config, request);
      ranks.push_back(plan::make_step_plan(model, request).arena.total());
    }
    EXPECT_EQ(planned, ranks[0] + ranks[1] + ranks[2] + ranks[3]) << more[0];
    EXPECT_NE(planned, 4 * ranks[0]) << more[0];
  }
}

TEST(Setup, MorePassesThanANumberHoldsAreNoEnd) {
  Settings settings;
  settings.train.epochs = 1'000'000'000'000'000'000;
  EXPECT_EQ(run_steps(settings, 64, /*samples_per_epoch=*/12),
            0x7fff'ffff'ffff'ffff / settings.train.global_batch_size);
  settings.train.max_steps = 10;
  EXPECT_EQ(run_steps(settings, 64, /*samples_per_epoch=*/12), 10);
}

// Passes and tokens are counted, not steps: those before a resume may have had another batch.
TEST(Setup, AResumedRunWithAnotherBatchEndsWhereItsDataDo) {
  Settings settings;
  settings.train.global_batch_size = 4;
  settings.train.epochs = 2;
  EXPECT_EQ(run_steps(settings, 64, /*samples_per_epoch=*/16), 8);
  EXPECT_EQ(run_steps(settings, 64, 16, {.step = 5, .samples = 20, .tokens = 20 * 64}), 8);  // the same batch
  EXPECT_EQ(run_steps(settings, 64, 16, {.step = 5, .samples = 10, .tokens = 10 * 64}), 5 + 5);
  EXPECT_EQ(run_steps(settings, 64, 16, {.step = 5, .samples = 40, .tokens = 40 * 64}), 5);  // nothing is left
  settings.train.max_tokens = 24 * 64;
  EXPECT_EQ(run_steps(settings, 64, 16, {.step = 5, .samples = 10, .tokens = 10 * 64}), 5 + 3);
  settings.train.max_steps = 6;
  EXPECT_EQ(run_steps(settings, 64, 16, {.step = 5, .samples = 10, .tokens = 10 * 64}), 6);
}

TEST(Setup, TheSettingThatEndsARunIsNamed) {
  Settings settings;
  settings.train.epochs = 2;
  EXPECT_STREQ(ending_setting(settings, /*last=*/8, /*tokens_done=*/800, /*tokens_per_step=*/100), "train.epochs");
  settings.train.max_tokens = 850;
  EXPECT_STREQ(ending_setting(settings, 8, 800, 100), "train.max_tokens");
  settings.train.max_steps = 8;
  EXPECT_STREQ(ending_setting(settings, 8, 800, 100), "train.max_steps");
}

TEST(Setup, TheBestCheckpointIsOfAStepThatIsSavedAndEvaluated) {
  Settings settings;
  settings.save.keep_best = true;
  settings.train.save_interval = 2;
  settings.eval.interval = 3;
  EXPECT_EQ(unkept_best(settings, /*steps=*/7, /*num_held_out=*/10), "");  // step 6 is both
  EXPECT_EQ(unkept_best(settings, 6, 10),
            "save.keep_best keeps a step that is both saved and evaluated, and before the last there is none; take "
            "train.save_interval 3 or a multiple");
  EXPECT_EQ(unkept_best(settings, 0, 10), "");
  EXPECT_EQ(unkept_best(settings, 2, 10), "");  // only the last step is saved
  EXPECT_NE(unkept_best(settings, 7, 0), "");
  settings.eval.interval = 50;
  EXPECT_TRUE(unkept_best(settings, 6, 10).ends_with("take eval.interval 2"));
  settings.save.keep_best = false;
  EXPECT_EQ(unkept_best(settings, 6, 10), "");
}

TEST(Setup, AnEvaluationWithFailedGroupsIsNotTheBest) {
  const data::TemporaryFolder folder;
  const auto write = [&](const std::string& name, double value, const std::string& failures) {
    std::string rows;
    for (const int step : {1, 2}) {
      observe::MetricsRow row{.step = step, .measures = {{name, step == 2 ? 9 * value : value}}};
      if (step == 2 && !failures.empty()) row.measures.push_back({failures, 3});
      rows += observe::to_json(row) + "\n";
      std::filesystem::create_directories(folder / checkpoint::step_folder_name(step));
    }
    folder.write("metrics.jsonl", rows);
    return checkpoint::step_of(best_checkpoint(folder.path()).value()).value();
  };
  EXPECT_EQ(write("val_reward", 0.1, ""), 2);
  EXPECT_EQ(write("val_reward", 0.1, kHeldOutFailures), 1);
}

TEST(Setup, EvaluationsOfOtherDataAreNotComparedForTheBest) {
  const data::TemporaryFolder folder;
  std::string rows;
  for (const int step : {1, 2, 3}) {  // losses rise
    rows += observe::to_json({.step = step,
                              .val_loss = double(step),
                              .resumed = step == 2 ? std::optional<int64_t>(1) : std::nullopt,
                              .measured_anew = step == 2}) +
            "\n";
    std::filesystem::create_directories(folder / checkpoint::step_folder_name(step));
  }
  folder.write("metrics.jsonl", rows);
  EXPECT_EQ(checkpoint::step_of(best_checkpoint(folder.path()).value()), 2);
}

TEST(Setup, RanksThatClassifyHaveEquallyManyTexts) {
  for (const auto& [ranks, texts] : {std::pair("1", 4), {"2", 4}, {"8", 2}, {"16", 1}, {"3", 1}, {"32", 1}}) {
    const std::vector<std::string> words = {"llama-5m", "--task=classify", "--model.labels=[no, yes]",
                                            "--train.global_batch_size=16", std::string("--devices=") + ranks};
    ParsedSettings parsed = parse_settings(words);
    complete_classification(parsed);
    EXPECT_EQ(parsed.settings.train.micro_batch_size, texts) << ranks;
  }
}

TEST(Setup, AModelWithLabelsIsSentWhereItIsTrained) {
  const auto refusal_with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"llama-5m", "--model.num_labels=2"});
    const Settings settings = parse_settings(more).settings;
    return data::refusal([&] { check_task(settings, model::config_of(settings.model)); });
  };
  EXPECT_EQ(refusal_with({"--task=classify"}), "not refused");
  EXPECT_EQ(refusal_with({}), "a model with labels (model.num_labels) classifies texts: give --task classify");
  for (const char* word : {"--task=rewards", "--task=preferences", "--lora.r=4"})
    EXPECT_EQ(refusal_with({word}),
              "a model with labels classifies texts: train it with trireme finetune_full llama-5m --task classify, or "
              "name a model without labels")
        << word << ": task classify is refused there";
}

TEST(Setup, ATokenizerThatDoesNotFitIsNamedWithAWayOutOfTheCommand) {
  Settings settings = parse_settings(std::vector<std::string>{"llama-5m", "--model.vocab_size=100"}).settings;
  const model::ModelConfig model = model::config_of(settings.model);
  EXPECT_NE(data::refusal([&] { resolve_tokenizer(settings, model); }).find("set model.vocab_size"), std::string::npos);
  const data::TemporaryFolder folder;
  const std::string refused = data::refusal([&] { checkpoint_tokenizer(folder.path(), model); });
  EXPECT_TRUE(refused.ends_with("; put the tokenizer that belongs to this model into its folder")) << refused;
}

TEST(Setup, TextsThatSeeOnlyThemselvesExchangeTokensForHeads) {
  const auto parsed_with = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"llama-5m", "--devices=2", "--mesh.cp=2"});
    return parse_settings(words);
  };
  const auto context_of = [](ParsedSettings parsed, const auto& complete) {
    complete(parsed);
    return parsed.settings.mesh.context;
  };
  const ParsedSettings documents = parsed_with({"--data.reset_attention_mask=true"});
  EXPECT_EQ(context_of(documents, keep_documents_apart), model::Context::ulysses);
  EXPECT_EQ(context_of(parsed_with({}), keep_documents_apart), model::Context::ring);
  EXPECT_EQ(context_of(parsed_with({"--task=preferences"}), complete_preferences), model::Context::ulysses);
  const ParsedSettings rewards =
      parsed_with({"--task=rewards", "--grpo.max_prompt_length=8", "--grpo.max_completion_length=8"});
  EXPECT_EQ(context_of(rewards, complete_grpo), model::Context::ulysses);

  ParsedSettings tuning = parsed_with({"--mesh.context=ring"});
  tuning.settings.data.reset_attention_mask = true;  // fine-tuning's own default
  EXPECT_EQ(data::refusal([&] { keep_documents_apart(tuning); }),
            "fine-tuning keeps each conversation to itself (data.reset_attention_mask), which mesh.context ring "
            "cannot; leave mesh.context out, or take mesh.context ulysses");
}

// Answers in 4 bits lie where no value is between two steps: the arena grows only by what does not fit there.
TEST(Setup, AnswersInFourBitsTakeMemoryThatIsPlannedAnyway) {
  for (const char* texts : {"4", "512"}) {
    std::map<std::string, plan::StepPlan> plans;
    std::vector<std::unique_ptr<model::Model>> models;
    int64_t lent = 0;
    for (const char* format : {"none", "bnb.nf4"}) {
      const std::vector<std::string> words = {"llama-5m",
                                              "--devices=1",
                                              "--task=rewards",
                                              "--grpo.prompts=p.jsonl",
                                              "--grpo.batch_size=64",
                                              "--grpo.num_generations=8",
                                              std::string("--grpo.rollout_batch_size=") + texts,
                                              "--grpo.max_prompt_length=40",
                                              "--grpo.max_completion_length=80",
                                              std::string("--grpo.rollout_quantize=") + format};
      ParsedSettings parsed = parse_settings(words);
      complete_grpo(parsed);
      const model::ModelConfig config = model::config_of(parsed.settings.model);
      const plan::StepRequest request = step_request(parsed.settings, config, 0, 1);
      models.push_back(std::make_unique<model::Model>(build_run_model(parsed.settings, config, request)));
      plans[format] = plan::make_step_plan(*models.back(), request);
      lent = request.lent_bytes;
    }
    const schedule::Arena &plain = plans.at("none").arena, &with = plans.at("bnb.nf4").arena;
    EXPECT_GT(lent, 1 << 20);
    EXPECT_EQ(with.of(schedule::Memory::own),
              std::max(plain.of(schedule::Memory::own), plans.at("bnb.nf4").lent_begin() + schedule::aligned(lent)));
    const plan::MemoryReport report = plan::memory_report(plans.at("bnb.nf4"));
    EXPECT_EQ(report.total_bytes, with.total());
    EXPECT_EQ(report.phases.size(), plan::memory_report(plans.at("none")).phases.size() + 1);
    EXPECT_LE(report.phases.back().bytes, with.total());
    EXPECT_LE(report.lower_bound_bytes, with.total());
  }
}

// A rank keeps its part of what is trained, and its masters while they are exchanged; a host needs both beside arenas.
TEST(Setup, AHostNeedsTheReferenceThatAnswersAreComparedWith) {
  std::map<std::string, int64_t> references;
  for (const char* beta : {"0", "0.1"}) {
    const std::vector<std::string> words = {"llama-5m",
                                            "--devices=2",
                                            "--comm.backend=gloo",
                                            "--precision=bf16-mixed",
                                            "--task=rewards",
                                            "--grpo.prompts=p.jsonl",
                                            "--grpo.max_prompt_length=40",
                                            "--grpo.max_completion_length=80",
                                            std::string("--grpo.beta=") + beta};
    ParsedSettings parsed = parse_settings(words);
    complete_grpo(parsed);
    const model::ModelConfig config = model::config_of(parsed.settings.model);
    const int64_t host = plan_host(parsed.settings);
    int64_t arenas = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const plan::StepRequest request = step_request(parsed.settings, config, rank, 2);
      const model::Model model = build_run_model(parsed.settings, config, request);
      const plan::StepPlan plan = plan::make_step_plan(model, request);
      references[beta] += plan::reference_bytes(plan);
      arenas += plan.arena.total();
    }
    EXPECT_EQ(host, arenas + references[beta]);
  }
  const double copies = (2 + 4) * double(model::config_of({.name = "llama-5m"}).num_parameters());
  EXPECT_EQ(references["0"], 0);
  EXPECT_NEAR(double(references["0.1"]), copies, 0.01 * copies);
}

// Its frequencies change beyond the original positions, where the cache of sampling cannot follow.
TEST(Setup, AnswersLongerThanTheirCacheHoldsAreRefused) {
  const data::TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "llama", "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 2,
    "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "longrope", "rope_theta": 500.0, "factor": 4.0,
                        "original_max_position_embeddings": 64, "short_factor": [1, 1, 2, 2],
                        "long_factor": [1, 2, 3, 4]}})");
  const auto refusal_of = [&](const std::string& answer) {
    const std::vector<std::string> words = {folder.path().string(),
                                            "--devices=1",
                                            "--task=rewards",
                                            "--grpo.prompts=p.jsonl",
                                            "--grpo.max_prompt_length=8",
                                            "--grpo.max_completion_length=" + answer};
    ParsedSettings parsed = parse_settings(words);
    return data::refusal([&] { complete_grpo(parsed); });
  };
  EXPECT_EQ(refusal_of("57"), "not refused");
  // A default gives way, and a length that was given does not.
  const std::vector<std::string> words = {folder.path().string(), "--devices=1", "--task=rewards",
                                          "--grpo.prompts=p.jsonl", "--grpo.max_completion_length=57"};
  ParsedSettings shorter = parse_settings(words);
  complete_grpo(shorter);
  EXPECT_EQ(shorter.settings.grpo.max_prompt_length, 8);
  EXPECT_EQ(refusal_of("58"),
            "a prompt of grpo.max_prompt_length 8 with an answer of grpo.max_completion_length 58 needs 65 tokens, and "
            "the model has 64 positions here, because a longer text would rotate the keys in the cache anew "
            "(rope_scaling longrope); allow shorter ones");
}

}  // namespace
}  // namespace trireme::train
