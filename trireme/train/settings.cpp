#include "trireme/train/settings.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <numeric>

#include "trireme/base/text.h"
#include "trireme/config/problems.h"
#include "trireme/data/settings.h"
#include "trireme/generate/settings.h"

namespace trireme::train {

using config::Resumed;
using config::Rules;

constexpr int64_t kMostNewTokens = 10'000'000;

std::span<const config::Choice<Resume::From>> choices_of(Resume::From) {
  static const std::vector<config::Choice<Resume::From>> kTable = {{Resume::From::nothing, "false", {"no", "off"}},
                                                                   {Resume::From::newest, "true", {"yes", "on"}},
                                                                   {Resume::From::newest_if_any, "auto", {}},
                                                                   {Resume::From::folder, "folder", {}}};
  return kTable;
}

std::span<const config::Choice<Learning>> choices_of(Learning) {
  static const std::vector<config::Choice<Learning>> kTable = {{Learning::language, "language", {"causal_lm", "lm"}},
                                                               {Learning::classify, "classify", {"classification"}},
                                                               {Learning::preferences, "preferences", {"dpo"}},
                                                               {Learning::rewards, "rewards", {"grpo"}}};
  return kTable;
}

void check_run_length(const TrainSettings& s, config::Problems& problems) {
  if (!s.max_steps && !s.max_tokens && !s.epochs && !s.max_time)
    problems.add("nothing says when to stop", {},
                 "give train.max_steps, train.max_tokens, train.epochs or train.max_time; "
                 "for instance --train.max_steps 1000");
}

config::Section section(RunSettings& s) {
  return {
      .name = "",
      .title = "the whole run",
      .rows = {{"task", &s.task,
                "what a run learns: to continue text (language), which label a text has (classify: "
                "{\"text\", \"label\"} in each line of data.train_data_path, docs/classification.md), which of "
                "two replies is better (preferences: {\"prompt\", \"chosen\", \"rejected\"}, docs/preferences.md), "
                "or answers that are rewarded (rewards: trireme grpo, docs/rewards.md)",
                Rules{.resumed = Resumed::learned}},
               {"out_dir", &s.out_dir, "folder for checkpoints, metrics and logs"},
               {"resume", config::ChoiceOrText{&s.resume.from, &s.resume.folder, "folder"},
                "continue from the newest checkpoint of out_dir (true: there must be one; auto: if there is one) "
                "or from a folder; settings that are not given come from the checkpoint",
                Rules{.example = "auto"}},
               {"overwrite", &s.overwrite,
                "a new run may replace an earlier one: once all settings are accepted, the checkpoints, metrics "
                "and logs of that run, and nothing else, are removed from out_dir"},
               {"dry_run", &s.dry_run,
                "a command that trains shows what it would do and ends: mesh, batches and planned memory. Nothing is "
                "started or written, and neither weights nor data are needed; with task classify, the data or "
                "model.num_labels say how many labels there are. What the start would refuse in the "
                "folders of this machine is refused"},
               {"predict", &s.predict,
                "predict what a step takes from what trireme bench calibrate measured here, and compare at the end"},
               {"seed", &s.seed, "seed of the initial weights", {.at_least = 0, .resumed = Resumed::learned}}},
      .others = {{{"output_dir", "save_dir"}, "the folder for results is out_dir"},
                 {{"resume_from_checkpoint", "load_checkpoint"},
                  "to continue a run, set resume to true, auto or a folder"},
                 {{"logger"}, "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg"},
                 {{"tensorboard", "report_to"},
                  "events for TensorBoard are written with train.loggers [tensorboard]; metrics are always in "
                  "out_dir/metrics.jsonl"},
                 {{"logger_name", "wandb", "wandb_", "use_wandb", "mlflow", "project"},
                  "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg; leave it out",
                  true}},
      .check = [&s](config::Problems& problems) {
        if (s.out_dir == "~" || s.out_dir.starts_with("~/"))
          problems.add(fmt::format("out_dir {} would be a folder of the name ~ here", s.out_dir), {},
                       "a shell knows ~ only where a word begins: write --out_dir ~/x, and $HOME/x elsewhere");
        if (s.out_dir.find("://") != std::string::npos)
          problems.add(fmt::format("out_dir {} is an address, and a run lies in a folder", s.out_dir), {},
                       "name a folder, for instance one where that place is mounted");
      }};
}

config::Section section(TrainSettings& s) {
  const auto stop_in = [](std::string_view unit, std::string_view example) {
    return Rules{
        .unit = unit, .at_least = 1, .absent = "null", .when_absent = "no limit", .example = example, .ends_run = true};
  };
  return {
      .name = "train",
      .title = "batches, steps, learning rate",
      .resumed = Resumed::learned,
      .rows =
          {{"train.global_batch_size", &s.global_batch_size,
            "sequences per optimizer step, over all ranks: a multiple of train.micro_batch_size",
            Rules{.unit = "sequences", .at_least = 1, .at_most = 1e9}},
           {"train.micro_batch_size", &s.micro_batch_size, "sequences a rank computes at once",
            Rules{.unit = "sequences", .at_least = 1, .at_most = 1e9}},
           {"train.max_steps", &s.max_steps, "stop after this many optimizer steps", stop_in("steps", "1000")},
           {"train.max_tokens", &s.max_tokens, "stop after this many tokens, over all ranks", stop_in("tokens", "3e9")},
           {"train.epochs", &s.epochs,
            "stop after this many passes over the training data; a last batch that is not full is left out",
            stop_in("epochs", "1")},
           {"train.max_time", &s.max_time,
            "save and stop after this much wall time; alone it gives the learning rate no end to fall to",
            Rules{.above = 0,
                  .absent = "null",
                  .when_absent = "no limit",
                  .example = "2h",
                  .resumed = Resumed::yes,
                  .ends_run = true}},
           {"train.max_seq_length", &s.max_seq_length, "tokens per sequence",
            Rules{.unit = "tokens",
                  .at_least = 1,
                  .at_most = 1e9,
                  .absent = "null",
                  .when_absent = "model.max_position_embeddings; of pairs of replies at most 1024",
                  .example = "1024"}},
           {"train.lr_warmup_steps", &s.lr_warmup_steps, "steps over which the learning rate rises",
            Rules{.unit = "steps",
                  .at_least = 0,
                  .absent = "auto",
                  .when_absent = "100; 1000 for WarmupLR, WarmupDecayLR and WarmupCosineLR",
                  .example = "100"}},
           {"train.lr_decay", &s.lr_decay,
            "the learning rate's schedule: how it falls from optimizer.lr to train.min_lr after the warm-up; those "
            "with "
            "names of classes are PyTorch's (OneCycleLR) and DeepSpeed's"},
           {"train.min_lr", &s.min_lr, "learning rate of the last step",
            Rules{.at_least = 0,
                  .absent = "auto",
                  .when_absent = "a tenth of optimizer.lr, at most 6e-5; for wsd 0, polynomial 1e-7, "
                                 "WarmupCosineLR optimizer.lr / 10000",
                  .example = "6e-5"}},
           {"train.max_norm", &s.max_norm, "clip gradients to this global norm",
            Rules{.above = 0, .absent = "null", .when_absent = "no clipping"}},
           {"train.save_interval", &s.save_interval, "save every N steps; 0 saves only at the end",
            Rules{.unit = "steps",
                  .at_least = 0,
                  .absent = "null",
                  .when_absent = "only at the end",
                  .resumed = Resumed::yes}},
           {"train.log_interval", &s.log_interval, "report every N steps",
            Rules{.unit = "steps", .at_least = 1, .resumed = Resumed::yes}},
           {"train.loggers", &s.loggers,
            "where else the numbers of metrics.jsonl go: tensorboard (events in out_dir/logs/tensorboard), csv "
            "(out_dir/logs/csv/version_0/metrics.csv)",
            Rules{
                .absent = "null", .when_absent = "nowhere", .example = "[tensorboard, csv]", .resumed = Resumed::yes}},
           {"train.logger_command", &s.logger_command,
            "a program that gets each line of metrics.jsonl on its standard input, with its arguments",
            Rules{.absent = "null", .when_absent = "none", .example = "[python3, log.py]", .resumed = Resumed::yes}},
           {"train.run_name", &s.run_name, "the run's name, which that program gets in the variable RUN_NAME",
            Rules{.absent = "null",
                  .when_absent = "pretrain- or finetune- and the model's name",
                  .example = "anneal-3",
                  .resumed = Resumed::yes}},
           {"train.prometheus_port", &s.prometheus_port,
            "port at which rank 0 tells the newest numbers to Prometheus (GET /metrics)",
            Rules{.at_least = 1, .at_most = 65535, .absent = "null", .when_absent = "none", .example = "9100"}},
           {"train.prometheus_address", &s.prometheus_address,
            "address of that port; 0.0.0.0 for all of this machine"}},
      .others =
          {{{"batch_size", "batch"},
            "sequences per optimizer step are train.global_batch_size, sequences that a rank computes at once "
            "are train.micro_batch_size"},
           {{"train_batch_size"}, "sequences per optimizer step, over all ranks, are train.global_batch_size"},
           {{"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
            "sequences a rank computes at once are train.micro_batch_size"},
           {{"gradient_accumulation_steps", "gradient_accumulation_iters", "accumulate_grad_batches", "grad_accum"},
            "accumulation follows from train.global_batch_size, train.micro_batch_size and the number of ranks"},
           {{"warmup", "warmup_steps", "warmup_iters", "num_warmup_steps", "warmup_num_steps"},
            "the warm-up is train.lr_warmup_steps"},
           {{"total_iters"},
            "the steps of a warm-up are train.lr_warmup_steps; a schedule ends with the run, after "
            "train.max_steps"},
           {{"total_steps", "total_num_steps", "num_training_steps", "T_max", "lr_decay_iters"},
            "a learning-rate schedule ends with the run, after train.max_steps"},
           {{"lr_scheduler", "scheduler", "lr_scheduler_type", "lr_decay_style"},
            "the shape of the decay is train.lr_decay"},
           {{"max_grad_norm", "grad_clip", "clip_grad", "gradient_clipping", "gradient_clip_val", "clip_grad_norm",
             "clip_norm", "grad_norm"},
            "gradients are clipped by train.max_norm"},
           {{"seq_len", "seq_length", "sequence_length", "max_seq_len", "model_max_length", "block_size",
             "context_length", "cutoff_len"},
            "tokens per sequence are train.max_seq_length"},
           {{"steps", "num_steps", "num_iters", "iterations", "train_steps", "training_steps", "train_iters",
             "max_train_steps", "max_training_steps"},
            "the number of optimizer steps is train.max_steps"},
           {{"max_iters"}, "the number of optimizer steps is train.max_steps; eval.max_iters is of an evaluation"},
           {{"num_epochs", "num_train_epochs", "max_epochs"}, "passes over the data are train.epochs"},
           {{"steps_per_epoch"},
            "the steps of an epoch follow from the data and train.global_batch_size; those of the run are "
            "train.max_steps"},
           {{"save_every", "save_steps", "checkpoint_interval", "checkpoint_every"},
            "checkpoints are saved every train.save_interval steps"},
           {{"logging_steps", "log_every_n_steps", "log_every"}, "the log interval is train.log_interval"},
           {{"min_learning_rate", "eta_min", "lr_min", "lr_end"}, "the learning rate of the last step is train.min_lr"},
           {{"min_lr_rate", "min_lr_ratio", "end_factor"},
            "the learning rate of the last step is train.min_lr, and no share of optimizer.lr"},
           {{"max_length"},
            "tokens per sequence are train.max_seq_length, of a pair of replies dpo.max_length, and tokens to write "
            "generate.max_new_tokens"},
           {{"lr_warmup_fraction"},
            "a warm-up cannot be given as a fraction of an epoch: give it in optimizer steps, "
            "train.lr_warmup_steps",
            true}},
      .check = [&s](config::Problems& problems) {
        for (const std::string& name : s.loggers.value_or(std::vector<std::string>{}))
          if (name != "tensorboard" && name != "csv" && name != "jsonl")
            problems.add(
                fmt::format("train.loggers has {}; there are tensorboard, csv and jsonl (which is always written)",
                            name),
                {}, "a program can get the numbers: train.logger_command");
        if (in_addr unused{}; inet_pton(AF_INET, s.prometheus_address.c_str(), &unused) != 1)
          problems.add(fmt::format("train.prometheus_address {} is no IPv4 address", s.prometheus_address), {},
                       "give one of this machine, for instance 127.0.0.1, or 0.0.0.0 for all of them");
        if (s.logger_command && s.logger_command->empty())
          problems.add("train.logger_command names no program", {}, "leave it out, or say [python3, log.py]");
        const int64_t global = s.global_batch_size, micro = s.micro_batch_size;
        if (global % micro == 0) return;  // ranks that find no micro-batch left wait for the others
        problems.add(
            fmt::format("a global batch of {} cannot be divided into micro-batches of {}", global, micro), {},
            fmt::format("train.global_batch_size must be a multiple of train.micro_batch_size: {} fits; or take "
                        "train.micro_batch_size {}",
                        base::near_multiples(global, micro), std::gcd(global, micro)));
      }};
}

config::Section section(EvalSettings& s) {
  return {
      .name = "eval",
      .title = "evaluation while training",
      .resumed = Resumed::yes,
      .rows = {{"eval.interval", &s.interval, "evaluate on the held-out text every N steps",
                Rules{.unit = "steps",
                      .at_least = 1,
                      .absent = "auto",
                      .when_absent =
                          "every 50 to 600 steps: 20 times per run, if that takes less than a twentieth of the time",
                      .example = "100"}},
               {"eval.max_iters", &s.max_iters, "micro-batches per evaluation, over all ranks",
                Rules{.unit = "micro-batches", .at_least = 1, .at_most = 1e9}},
               {"eval.initial_validation", &s.initial_validation, "evaluate before the first step"},
               {"eval.final_validation", &s.final_validation, "evaluate after the last step"},
               {"eval.max_new_tokens", &s.max_new_tokens,
                "at each evaluation, write a sample reply of up to N tokens; rank 0 needs memory for a copy of the "
                "weights",
                Rules{.unit = "tokens",
                      .at_least = 1,
                      .at_most = kMostNewTokens,
                      .absent = "null",
                      .when_absent = "no sample",
                      .example = "100"}},
               {"eval.evaluate_example", &s.evaluate_example,
                "what the sample replies to: the first conversation that is held out, a random one, one by its number "
                "from 0 on, or a prompt of your own"}},
      .others = {
          {{"eval_every", "eval_interval", "eval_steps", "val_check_interval", "evaluation_strategy", "eval_strategy"},
           "evaluation comes every eval.interval steps"},
          {{"eval_iters", "limit_val_batches"}, "micro-batches per evaluation are eval.max_iters"},
          {{"eval_batch_size", "per_device_eval_batch_size", "eval_accumulation_steps"},
           "an evaluation computes micro-batches as training does: train.micro_batch_size, eval.max_iters"}}};
}

config::Section section(GenerateSettings& s) {
  return {
      .name = "generate",
      .title = "writing text",
      .command = "generate",
      .rows =
          {{"generate.checkpoint", &s.checkpoint,
            "checkpoint folder, or folder of checkpoints (the newest counts); may stand first, without its name",
            Rules{.may_be_empty = true, .example = "out/austen"}},
           {"generate.adapter", &s.adapter, "adapter (PEFT's folder or a checkpoint of one) to merge into the model",
            Rules{.absent = "none", .example = "out/finetune/lora"}},
           {"generate.base", &s.base, "if the checkpoint is itself an adapter: the folder of its base model",
            Rules{.absent = "auto", .when_absent = "the folder that the adapter names", .example = "llama"}},
           {"generate.prompt", &s.prompt, "text to continue", {.may_be_empty = true, .example = "It is a truth"}},
           {"generate.prompts", &s.prompts,
            "file of prompts, JSON in each line: a text, {\"prompt\"} or {\"messages\"}; the results are JSON, too",
            Rules{.absent = "none", .example = "prompts.jsonl"}},
           {"generate.output", &s.output,
            "with generate.prompts: file for the results; texts that it already holds are not written again",
            Rules{.absent = "none", .when_absent = "standard output", .example = "texts.jsonl", .writes_file = true}},
           {"generate.samples",
            &s.samples,
            "with generate.prompts: texts for each prompt",
            {.at_least = 1, .at_most = 1e6}},
           {"generate.batch_size",
            &s.batch_size,
            "with generate.prompts: texts that are written at a time",
            {.at_least = 1, .at_most = 1e6}},
           {"generate.cache_tokens", &s.cache_tokens,
            "tokens whose keys and values are in memory at a time; texts for which there is no room wait",
            Rules{.unit = "tokens",
                  .at_least = 1,
                  .at_most = 1e12,
                  .absent = "auto",
                  .when_absent = "as many as the texts of a batch need",
                  .example = "65536"}},
           {"generate.max_new_tokens",
            &s.max_new_tokens,
            "tokens to write",
            {.unit = "tokens", .at_least = 1, .at_most = kMostNewTokens}},
           {"generate.temperature", &s.temperature, "divides the logits; 0 always takes the likeliest token",
            generate::bounds::temperature()},
           {"generate.top_k", &s.top_k, "draw among this many of the likeliest tokens",
            Rules{.unit = "tokens", .at_least = 1, .absent = "null", .when_absent = "all", .example = "50"}},
           {"generate.top_p", &s.top_p, "draw among the likeliest tokens that together have this probability",
            generate::bounds::top_p()},
           {"generate.min_p", &s.min_p, "draw among tokens with at least this share of the likeliest one's probability",
            generate::bounds::min_p()},
           {"generate.repetition_penalty", &s.repetition_penalty,
            "divides positive logits of tokens that are there already, and multiplies negative ones",
            generate::bounds::repetition_penalty()},
           {"generate.logprobs", &s.logprobs,
            "with generate.prompts: results have the tokens and their log-probabilities over the whole vocabulary, at "
            "the temperature (at 0: of 1) and before the repetition penalty"},
           {"generate.seed", &s.seed, "seed of the draws", {.at_least = 0}},
           {"generate.stop", &s.stop, "the text ends before the first of these words: [END, \"User:\"]",
            Rules{.absent = "null", .when_absent = "until the model ends the text", .example = "[END]"}},
           {"generate.chat", &s.chat, "answer each line of standard input in a conversation"},
           {"generate.system", &s.system,
            "the system prompt of generate.chat, and of conversations in generate.prompts that have none",
            Rules{.may_be_empty = true, .absent = "none", .example = "Answer briefly."}},
           {"generate.chat_template", &s.chat_template, "the chat format that the model was trained with",
            Rules{.absent = "auto",
                  .when_absent = "the one that it was trained in, else that of its tokenizer_config.json",
                  .classes = text::chat_template_names()}}},
      .others = {{{"max_tokens_to_generate", "max_tokens", "max_length", "max_gen_len"},
                  "tokens to write are generate.max_new_tokens"},
                 {{"temp"}, "the temperature is generate.temperature"},
                 {{"stop_sequences", "stop_words"}, "words that end a text are generate.stop"},
                 {{"prompt_file", "prompts_file"}, "a file of prompts is generate.prompts"},
                 {{"peft", "lora", "lora_path"}, "the adapter's folder is generate.adapter"},
                 {{"num_samples", "num_return_sequences", "n"}, "texts for each prompt are generate.samples"},
                 {{"max_num_seqs"}, "texts that are written at a time are generate.batch_size"},
                 {{"interactive"}, "a conversation on standard input is generate.chat"},
                 {{"do_sample"}, "tokens are drawn if generate.temperature is above 0; 0 always takes the likeliest"},
                 {{"num_beams"}, "one text is drawn token by token; temperature 0 always takes the likeliest", true}}};
}

config::Section section(EvaluateSettings& s) {
  return {
      .name = "evaluate",
      .title = "judging a trained model",
      .command = "evaluate",
      .rows = {
          {"evaluate.checkpoint", &s.checkpoint,
           "checkpoint folder, or folder of checkpoints (the newest counts); may stand first, without its name",
           Rules{.may_be_empty = true, .example = "out/austen"}},
          {"evaluate.adapter", &s.adapter, "adapter (PEFT's folder or a checkpoint of one) to merge into the model",
           Rules{.absent = "none", .example = "out/finetune/lora"}},
          {"evaluate.base", &s.base, "if the checkpoint is itself an adapter: the folder of its base model",
           Rules{.absent = "auto", .when_absent = "the folder that the adapter names", .example = "llama"}},
          {"evaluate.text", &s.text, "text file, or folder of text files, to measure perplexity on",
           Rules{.absent = "none", .example = "my.txt"}},
          {"evaluate.multiple_choice", &s.multiple_choice,
           "JSONL file of questions: {\"context\", \"choices\", \"answer\"}, answered by likelihood",
           Rules{.absent = "none", .example = "questions.jsonl"}},
          {"evaluate.tasks", &s.tasks,
           "tasks of lm-evaluation-harness, each with a JSONL file of rows of its data set, whose prompts are made "
           "as there: arc_challenge, arc_easy, boolq, commonsense_qa, copa, gsm8k, hellaswag, lambada_openai, mmlu, "
           "openbookqa, piqa, sciq and winogrande; NAME=TASK.yaml is a task of one's own whose answers are written",
           Rules{.absent = "none", .example = "hellaswag=hellaswag.jsonl"}},
          {"evaluate.fewshot", &s.fewshot, "for each task of evaluate.num_fewshot the file of its examples",
           Rules{.absent = "none", .example = "hellaswag=hellaswag_train.jsonl"}},
          {"evaluate.num_fewshot", &s.num_fewshot,
           "examples with their answers before each question: the first rows of evaluate.fewshot, for mmlu the "
           "first of the question's subject",
           Rules{.at_least = 0}},
          {"evaluate.classify", &s.classify,
           "JSONL file of labelled texts, {\"text\", \"label\"}: accuracy and macro-F1; lines without a label are "
           "predicted only",
           Rules{.absent = "none", .example = "reviews.jsonl"}},
          {"evaluate.score", &s.score,
           "JSONL file of texts whose tokens' log-probabilities are computed: {\"prompt\", \"completion\"}, "
           "{\"text\"} or {\"tokens\"}",
           Rules{.absent = "none", .example = "replies.jsonl"}},
          {"evaluate.predictions", &s.predictions,
           "file for lines of JSON: with evaluate.classify the label and the probability of each text, with "
           "evaluate.score its tokens' log-probabilities, with evaluate.tasks those of each question's choices, or "
           "the answer that was written",
           Rules{.absent = "none", .example = "labels.jsonl", .writes_file = true, .result_begins = "{"}},
          {"evaluate.max_seq_length", &s.max_seq_length,
           "tokens in each window of the text, or most tokens of a text to classify",
           Rules{.unit = "tokens",
                 .at_least = 2,
                 .absent = "null",
                 .when_absent = "1024, or the model's longest; of texts to classify as in training",
                 .example = "1024"}},
          {"evaluate.limit", &s.limit, "use only this many windows, texts or questions, from the first on",
           Rules{.at_least = 1, .absent = "null", .when_absent = "all", .example = "100"}},
          {"evaluate.json", &s.json, "file for the result as JSON",
           Rules{.absent = "none", .example = "result.json", .writes_file = true, .result_begins = "{"}}}};
}

}  // namespace trireme::train
