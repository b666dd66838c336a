#include "trireme/config/hints.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cctype>

#include "settings_test.h"
#include "trireme/base/text.h"
#include "trireme/config/declaration.h"

namespace trireme {
namespace {

bool exists(const std::string& key) { return base::join(all_keys(), " ").find(key) != std::string::npos; }

bool is_key(const std::string& key) {
  return std::find(all_keys().begin(), all_keys().end(), canonical_key(key)) != all_keys().end();
}

bool names_a_key(const std::string& text) {
  return std::any_of(all_keys().begin(), all_keys().end(),
                     [&](const std::string& key) { return text.find(key) != std::string::npos; });
}

TEST(Hints, WordsOfOtherSystemsLeadToOurs) {
  EXPECT_EQ(hint_for(all_settings(), "train.learning_rate"), "the learning rate is optimizer.lr");
  EXPECT_EQ(hint_for(all_settings(), "lr"), "the learning rate is optimizer.lr");
  EXPECT_EQ(hint_for(all_settings(), "learnig_rate"), "the learning rate is optimizer.lr");
  EXPECT_THAT(hint_for(all_settings(), "batch_size"), testing::HasSubstr("train.micro_batch_size"));
  const std::pair<const char*, const char*> rows[] = {{"data.path", "data.train_data_path"},
                                                      {"max_iters", "train.max_steps"},
                                                      {"lora.rank", "lora.r"},
                                                      {"data.split", "data.val_split_fraction"},
                                                      {"checkpoint.interval", "train.save_interval"},
                                                      {"beta", "dpo.beta"},
                                                      {"scheduler", "train.lr_decay"},
                                                      {"tokenizer.path", "data.tokenizer"}};
  for (const auto& [word, key] : rows) EXPECT_THAT(hint_for(all_settings(), word), testing::HasSubstr(key)) << word;
  EXPECT_THAT(hint_for(all_settings(), "gradient_accumulation_steps"), testing::HasSubstr("train.global_batch_size"));
}

// Names of PyTorch's schedules and of other trainers: what they mean here, and no neighbour with another meaning.
TEST(Hints, WordsOfSchedulesAndTrainersLeadToNoWrongNeighbour) {
  const auto hint = [](const char* word) {
    return refusal_of(all_settings(), word).value_or(hint_for(all_settings(), word));
  };
  const std::vector<std::pair<const char*, const char*>> rows = {{"lr_scheduler.total_steps", "train.max_steps"},
                                                                 {"total_steps", "train.max_steps"},
                                                                 {"T_max", "train.max_steps"},
                                                                 {"num_training_steps", "train.max_steps"},
                                                                 {"lr_decay_iters", "train.max_steps"},
                                                                 {"max_train_steps", "train.max_steps"},
                                                                 {"lr_scheduler.total_iters", "train.lr_warmup_steps"},
                                                                 {"num_warmup_steps", "train.lr_warmup_steps"},
                                                                 {"start_factor", "lr_schedule.warmup_from"},
                                                                 {"end_factor", "train.min_lr"},
                                                                 {"step_size_down", "lr_schedule.second_step_size"},
                                                                 {"lr_scheduler.mode", "train.lr_decay"},
                                                                 {"T_mult", "train.lr_decay"},
                                                                 {"scale_mode", "train.lr_decay"},
                                                                 {"ddp_timeout", "comm.timeout"},
                                                                 {"limit_val_batches", "eval.max_iters"},
                                                                 {"eval_batch_size", "train.micro_batch_size"},
                                                                 {"eval_accumulation_steps", "eval.max_iters"}};
  for (const auto& [word, key] : rows) EXPECT_THAT(hint(word), testing::HasSubstr(key)) << word;
  for (const auto& [word, wrong] :
       std::vector<std::pair<const char*, const char*>>{{"lr_scheduler.total_steps", "eval."},
                                                        {"total_iters", "eval."},
                                                        {"factor", "doctor"},
                                                        {"schedulers", "pipeline"},
                                                        {"enable_checkpointing", "recompute"},
                                                        {"bar_steps", "eval."}})
    EXPECT_THAT(hint(word), testing::Not(testing::HasSubstr(wrong))) << word;
}

TEST(Hints, TheRightNameInTheWrongPlaceIsFound) {
  EXPECT_EQ(hint_for(all_settings(), "micro_batch_size"), "it is train.micro_batch_size");
  EXPECT_EQ(hint_for(all_settings(), "model.max_steps"), "it is train.max_steps");
}

TEST(Hints, TheSameWordsJoinedOtherwiseAreFound) {
  EXPECT_EQ(hint_for(all_settings(), "save.interval"), "it is train.save_interval");  // not eval.interval
  EXPECT_EQ(hint_for(all_settings(), "train.eval_max_iters"), "it is eval.max_iters");
  EXPECT_EQ(hint_for(all_settings(), "eval_max_iters"), "it is eval.max_iters");
}

TEST(Hints, ASharedGroupAloneIsNoResemblance) {
  EXPECT_THAT(hint_for(all_settings(), "train.batch"), testing::HasSubstr("train.global_batch_size"));
  EXPECT_THAT(hint_for(all_settings(), "save.zzzz"), testing::StartsWith("there are save.mode, save.on_error"));
}

TEST(Hints, NonsenseIsSentToTheHelp) {
  EXPECT_EQ(hint_for(all_settings(), "zzzzzzzzzzzz"), "trireme COMMAND --help lists its settings");
  const auto refused_by = [](const char* command) { return refusal({"--zzzzzzzzzzzz", "1"}, {.command = command}); };
  EXPECT_THAT(refused_by("generate"), testing::HasSubstr("trireme generate --help lists its settings"));
  EXPECT_THAT(refused_by("explain memory"),
              testing::HasSubstr(
                  "trireme explain memory --help lists its own settings, trireme pretrain --help those of a run"));
}

TEST(Hints, KnownFeaturesOfOthersAreRefusedWithAReason) {
  EXPECT_NE(refusal_of(all_settings(), "train.lr_warmup_fraction"), std::nullopt);
  EXPECT_NE(refusal_of(all_settings(), "push_to_hub"), std::nullopt);
  EXPECT_EQ(refusal_of(all_settings(), "train.max_steps"), std::nullopt);
}

// Every way to drop, double, change or swap one letter of every key. Of each key, one goes the whole way of a command
// line, which declares all settings.
TEST(Hints, EverySingleLetterTypoOfEveryKeyIsRefusedAndNamesAKey) {
  int tried = 0;
  auto check = [&](const std::string& typo, bool whole_way) {
    if (is_key(typo) || typo.empty() || typo == "config" || typo == "help") return;
    ++tried;
    const std::string hint = refusal_of(all_settings(), typo).value_or(hint_for(all_settings(), typo));
    ASSERT_TRUE(names_a_key(hint)) << typo << ": " << hint;
    if (!whole_way) return;
    const std::string text = refusal({"--" + typo + "=1"});
    ASSERT_THAT(text, testing::StartsWith("error: "));
    ASSERT_TRUE(names_a_key(text.substr(text.rfind('\n')))) << text;
  };
  for (const std::string& key : all_keys()) {
    for (size_t i = 0; i < key.size(); ++i) {
      std::string dropped = key, doubled = key, changed = key, swapped = key;
      dropped.erase(i, 1);
      doubled.insert(i, 1, key[i]);
      changed[i] = key[i] == 'x' ? 'y' : 'x';
      if (i + 1 < key.size()) std::swap(swapped[i], swapped[i + 1]);
      for (const std::string& typo : {dropped, doubled, changed, swapped}) check(typo, i + 1 == key.size());
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(tried, 4000);
}

RC_GTEST_PROP(Hints, ARandomLetterInARandomPlaceIsRefusedAndNamesAKey, ()) {
  std::string typo = *rc::gen::elementOf(all_keys());
  const auto place = *rc::gen::inRange<size_t>(0, typo.size() + 1);
  const char letter =
      *rc::gen::oneOf(rc::gen::inRange('a', static_cast<char>('z' + 1)), rc::gen::elementOf(std::string("_.")));
  if (place < typo.size() && *rc::gen::arbitrary<bool>()) {
    typo[place] = letter;
  } else {
    typo.insert(place, 1, letter);
  }
  RC_PRE(!is_key(typo) && !refusal_of(all_settings(), typo));  // offload.jit: another system's word, which is told so
  const std::string text = refusal({typo + "=1"});
  RC_ASSERT(text.substr(0, 7) == "error: ");
  RC_ASSERT(names_a_key(text.substr(text.rfind('\n'))));
}

TEST(Hints, EveryHintNamesKeysThatExist) {
  // Words with a dot in a hint are keys; a renamed setting must not leave a hint behind.
  for (const char* word : {"learning_rate",
                           "batch_size",
                           "beta1",
                           "warmup",
                           "grad_clip",
                           "seq_len",
                           "steps",
                           "num_epochs",
                           "save_steps",
                           "max_to_keep",
                           "eval_steps",
                           "remat",
                           "n_embd",
                           "n_layer",
                           "n_head",
                           "tie_embeddings",
                           "dataset",
                           "pipeline_parallel_size",
                           "process_group_timeout",
                           "lr_scheduler",
                           "logging_steps",
                           "gradient_accumulation_iters",
                           "data_parallel_replicate_degree",
                           "data_parallel_shard_degree",
                           "auto_wrap_policy",
                           "backward_prefetch",
                           "forward_prefetch",
                           "limit_all_gathers",
                           "tensor_parallel_degree",
                           "pipeline_parallel_schedule",
                           "virtual_pipeline_model_parallel_size",
                           "context_parallel_size",
                           "ulysses_sequence_parallel_size"}) {
    const std::string hint = hint_for(all_settings(), word);
    for (size_t dot = hint.find('.'); dot != std::string::npos; dot = hint.find('.', dot + 1)) {
      if (dot + 1 >= hint.size() || !std::islower(hint[dot + 1])) continue;
      const size_t start = hint.find_last_of(" (", dot) + 1;
      const std::string key = hint.substr(start, hint.find_first_of(" ,:)", dot) - start);
      EXPECT_TRUE(exists(key)) << word << ": " << hint;
    }
  }
}

TEST(Hints, WordsOfMegatronAndGptNeoxForTheMeshNameTheirAxes) {
  for (const char* word : {"model_parallel_size", "model-parallel-size", "tensor_model_parallel_size"})
    EXPECT_THAT(hint_for(all_settings(), word), testing::HasSubstr("mesh.tp")) << word;
  for (const char* word : {"pipe_parallel_size", "pipeline_model_parallel_size"})
    EXPECT_THAT(hint_for(all_settings(), word), testing::HasSubstr("mesh.pp")) << word;
  EXPECT_THAT(hint_for(all_settings(), "context_parallel_size"), testing::HasSubstr("mesh.cp"));
}

TEST(Hints, EverySettingThatAHintNamesExists) {
  constexpr const char* kOfKeys = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  int64_t found = 0;
  for (const Section& section : all_settings().sections())
    for (const OtherWords& row : section.others) {
      const std::string hint(row.sentence);
      for (size_t dot = hint.find('.'); dot != std::string::npos; dot = hint.find('.', dot + 1)) {
        const size_t start = hint.find_last_not_of(kOfKeys, dot) + 1;
        std::string key = hint.substr(start, hint.find_first_not_of(kOfKeys, dot) - start);
        while (key.ends_with('.')) key.pop_back();
        const char before = start > 0 ? hint[start - 1] : ' ';
        const bool is_other = before == '/' || (before >= 'A' && before <= 'Z');  // docs/data.md, LLM.int8
        if (is_other || all_settings().section_named(key.substr(0, key.find('.'))) == nullptr) continue;
        EXPECT_TRUE(is_key(key)) << key << ": " << hint;
        ++found;
      }
    }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace trireme
