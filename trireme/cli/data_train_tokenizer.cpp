#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/data/train_tokenizer.h"
#include "trireme/observe/work_bar.h"

namespace trireme::cli {
namespace {

data::TrainTokenizerOptions train_options_of(const ParsedSettings& parsed) {
  const data::PrepareSettings& prepare = parsed.settings.prepare;
  if (parsed.list.empty()) throw UsageError("error: trireme data train_tokenizer needs files or folders of text");
  if (prepare.output.empty())
    throw UsageError("error: trireme data train_tokenizer needs --output FOLDER: it writes tokenizer.json there");
  return {.sources = parsed.list,
          .text_field = parsed.settings.data.text_field,
          .pattern = prepare.pre_tokenizer,
          .bpe = {.vocab_size = prepare.vocab_size,
                  .min_frequency = prepare.min_frequency,
                  .special_tokens = prepare.special_tokens,
                  .threads = static_cast<int>(prepare.threads.value_or(0))}};
}

}  // namespace

int data_train_tokenizer(const ParsedSettings& parsed) {
  const auto start = std::chrono::steady_clock::now();
  const data::PrepareSettings& prepare = parsed.settings.prepare;
  data::TrainTokenizerOptions options = train_options_of(parsed);
  text::check_output(prepare.output, prepare.overwrite);
  base::make_files_as_private_as(std::vector<std::filesystem::path>(parsed.list.begin(), parsed.list.end()));
  data::TrainTokenizerResult result;
  {
    std::optional<observe::WorkBar> bar(std::in_place, "read");
    bool is_reading = true;
    options.reading = [&](double done) { bar->show(done); };
    options.bpe.progress = [&](double done) {
      if (is_reading) bar.emplace("merge");
      is_reading = false;
      bar->show(done);
    };
    result = data::train_tokenizer(options);
  }
  text::write_tokenizer(prepare.output, result.trained, text::pattern_named(options.pattern), prepare.overwrite);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto tokens = std::ssize(result.trained.tokens);
  fmt::print("wrote    {}/tokenizer.json: {} tokens{}\n", prepare.output, base::human_count(tokens),
             tokens < prepare.vocab_size ? " (no pair is left that occurs often enough for more)" : "");
  fmt::print("text     {}, {} pieces, {} different\n", base::human_bytes(result.source_bytes),
             base::human_count(result.num_pieces), base::human_count(result.num_distinct_pieces));
  fmt::print("time     {}\n", base::human_duration(seconds));
  return 0;
}

}  // namespace trireme::cli
