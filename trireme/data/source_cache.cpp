#include "trireme/data/source_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/data/token_fingerprint.h"
#include "trireme/data/tokenize.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

TextFiles files_of(const fs::path& path, const SourceOptions& options) {
  try {
    return TextFiles::list(std::array{path.string()});
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", options.setting, error.what()));
  }
}

// The cached set; null if there is none, or it is damaged or of another tokenizer.
std::shared_ptr<const TokenSet> cached_set(const fs::path& prefix, const text::Tokenizer& tokenizer) {
  if (!TokenSet::exists(prefix)) return nullptr;
  try {
    TokenSet set = TokenSet::open(prefix);
    const auto& about = set.about();
    if (about && about->tokenizer_fingerprint == tokenizer.fingerprint() && about->vocab_size == tokenizer.vocab_size())
      return std::make_shared<const TokenSet>(std::move(set));
  } catch (const UsageError&) {  // NOLINT(bugprone-empty-catch): it is made again
  }
  return nullptr;
}

base::FileDescriptor lock(const fs::path& prefix) {
  const fs::path path = prefix.string() + ".lock";
  std::error_code failure;
  const fs::path folder = path.parent_path();
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), failure);
  if (failure) base::throw_file_error("create", folder, failure.value());
  if (!folder.empty()) base::make_real_folder(folder);
  base::FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0) base::throw_file_error("create", path, errno);
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) base::throw_file_error("lock", path, errno);
  return file;
}

// How a path becomes a set: its files, a key of what else the set depends on, and the function that makes it.
struct Recipe {
  std::vector<fs::path> files;
  uint64_t key = 0;
  std::function<void(const fs::path& prefix)> make;
};

Recipe conversations_recipe(std::vector<fs::path> files, const text::Tokenizer& tokenizer,
                            const SourceOptions& options) {
  const text::ChatFamily& family = options.conversations.family(files);
  return {files, options.conversations.fingerprint(family), [=, &tokenizer, &family](const fs::path& prefix) {
            make_conversation_set(prefix, files, family, tokenizer, options.conversations.options);
          }};
}

Recipe text_recipe(const fs::path& path, const text::Tokenizer& tokenizer, const SourceOptions& options) {
  const TextFiles files = files_of(path, options);
  Recipe recipe{.key = base::mix_key(base::hash_text(options.text_field), options.append_eos ? 1 : 0)};
  for (int64_t i = 0; i < files.size(); ++i) {
    recipe.files.push_back(files.path(i));
    // The same bytes under another name are read in another way. Those of Parquet are never a text.
    if (files.kind(i) == TextKind::jsonl || files.kind(i) == TextKind::json)
      recipe.key =
          base::mix_key(recipe.key, base::mix_key(static_cast<uint64_t>(i), static_cast<uint64_t>(files.kind(i))));
  }
  recipe.make = [=, &tokenizer](const fs::path& prefix) {
    tokenize({.sources = {path.string()},
              .output = prefix,
              .text_field = options.text_field,
              .append_eos = options.append_eos,
              .num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
              .overwrite = true},
             tokenizer);
  };
  return recipe;
}

Recipe recipe_of(const fs::path& path, const text::Tokenizer& tokenizer, const SourceOptions& options) {
  auto conversations = options.conversations.files(path);
  return conversations.empty() ? text_recipe(path, tokenizer, options)
                               : conversations_recipe(std::move(conversations), tokenizer, options);
}

std::shared_ptr<const TokenSet> tokenized(const fs::path& path, const text::Tokenizer& tokenizer,
                                          const SourceOptions& options) {
  const Recipe recipe = recipe_of(path, tokenizer, options);
  const uint64_t content = content_hash(recipe.files);
  const uint64_t key = base::mix_key(base::mix_key(content, tokenizer.fingerprint()), recipe.key);
  const fs::path name = path.has_filename() ? path.stem() : path.parent_path().filename();
  const fs::path prefix = options.cache_dir / fmt::format("{}-{}", name.string(), base::checksum_text(key));
  if (auto set = cached_set(prefix, tokenizer)) return set;
  const base::FileDescriptor mine = lock(prefix);
  if (auto set = cached_set(prefix, tokenizer)) return set;
  recipe.make(prefix);
  if (content_hash(recipe.files) != content)
    throw UsageError(
        fmt::format("{} changed while it was tokenized; start again when nothing writes to it", path.string()));
  auto set = cached_set(prefix, tokenizer);
  if (!set)
    throw UsageError(fmt::format(
        "the tokenized text {} cannot be read back; is its folder on a file system that allows mapping files?",
        prefix.string()));
  return set;
}

// A step that looks an id up that is not there would end the run. Of a big set, blocks spread over it are looked at
// now, and each other one when it is read.
void look_into(const TokenSet& set, const SourceOptions& options) try {
  constexpr int64_t kBlocks = 256, kBlockTokens = 4096;
  const int64_t all = set.num_tokens(), size = std::min(kBlockTokens, all);
  const int64_t blocks = std::min(kBlocks, (all + kBlockTokens - 1) / kBlockTokens);
  std::vector<int64_t> ids(static_cast<size_t>(size));
  std::vector<uint8_t> mask(static_cast<size_t>(size));
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = blocks == 1 ? 0 : (all - size) * b / (blocks - 1);
    set.copy(first, ids);
    set.copy_mask(first, mask);
  }
} catch (const base::FileError&) {
  throw;
} catch (const UsageError& error) {
  throw UsageError(fmt::format("{} {}", options.setting, error.what()));
}

}  // namespace

bool is_of_unknown_tokenizer(const TokenSet& set) { return !set.about() || set.about()->tokenizer_fingerprint == 0; }

int64_t most_tokens(const fs::path& path, const SourceOptions& options) {
  if (TokenSet::is_named_by(path)) return TokenSet::open(path).num_tokens();
  if (const auto conversations = options.conversations.files(path); !conversations.empty()) {
    constexpr int64_t kMarksPerByte = 64;  // a template may put that many tokens around a record of few bytes
    int64_t bytes = 0;
    for (const fs::path& file : conversations) bytes += static_cast<int64_t>(fs::file_size(file));
    return kMarksPerByte * bytes;
  }
  const TextFiles files = files_of(path, options);
  for (int64_t i = 0; i < files.size(); ++i)  // its columns are compressed
    if (files.kind(i) == TextKind::parquet) return std::numeric_limits<int64_t>::max() / 2;
  return files.total_bytes() + files.size();
}

std::shared_ptr<const TokenSet> open_source(const fs::path& path, const text::Tokenizer& tokenizer,
                                            const SourceOptions& options) {
  if (!TokenSet::is_named_by(path)) return tokenized(path, tokenizer, options);
  TokenSet set = TokenSet::open(path);
  const auto& about = set.about();
  if (is_of_unknown_tokenizer(set)) {
    if (options.vocab_size > 0)
      set.limit_ids(options.vocab_size,
                    fmt::format("the model's vocabulary ends at {}; name the model whose tokens these are, or tokenize "
                                "the text again",
                                options.vocab_size - 1));
  } else if (about->tokenizer_fingerprint != tokenizer.fingerprint()) {
    throw UsageError(
        fmt::format("{} {} was tokenized with another tokenizer ({}) than this run's ({}); name the one it was made "
                    "with by data.tokenizer, or tokenize the text again",
                    options.setting, path.string(), about->tokenizer, tokenizer.name()));
  }
  look_into(set, options);
  return std::make_shared<const TokenSet>(std::move(set));
}

}  // namespace trireme::data
