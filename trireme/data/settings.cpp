#include "trireme/data/settings.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/problems.h"
#include "trireme/data/from_settings.h"

namespace trireme::data {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<Corpus>> choices_of(Corpus) {
  static const std::vector<config::Choice<Corpus>> kTable = {
      {Corpus::austen, "Austen"}, {Corpus::text_files, "TextFiles"}, {Corpus::json, "JSON"},
      {Corpus::alpaca, "Alpaca"}, {Corpus::alpaca2k, "Alpaca2k"},    {Corpus::alpaca_gpt4, "AlpacaGPT4"},
      {Corpus::dolly, "Dolly"},   {Corpus::longform, "LongForm"},    {Corpus::flan, "FLAN"},
      {Corpus::lima, "LIMA"},     {Corpus::deita, "Deita"}};
  return kTable;
}

std::span<const config::Choice<Split>> choices_of(Split) {
  static const std::vector<config::Choice<Split>> kTable = {
      {Split::automatic, "auto"}, {Split::last, "last"}, {Split::sample, "sample"}};
  return kTable;
}

std::span<const config::Choice<Format>> choices_of(Format) {
  static const std::vector<config::Choice<Format>> kTable = {{Format::text, "text"},
                                                             {Format::alpaca, "alpaca"},
                                                             {Format::sharegpt, "sharegpt"},
                                                             {Format::messages, "messages"}};
  return kTable;
}

std::span<const config::Choice<LongConversations>> choices_of(LongConversations) {
  static const std::vector<config::Choice<LongConversations>> kTable = {{LongConversations::cut, "cut"},
                                                                        {LongConversations::drop, "drop"}};
  return kTable;
}

std::span<const config::Choice<Packing>> choices_of(Packing) {
  static const std::vector<config::Choice<Packing>> kTable = {
      {Packing::wrapped, "wrapped"}, {Packing::best_fit, "best_fit"}, {Packing::none, "none"}};
  return kTable;
}

std::span<const config::Choice<OnChange>> choices_of(OnChange) {
  static const std::vector<config::Choice<OnChange>> kTable = {{OnChange::refuse, "refuse"},
                                                               {OnChange::restart, "restart"}};
  return kTable;
}

config::Section section(DataSettings& s) {
  constexpr std::string_view kAsTexts =
      "nothing is downloaded, and its texts are read as such: --data TextFiles --data.train_data_path FOLDER";
  return {
      .name = "data",
      .title = "the text to learn from",
      .own_leaf = "name",
      .resumed = Resumed::learned,
      .rows = {{"data", &s.name,
                "source of the text: Austen (the default corpus) or TextFiles; conversations: JSON, or one of LitGPT's "
                "data sets by name, whose file has to be there",
                Rules{.with_path = "--data TextFiles --data.train_data_path",
                      .with_records = "--data JSON --data.json_path",
                      .other_values = {{"tinyllama", kAsTexts},
                                       {"tinystories", kAsTexts},
                                       {"microllama", kAsTexts},
                                       {"openwebtext", kAsTexts},
                                       {"litdata", kAsTexts}}}},
               {"data.train_data_path", &s.train_data_path,
                "what to train on: text, JSONL, Parquet, a folder of them, or a tokenized set",
                Rules{.absent = "null",
                      .when_absent = "the corpus that `make setup` fetched; TextFiles needs one",
                      .example = "my.txt"}},
               {"data.val_data_path", &s.val_data_path,
                "text to validate on, in any form that data.train_data_path "
                "takes",
                Rules{.absent = "null", .when_absent = "a part of the training text", .example = "held_out.txt"}},
               {"data.val_split_fraction", &s.val_split_fraction,
                "share of the training text that is held out for validation if there is no data.val_data_path",
                Rules{.above = 0, .below = 1}},
               {"data.val_split", &s.val_split, "which part is held out: the last one, or a sample of whole documents",
                Rules{.absent = "auto",
                      .when_absent =
                          "sample for a source of 100 documents or more, else last; a resumed run keeps its own"}},
               {"data.tokenizer", &s.tokenizer, "folder or file of the tokenizer (tokenizer.json), or byte",
                Rules{.absent = "null",
                      .when_absent = "the tokenizer in the model's folder; byte if it has none",
                      .example = "byte"}},
               {"data.text_field", &s.text_field,
                "field of JSONL objects, or column of Parquet files, that holds the text"},
               {"data.append_eos", &s.append_eos,
                "trireme data tokenize puts the tokenizer's end of text (byte: a newline) after each document"},
               {"data.format", &s.format,
                "what the files hold: text, or conversations in the form of Alpaca (instruction, input, output), "
                "ShareGPT (conversations) or OpenAI (messages)",
                Rules{.absent = "auto",
                      .when_absent = "recognised by the first record of .json, .jsonl and .ndjson files"}},
               {"data.chat_template", &s.chat_template, "the form in which the model reads conversations",
                Rules{.absent = "auto",
                      .when_absent = "the one in the model's tokenizer_config.json; alpaca for data in Alpaca's form",
                      .classes = text::chat_template_names()}},
               {"data.learn", &s.learn,
                "which messages of a conversation are learned: replies (all of the assistant's, with the token that "
                "ends each), last_reply, messages (the user's too), or all (with all words of the template, and system "
                "messages)"},
               {"data.long_conversations", &s.long_conversations,
                "what happens to a conversation longer than train.max_seq_length: cut removes its end, drop leaves it "
                "out"},
               {"data.seed", &s.seed, "seed of the order of samples", {.at_least = 0}},
               {"data.num_workers", &s.num_workers,
                "threads that prepare batches; 0: batches are prepared between steps",
                Rules{.unit = "threads", .at_least = 0, .at_most = 64, .resumed = Resumed::yes}},
               {"data.packing", &s.packing,
                "how text becomes samples: wrapped cuts the running text into windows, best_fit packs whole documents "
                "into rows, none gives each document a row of its own"},
               {"data.mixture", &s.mixture,
                "several sources in place of data.train_data_path: in YAML each {path: PATH, weight: NUMBER} or PATH, "
                "on the command line [NUMBER PATH, ...]; weights are shares of the samples; without weights an epoch "
                "has each sample of each source once",
                Rules{.absent = "null", .when_absent = "one source", .example = "[0.7 web, 0.3 books]"}},
               {"data.reset_attention_mask", &s.reset_attention_mask,
                "attention stays inside a document (block-diagonal mask)"},
               {"data.reset_position_ids", &s.reset_position_ids, "positions begin at 0 with each document"},
               {"data.on_change", &s.on_change,
                "what happens if a resumed run has other data, packing, lengths or weights: refuse ends it, restart "
                "begins at the first sample of the new data; it holds for one start",
                Rules{.resumed = Resumed::no}},
               {"data.ledger", &s.ledger, "record what each micro-batch was made of, in out_dir/ledger/rank<N>.jsonl",
                Rules{.resumed = Resumed::yes}}},
      .others =
          {{{"dataset"},
            "the source of the text is data, its path data.train_data_path, and prompts of rewards are grpo.prompts"},
           {{"data_path", "train_data_dir", "data_dir", "train_file", "train_data"},
            "the text's place is data.train_data_path"},
           {{"dataset_name"}, "nothing is downloaded: the path of the text is data.train_data_path"},
           {{"validation_file", "val_data", "data_val_path", "val_path", "eval_file"},
            "the path of the held-out text is data.val_data_path"},
           {{"data_split", "validation_split"}, "the share that is held out is data.val_split_fraction"},
           {{"tokenizer_path", "tokenizer_name", "tokenizer_file"}, "the tokenizer is data.tokenizer"},
           {{"dataset_text_field"}, "the field that holds the text is data.text_field"},
           {{"dataloader_num_workers"}, "threads that prepare batches are data.num_workers"},
           {{"mask_prompt"}, "what is learned of conversations is data.learn: replies, last_reply, messages or all"},
           {{"ignore_index"}, "tokens that are not learned are marked in the data; leave it out", true},
           {{"include_multiturn_conversations"},
            "conversations are learned whole, with all of their turns; leave it out",
            true},
           {{"subsets"}, "all *_train.jsonl in FLAN's folder are learned; name one with data.json_path", true},
           {{"file_url", "file_name", "repo_id"}, "nothing is downloaded: name the file with data.json_path", true}},
      .check = [&s](config::Problems& problems) {
        if (s.mixture) try {
            sources_of(s);
          } catch (const UsageError& error) {
            problems.add(error.what(), {}, "");
          }
        const bool needs_path = s.name == Corpus::text_files || s.name == Corpus::json;
        if (!needs_path || s.train_data_path || s.mixture) return;
        problems.add(fmt::format("data {} needs a path to read from", config::name_of(s.name)), {},
                     "give --data.train_data_path FILE-OR-FOLDER");
      }};
}

config::Section section(PrepareSettings& s) {
  return {
      .name = "prepare",
      .title = "preparing data with trireme data",
      .command = "data",
      .rows = {
          {"prepare.output", &s.output, "what trireme data writes: the PREFIX of a tokenized set, or a file",
           Rules{.may_be_empty = true, .example = "tokens/mine"}},
          {"prepare.overwrite", &s.overwrite, "replace what exists"},
          {"prepare.threads", &s.threads, "threads that tokenize",
           Rules{.unit = "threads",
                 .at_least = 1,
                 .at_most = 1024,
                 .absent = "auto",
                 .when_absent = "one per core",
                 .example = "4"}},
          {"prepare.max_documents", &s.max_documents, "number of documents to read, from the first on",
           Rules{.unit = "documents", .at_least = 1, .absent = "null", .when_absent = "all", .example = "1000"}},
          {"prepare.json", &s.json, "print the result as JSON"},
          {"prepare.vocab_size", &s.vocab_size,
           "tokens of the tokenizer that train_tokenizer makes, special tokens and 256 bytes included",
           Rules{.unit = "tokens", .at_least = 256, .at_most = 1048576}},
          {"prepare.min_frequency", &s.min_frequency,
           "train_tokenizer makes a pair into a token only if it occurs at least this often", Rules{.at_least = 1}},
          {"prepare.pre_tokenizer", &s.pre_tokenizer, "train_tokenizer cuts text into pieces as this model does",
           Rules{.classes = {"gpt2", "llama3", "qwen2"}}},
          {"prepare.special_tokens", &s.special_tokens,
           "special tokens of train_tokenizer, from id 0 on; the first ends a text"},
          {"prepare.count", &s.count, "documents that data show prints", {.unit = "documents", .at_least = 1}},
          {"prepare.ids", &s.ids, "data show prints each token's id after it"},
          {"prepare.step", &s.step, "optimizer step whose samples trireme data ledger lists, the first is 1",
           Rules{.at_least = 1, .at_most = 1e9, .absent = "null", .when_absent = "none is listed", .example = "1"}}}};
}

}  // namespace trireme::data
