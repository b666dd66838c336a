// Small tokenizers with the marks of every chat template, made to be fooled: merges that reach over the borders of
// messages, special tokens that the model itself finds in text, a space that is put before words.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/text/byte_alphabet.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::text::test {

inline std::vector<std::string> all_marks() {
  std::vector<std::string> marks = {"<unk>", "<s>", "</s>"};
  for (const ChatFamily& family : chat_families()) {
    std::istringstream words(family.marks);
    for (std::string word; words >> word;)
      if (std::find(marks.begin(), marks.end(), word) == marks.end()) marks.push_back(word);
  }
  return marks;
}

inline nlohmann::json added_marks(int first, bool special) {
  nlohmann::json added = nlohmann::json::array();
  for (const std::string& mark : all_marks())
    added.push_back({{"id", first++},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special || mark == "</s>"}});
  return added;
}

inline PipelineTokenizer finish(const nlohmann::json& file) {
  TokenizerParts parts = parse_tokenizer_json(file.dump(), "tokenizer.json");
  parts.bos = parts.added.find("<s>")->id;
  parts.eos = parts.added.find("</s>")->id;
  return PipelineTokenizer(std::move(parts));
}

/// Bytes, and merges that would join a line break, a colon or a mark's bracket with the word behind it.
inline PipelineTokenizer byte_level_tokenizer(bool special_marks = true) {
  nlohmann::json vocab = nlohmann::json::object(), merges = nlohmann::json::array();
  for (int b = 0; b < 256; ++b) vocab[to_byte_letters(std::string(1, static_cast<char>(b)))] = b;
  int next = 256;
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {"l", "l"},   {"e", "ll"},   {"H", "ell"},  {" ", "Hell"}, {"\n", "Hell"}, {"e", "e"},  {"S", "ee"},
           {" ", "See"}, {"\n", "See"}, {":", " See"}, {":", "Hell"}, {"]", " See"},  {".", "\n"}, {".", "\n\n"},
           {"\n", "\n"}, {"<", "|"},    {"|", ">"},    {"<", "/"},    {"s", ">"},     {"</", "s>"}}) {
    const std::string a = to_byte_letters(left), b = to_byte_letters(right);
    if (vocab.contains(a + b)) continue;
    vocab[a + b] = next++;
    merges.push_back({a, b});
  }
  return finish({{"version", "1.0"},
                 {"added_tokens", added_marks(next, special_marks)},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                 {"post_processor", nullptr},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}});
}

/// A Unigram model that has the marks among its pieces and finds them in any text, with a space before each text.
inline PipelineTokenizer unigram_tokenizer() {
  nlohmann::json pieces = nlohmann::json::array();
  for (const std::string& mark : all_marks()) pieces.push_back({mark, 0.0});
  for (int b = 0; b < 256; ++b) pieces.push_back({fmt::format("<0x{:02X}>", b), -20.0});
  for (char c = 33; c < 127; ++c) pieces.push_back({std::string(1, c), -8.0});
  for (const char* word : {"\xE2\x96\x81", "\xE2\x96\x81Hello", "Hello", "See", "\xE2\x96\x81See", "\xE2\x96\x81you"})
    pieces.push_back({word, -4.0});
  return finish(
      {{"version", "1.0"},
       {"added_tokens", added_marks(0, true)},
       {"normalizer", nullptr},
       {"pre_tokenizer",
        {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}, {"split", false}}},
       {"post_processor", nullptr},
       {"decoder",
        {{"type", "Sequence"},
         {"decoders",
          {{{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}},
           {{"type", "ByteFallback"}},
           {{"type", "Fuse"}}}}}},
       {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}, {"byte_fallback", true}}}});
}

}  // namespace trireme::text::test
