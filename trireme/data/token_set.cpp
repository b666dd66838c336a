#include "trireme/data/token_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"
#include "trireme/data/litdata.h"
#include "trireme/data/token_fingerprint.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

fs::path beside(const fs::path& prefix, std::string_view suffix) { return prefix.string() + std::string(suffix); }

// The user may have named one of the two files.
fs::path prefix_of(const fs::path& typed) {
  const bool is_part = typed.extension() == ".idx" || typed.extension() == ".bin";
  return is_part && base::is_file(fs::path(typed).replace_extension(".idx")) ? fs::path(typed).replace_extension()
                                                                             : typed;
}

// For a pair without a sidecar: all of the index, and blocks spread over the tokens.
uint64_t sampled_fingerprint(std::span<const std::byte> idx, std::span<const std::byte> bin) {
  constexpr size_t kBlocks = 64, kBlockBytes = 4096;
  uint64_t fingerprint = base::mix_key(base::checksum(idx), bin.size());
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t at = bin.size() / kBlocks * i;
    fingerprint = base::mix_key(fingerprint, base::checksum(bin.subspan(at, std::min(kBlockBytes, bin.size() - at))));
  }
  return fingerprint;
}

void check_about(const TokenSetAbout& about, const TokenSet& set, const fs::path& sidecar) {
  if (about.num_tokens != set.num_tokens() || about.num_documents != set.num_documents())
    throw UsageError(
        fmt::format("{} says {} tokens in {} documents, but there are {} in {}; it belongs to another set, or the set "
                    "was not written to its end: make it again",
                    sidecar.string(), about.num_tokens, about.num_documents, set.num_tokens(), set.num_documents()));
}

}  // namespace

bool TokenSet::exists(const fs::path& prefix) {
  return base::is_file(beside(prefix_of(prefix), ".idx")) || is_litdata(prefix);
}

bool TokenSet::is_named_by(const fs::path& path) {
  const bool is_another_file = prefix_of(path) == path && base::is_file(path);  // a text t.txt beside t.txt.idx
  return !is_another_file && exists(path);
}

TokenSet TokenSet::open(const fs::path& given) {
  if (is_litdata(given)) return open_litdata(given);
  const fs::path prefix = prefix_of(given);
  if (!base::is_file(beside(prefix, ".idx")))
    throw UsageError(
        fmt::format("there is no tokenized data set at {}: it would be {}.bin with {}.idx, or a folder of LitGPT's "
                    "chunks with an index.json",
                    given.string(), prefix.string(), prefix.filename().string()));
  const auto bin = std::make_shared<const base::MappedFile>(beside(prefix, ".bin"));
  const auto idx = std::make_shared<const base::MappedFile>(beside(prefix, ".idx"));
  const MegatronIndex index(idx->bytes(), bin->bytes().size(), idx->path().string());
  TokenSet set;
  set.path_ = prefix;
  set.view_ =
      TokenView(std::shared_ptr<const std::byte>(bin, bin->bytes().data()), index.header().type, index.num_tokens());
  set.num_documents_ = index.num_documents();
  set.document_start_ = [idx, index](int64_t d) { return index.document_start(d); };
  const fs::path sidecar = beside(prefix, ".json");
  std::error_code ignored;
  const auto is_there = [&](const fs::path& file) { return fs::exists(fs::symlink_status(file, ignored)); };
  if (!base::is_file(sidecar) && is_there(sidecar))
    throw UsageError(
        fmt::format("{} is no file (a folder, or a link to nothing); make the set again", sidecar.string()));
  if (const fs::path mask = beside(prefix, ".mask"); !base::is_file(sidecar) && is_there(mask))
    throw UsageError(
        fmt::format("{} is there without {}, which says what it means; make the set again, or take the mask away to "
                    "learn all tokens",
                    mask.string(), sidecar.string()));
  if (base::is_file(sidecar)) {
    set.about_ = parse_token_set_about(base::read_side_file(sidecar), sidecar.string());
    check_about(*set.about_, set, sidecar);
    set.limit_ids(set.about_->vocab_size,
                  fmt::format("its tokenizer's vocabulary ends at {}: the set is damaged (trireme data stats {}); make "
                              "it again",
                              set.about_->vocab_size - 1, base::shell_quoted(prefix.string())));
    set.fingerprint_ = set.about_->fingerprint;
    if (const fs::path mask = beside(prefix, ".mask"); base::is_file(mask)) {
      set.mask_ = std::make_shared<const base::MappedFile>(mask);
      if (set.mask_->size_bytes() != set.num_tokens())
        throw UsageError(fmt::format("{} has {} bytes, but there are {} tokens; make the set again", mask.string(),
                                     set.mask_->size_bytes(), set.num_tokens()));
    } else if (set.about_->supervised_tokens != set.num_tokens()) {
      throw UsageError(
          fmt::format("{} says that {} of {} tokens are to be learned, but {} is missing: make the set again",
                      sidecar.string(), set.about_->supervised_tokens, set.num_tokens(), mask.string()));
    }
  } else {
    set.fingerprint_ = sampled_fingerprint(idx->bytes(), bin->bytes());
  }
  return set;
}

std::optional<uint64_t> TokenSet::recompute_fingerprint() const {
  if (!about_) return std::nullopt;
  std::vector<fs::path> files = {beside(path_, ".bin"), beside(path_, ".idx")};
  if (has_mask()) files.push_back(beside(path_, ".mask"));
  return fingerprint_files(about_->tokenizer_fingerprint, files);
}

void TokenSet::limit_ids(int64_t end, std::string rule) {
  ids_end_ = end;
  ids_rule_ = std::move(rule);
}

void TokenSet::copy(int64_t first, std::span<int64_t> ids) const {
  view_.copy(first, ids);
  const auto end = static_cast<uint64_t>(ids_end_);
  uint64_t largest = 0;  // as which a negative id counts
  for (const int64_t id : ids) largest = std::max(largest, static_cast<uint64_t>(id));
  if (ids.empty() || largest < end) return;
  const auto outside = std::ranges::find_if(ids, [&](int64_t id) { return static_cast<uint64_t>(id) >= end; });
  throw UsageError(fmt::format("{} holds the token {}, and {} (at {} of {})", path_.string(), *outside, ids_rule_,
                               base::human_count(first + (outside - ids.begin())),
                               base::plural(num_tokens(), "token")));
}

void TokenSet::copy_mask(int64_t first, std::span<uint8_t> out) const {
  check_invariant(first >= 0 && first + static_cast<int64_t>(out.size()) <= num_tokens(),
                  "a window of a mask lies inside its set");
  if (out.empty()) return;
  if (mask_ == nullptr) {
    std::fill(out.begin(), out.end(), uint8_t{1});
  } else {
    std::memcpy(out.data(), mask_->bytes().data() + first, out.size());
    if (const uint8_t largest = *std::ranges::max_element(out); largest > 1)
      throw UsageError(
          fmt::format("{} is damaged: it holds the byte {}, and a mask has 1 for each token that is "
                      "learned and 0 for others; make the set again",
                      mask_->path().string(), largest));
  }
}

}  // namespace trireme::data
