#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/cli/data_commands.h"
#include "trireme/data/token_set.h"
#include "trireme/data/tokenize.h"
#include "trireme/data/unread.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/observe/work_bar.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {
namespace fs = std::filesystem;

// What stands before .bin, .idx and .json. A folder's own name would give files without a name of their own.
std::string output_prefix(const std::string& given) {
  if (given.empty())
    throw UsageError(
        "error: trireme data tokenize needs --output PREFIX: it writes PREFIX.bin, PREFIX.idx and PREFIX.json");
  fs::path prefix = given;
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  const fs::path name = prefix.filename();
  if (name.empty() || name == "." || name == "..")
    throw UsageError(fmt::format(
        "error: --output {} is a folder, and trireme data tokenize writes PREFIX.bin, PREFIX.idx and PREFIX.json; name "
        "a prefix in it: --output {}",
        given, base::shell_quoted((prefix / "tokens").string())));
  return prefix.string();
}

data::TokenizeOptions tokenize_options_of(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  if (parsed.list.empty()) throw UsageError("error: trireme data tokenize needs files or folders of text");
  return {.sources = parsed.list,
          .output = output_prefix(s.prepare.output),
          .text_field = s.data.text_field,
          .append_eos = s.data.append_eos,
          .num_threads =
              static_cast<int>(s.prepare.threads.value_or(std::max<int64_t>(1, std::thread::hardware_concurrency()))),
          .max_documents = s.prepare.max_documents,
          .overwrite = s.prepare.overwrite,
          .resumed = [](int64_t done, int64_t all) {
            base::info("goes on behind {} of {}", base::human_bytes(done), base::human_bytes(all));
          }};
}

/// The files, if they hold conversations; empty if they hold text.
std::vector<fs::path> conversation_files(const ParsedSettings& parsed) {
  const data::ConversationSource source = train::conversation_source(parsed.settings);
  std::vector<fs::path> files;
  std::string text;  // the first that holds no conversations
  for (const std::string& path : parsed.list) {
    const auto found = source.files(path);
    files.insert(files.end(), found.begin(), found.end());
    if (found.empty() && text.empty()) text = path;
  }
  if (!files.empty() && !text.empty()) throw UsageError("error: " + data::mixed_kinds(files.front(), text));
  return files;
}

int tokenize_conversations(const std::vector<fs::path>& files, const Settings& s, const std::string& output) {
  if (data::TokenSet::exists(output) && !s.prepare.overwrite)
    throw UsageError(
        fmt::format("{}.idx already exists; name another --output, or replace it with --overwrite", output));
  const auto tokenizer = named_tokenizer(s, "tokenize");
  const data::ConversationSource source = train::conversation_source(s);
  const text::ChatFamily& family = source.family(files);
  data::ConversationOptions options = source.options;
  options.max_documents = s.prepare.max_documents;
  launch::install_stop_signal();
  data::ConversationSet set;
  {
    observe::WorkBar bar("tokenize");
    options.progress = [&](double done) {
      launch::end_work_when_stopped();
      bar.show(done);
    };
    set = data::make_conversation_set(output, files, family, *tokenizer, options);
  }
  fmt::print("wrote    {0}.bin, .idx, .mask and .json: {1} tokens in {2}\n", output,
             base::human_count(set.about.num_tokens), base::plural(set.about.num_documents, "document"));
  fmt::print("chat     {} with {}: {}\n", family.name, set.about.tokenizer,
             data::tally_text(set.counts, set.counts.tokens, set.counts.learned));
  if (const std::string beside = data::read_beside(files.front(), options.format); !beside.empty())
    fmt::print("         {}\n", beside);
  return 0;
}

}  // namespace

int data_tokenize(const ParsedSettings& parsed) {
  const auto start = std::chrono::steady_clock::now();
  data::TokenizeOptions options = tokenize_options_of(parsed);
  const std::vector<fs::path> paths(parsed.list.begin(), parsed.list.end());
  data::refuse_unread(paths, train::conversation_source(parsed.settings),
                      [&](const std::string& key) { return parsed.typed(key); });
  if (const auto files = conversation_files(parsed); !files.empty())
    return tokenize_conversations(files, parsed.settings, options.output.string());
  const auto tokenizer = named_tokenizer(parsed.settings, "tokenize");
  if (const std::string lacks = data::lacks_separator(*tokenizer); options.append_eos && !lacks.empty()) {
    if (parsed.given("data.append_eos"))
      throw UsageError(
          fmt::format("error: data.append_eos true: {}; leave it out, or name a tokenizer that has one", lacks));
    base::warn("{}", lacks);
  }
  data::TokenizeResult result;
  {
    observe::WorkBar bar("tokenize");
    options.progress = [&](double done) { bar.show(done); };
    result = data::tokenize(options, *tokenizer);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const data::TokenSetAbout& about = result.about;
  fmt::print("wrote    {}.bin, .idx and .json: {} tokens in {}{}\n", options.output.string(),
             base::human_count(about.num_tokens), base::plural(about.num_documents, "document"),
             result.empty_documents > 0 ? fmt::format(" ({} without text left out)", result.empty_documents) : "");
  if (!result.left_out.empty()) fmt::print("files    {}\n", result.left_out);
  fmt::print("text     {} with {}, {:.3f} bytes a token\n", base::human_bytes(about.source_bytes), about.tokenizer,
             static_cast<double>(about.source_bytes) / static_cast<double>(std::max<int64_t>(1, about.num_tokens)));
  fmt::print("time     {}, {} a second\n", base::human_duration(seconds),
             base::human_bytes(static_cast<int64_t>(static_cast<double>(result.encoded_bytes) / seconds.count())));
  return 0;
}

}  // namespace trireme::cli
