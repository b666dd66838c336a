// The normalizer, pre_tokenizer and decoder sections of tokenizer.json.
#include "trireme/text/charsmap.h"
#include "trireme/text/tokenizer_json_parts.h"

namespace trireme::text {
namespace {

constexpr int kDeepestSection = 10;

[[noreturn]] void refuse_type(const JsonObject& section, const std::string& type) {
  throw UsageError(fmt::format("{} '{}' is not known", section.place_of("type"), type));
}

template <typename Visit>
void for_each_part(const JsonObject& section, const std::string& key, int depth, Visit visit) {
  if (depth >= kDeepestSection)
    throw UsageError(fmt::format("{} nests more than {} deep", section.place(), kDeepestSection));
  size_t index = 0;
  for (const nlohmann::json& entry : section.array(key))
    visit(JsonObject(entry, fmt::format("{}[{}]", section.place_of(key), index++)));
}

SplitStep::Behavior read_behavior(const JsonObject& section, const std::string& name) {
  using enum SplitStep::Behavior;
  if (name == "Removed") return removed;
  if (name == "Isolated") return isolated;
  if (name == "MergedWithPrevious") return merged_with_previous;
  if (name == "MergedWithNext") return merged_with_next;
  if (name == "Contiguous") return contiguous;
  throw UsageError(fmt::format("{} '{}' is not known", section.place_of("behavior"), name));
}

MetaspaceStep read_metaspace(const JsonObject& section) {
  MetaspaceStep step;
  step.replacement = section.text("replacement");
  if (step.replacement.empty() || character_at(step.replacement).bytes != std::ssize(step.replacement))
    throw UsageError(fmt::format("{} is not one character", section.place_of("replacement")));
  const std::string scheme =
      section.text("prepend_scheme", section.flag("add_prefix_space", true) ? "always" : "never");
  using enum MetaspaceStep::Prepend;
  if (scheme == "first")
    step.prepend = first;
  else if (scheme == "never")
    step.prepend = never;
  else if (scheme != "always")
    throw UsageError(fmt::format("{} '{}' is not known", section.place_of("prepend_scheme"), scheme));
  step.split = section.flag("split", true);
  return step;
}

std::optional<NormalForm> normal_form(std::string_view type) {
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  return std::nullopt;
}

// Lists the leaves of nested Sequences.
void flatten(const JsonObject& section, const std::string& key, int depth, std::vector<JsonObject>& leaves) {
  if (section.text("type") != "Sequence") {
    leaves.push_back(section);
    return;
  }
  for_each_part(section, key, depth, [&](const JsonObject& part) { flatten(part, key, depth + 1, leaves); });
}

void add_split(PreTokenizer& out, std::string_view regex, SplitStep::Behavior behavior, bool invert = false) {
  out.add(SplitStep{.pattern = Regex(regex), .behavior = behavior, .invert = invert});
}

void add_split(PreTokenizer& out, bool (*is_member)(char32_t), SplitStep::Behavior behavior) {
  CharacterSet set;
  set.add_all(is_member);
  set.finish();
  out.add(SplitStep{.pattern = std::move(set), .behavior = behavior});
}

// PyPI's tokenizers uses other versions of Unicode here than in its regular expressions.
bool is_number(char32_t c) {
  return is_in(c, kNumbers) || (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);  // 17.0
}

bool is_punctuation(char32_t c) {
  const bool is_ascii_symbol =
      c < 0x80 && is_in(c, mask_of(Category::Sm) | mask_of(Category::Sc) | mask_of(Category::Sk));
  return is_ascii_symbol || (mask_of(category_in_unicode_8(c)) & kPunctuation) != 0;
}

void read_simple_pre_tokenizer(const JsonObject& section, const std::string& type, PreTokenizer& out) {
  using enum SplitStep::Behavior;
  if (type == "Digits") {
    add_split(out, is_number, section.flag("individual_digits", false) ? isolated : contiguous);
  } else if (type == "Punctuation") {
    add_split(out, is_punctuation, read_behavior(section, section.text("behavior", "Isolated")));
  } else if (type == "Whitespace") {
    add_split(out, R"([\w\u200C\u200D]+|[^\w\u200C\u200D\s]+)", removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(out, is_space, removed);
  } else if (type == "BertPreTokenizer") {
    add_split(out, is_space, removed);
    add_split(out, is_punctuation, isolated);
  } else if (type == "CharDelimiterSplit") {
    out.add(SplitStep{.pattern = section.text("delimiter"), .behavior = removed});
  } else {
    refuse_type(section, type);
  }
}

}  // namespace

std::variant<Regex, std::string> read_pattern(const JsonObject& section, const std::string& key) {
  if (section.at(key).is_string()) return section.text(key);
  const JsonObject pattern = section.object(key);
  if (pattern.find("Regex") != nullptr) return Regex(pattern.text("Regex"));
  return pattern.text("String");
}

bool read_pre_tokenizer(const JsonObject& section, PreTokenizer& out) {
  std::vector<JsonObject> leaves;
  flatten(section, "pretokenizers", 0, leaves);
  bool byte_level = false, has_byte_level = false;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const JsonObject& leaf = leaves[i];
    const std::string type = leaf.text("type");
    if (type == "ByteLevel") {
      if (has_byte_level) throw UsageError(fmt::format("{} is ByteLevel a second time", leaf.place()));
      has_byte_level = true;
      if (leaf.flag("add_prefix_space", true)) out.add(PrefixSpaceStep{});
      if (leaf.flag("use_regex", true)) add_split(out, kGpt2Pattern, SplitStep::Behavior::isolated);
      byte_level = i + 1 == leaves.size();
      if (!byte_level) out.add(ByteLettersStep{});
    } else if (type == "Metaspace") {
      out.add(read_metaspace(leaf));
    } else if (type == "Split") {
      SplitStep step{.behavior = read_behavior(leaf, leaf.text("behavior")), .invert = leaf.flag("invert", false)};
      std::visit([&](auto pattern) { step.pattern = std::move(pattern); }, read_pattern(leaf, "pattern"));
      out.add(std::move(step));
    } else {
      read_simple_pre_tokenizer(leaf, type, out);
    }
  }
  return byte_level;
}

void read_normalizer(const JsonObject& section, Normalizer& out, int depth) {
  const std::string type = section.text("type");
  if (type == "Sequence") {
    for_each_part(section, "normalizers", depth,
                  [&](const JsonObject& part) { read_normalizer(part, out, depth + 1); });
  } else if (const auto form = normal_form(type)) {
    out.add([form](const std::string& text) { return to_normal_form(text, *form); });
  } else if (type == "Lowercase") {
    out.add([](const std::string& text) { return to_lower(text); });
  } else if (type == "StripAccents") {
    out.add([](const std::string& text) { return strip_accents(text); });
  } else if (type == "Strip") {
    out.add([left = section.flag("strip_left", true), right = section.flag("strip_right", true)](
                const std::string& text) { return std::string(strip_spaces(text, left, right)); });
  } else if (type == "Prepend") {
    out.add([prefix = section.text("prepend")](const std::string& text) { return text.empty() ? text : prefix + text; },
            [](const std::string& text) { return text; });
  } else if (type == "Replace") {
    const auto decoder = std::make_shared<TokenDecoder>();
    decoder->add(DecodeReplace{.pattern = read_pattern(section, "pattern"), .content = section.text("content")});
    out.add([decoder](const std::string& text) { return decoder->one(text, false); });
  } else if (type == "BertNormalizer") {
    const bool lowercase = section.flag("lowercase", true);
    out.add([options = BertOptions{.clean_text = section.flag("clean_text", true),
                                   .handle_chinese_chars = section.flag("handle_chinese_chars", true),
                                   .strip_accents = section.flag("strip_accents", lowercase),
                                   .lowercase = lowercase}](const std::string& text) {
      return bert_normalize(text, options);
    });
  } else if (type == "Precompiled") {
    out.add([map = std::make_shared<const Charsmap>(from_base64(section.text("precompiled_charsmap")))](
                const std::string& text) { return apply_by_grapheme(*map, text); });
  } else {
    refuse_type(section, type);
  }
}

void read_decoder(const JsonObject& section, TokenDecoder& out) {
  std::vector<JsonObject> leaves;
  flatten(section, "decoders", 0, leaves);
  bool fused = false;
  for (const JsonObject& leaf : leaves) {
    const std::string type = leaf.text("type");
    if (fused && type != "Strip")
      throw UsageError(fmt::format("{} '{}' behind Fuse is not known", leaf.place_of("type"), type));
    if (type == "ByteLevel") {
      out.add(DecodeByteLevel{});
    } else if (type == "Replace") {
      out.add(DecodeReplace{.pattern = read_pattern(leaf, "pattern"), .content = leaf.text("content")});
    } else if (type == "ByteFallback") {
      out.add(DecodeByteFallback{});
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip") {
      out.add(DecodeStrip{.content = leaf.text("content"),
                          .start = leaf.integer("start"),
                          .stop = leaf.integer("stop"),
                          .of_text = fused});
    } else if (type == "Metaspace") {
      const MetaspaceStep step = read_metaspace(leaf);
      out.add(DecodeMetaspace{.replacement = step.replacement,
                              .drop_first = step.prepend != MetaspaceStep::Prepend::never});
    } else if (type == "WordPiece") {
      out.add(DecodeWordPiece{.prefix = leaf.text("prefix", "##"), .cleanup = leaf.flag("cleanup", true)});
    } else if (type == "BPEDecoder") {
      out.add(DecodeBpe{.suffix = leaf.text("suffix", "</w>")});
    } else {
      refuse_type(leaf, type);
    }
  }
}

}  // namespace trireme::text
