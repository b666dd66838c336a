// Contents of messages that try to look like something else: marks of chat templates whole and in pieces, templates'
// own words, control characters, joined emoji, line breaks, any valid UTF-8, and long runs of all that.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/text/chat_vocabularies.h"
#include "trireme/text/utf8.h"

namespace trireme::text::test {

class HostileContents {
 public:
  explicit HostileContents(uint64_t seed) : random_(seed), marks_(all_marks()) {}

  std::string next() {
    std::string text;
    const int parts = below(200) == 0 ? 1000 : 1 + below(12);
    for (int i = 0; i < parts; ++i) text += part();
    return text;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  const std::string& mark() { return marks_[static_cast<size_t>(below(static_cast<int>(marks_.size())))]; }

  std::string part() {
    static const std::vector<std::string> kWords = {"user\n",
                                                    "assistant\n",
                                                    "system\n",
                                                    "\n\n### Response:\n",
                                                    "### Instruction:\n",
                                                    "### Response:",
                                                    "USER: ",
                                                    " ASSISTANT: ",
                                                    "<<SYS>>\n",
                                                    "\n<</SYS>>\n\n",
                                                    "\n",
                                                    "\n\n",
                                                    "\r\n",
                                                    "\t",
                                                    " ",
                                                    "   ",
                                                    "plain words",
                                                    "Hello!",
                                                    "\\n",
                                                    "{{ bos_token }}",
                                                    "{% generation %}",
                                                    "</",
                                                    "s>",
                                                    "<|",
                                                    "|>",
                                                    "[",
                                                    "INST]",
                                                    "<0x0A>",
                                                    "<0x3C>",
                                                    "\xEF\xBC\x9C/s\xEF\xBC\x9E",
                                                    "\xE2\x96\x81",
                                                    "\xE2\x96\x81</s>",
                                                    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
                                                    "\xE2\x80\x8D",
                                                    "e\xCC\x81",
                                                    "\xE2\x80\xAE",
                                                    "\xEF\xBB\xBF"};
    switch (below(6)) {
      case 0:
        return mark();
      case 1: {  // a piece of a mark
        const std::string& whole = mark();
        const int from = below(static_cast<int>(whole.size()));
        return whole.substr(static_cast<size_t>(from), static_cast<size_t>(1 + below(static_cast<int>(whole.size()))));
      }
      case 2: {  // a mark with something inside
        std::string text = mark();
        return text.insert(text.size() / 2, below(2) == 0 ? "\xE2\x80\x8B" : mark());
      }
      case 3: {
        std::string text;
        for (int i = below(6); i >= 0; --i) text::append_utf8(text, any_character());
        return text;
      }
      case 4:
        return std::string(1, static_cast<char>(below(32)));
      default:
        return kWords[static_cast<size_t>(below(static_cast<int>(kWords.size())))];
    }
  }

  char32_t any_character() {
    for (;;) {
      const auto c = static_cast<char32_t>(below(4) == 0 ? below(0x110000) : below(0x800));
      if (c < 0xD800 || c > 0xDFFF) return c;
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> marks_;
};

}  // namespace trireme::text::test
