// Encodes and decodes what a judge asks for, so that scripts can compare: tokenizer_probe TOKENIZER < requests.
// A request is u32 flags (1: parse special tokens, 2: add those of the template, 4: skip special ones in the
// text, 8: tiktoken's way with bytes, 16: text comes token by token, as whole characters), u32 length, text; the answer
// u32 count, int32 ids, u32 length, the ids' bytes. TOKENIZER is a folder or file.
// tokenizer_probe TEXT --train SIZE PATTERN FOLDER trains a tokenizer from a file and prints the seconds it took.
// With "--time" the requests are only encoded, three times, and the processor seconds of the fastest go to standard
// output.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/data/train_tokenizer.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/text/utf8.h"

namespace {

struct Request {
  uint32_t flags;
  std::string text;
};

std::vector<Request> read_requests() {
  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  std::vector<Request> requests;
  for (size_t at = 0; at + 8 <= input.size();) {
    uint32_t head[2];
    std::memcpy(head, input.data() + at, 8);
    requests.push_back({head[0], input.substr(at + 8, head[1])});
    at += 8 + head[1];
  }
  return requests;
}

void write(const void* bytes, size_t count) {
  std::cout.write(static_cast<const char*>(bytes), std::streamsize(count));
}

void write_answer(const std::vector<int32_t>& ids, const std::string& text) {
  const auto num_ids = static_cast<uint32_t>(ids.size()), num_bytes = static_cast<uint32_t>(text.size());
  write(&num_ids, 4);
  write(ids.data(), ids.size() * sizeof(int32_t));
  write(&num_bytes, 4);
  write(text.data(), text.size());
}

// The text as it is shown while it is generated.
std::string streamed(const trireme::text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  trireme::text::Utf8Stream stream;
  std::string all;
  const auto take = [&](const std::string& part) {
    trireme::check_invariant(trireme::text::is_utf8(part), "a part of a text is whole characters");
    all += part;
  };
  for (size_t i = 0; i < ids.size(); ++i) take(stream.push(tokenizer.token_bytes(ids[i], i == 0)));
  take(stream.finish());
  return all;
}

double seconds_to_encode(const trireme::text::Tokenizer& tokenizer, const std::vector<Request>& requests) {
  const std::clock_t begin = std::clock();
  size_t num_ids = 0;
  for (const Request& r : requests) num_ids += tokenizer.encode(r.text).size();
  const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  std::cerr << num_ids << " ids in " << seconds << " s\n";
  return seconds;
}

void train(const std::string& text, char** arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result = trireme::data::train_tokenizer(
      {.sources = {text}, .pattern = arguments[1], .bpe = {.vocab_size = std::stoll(arguments[0])}});
  std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << "\n";
  trireme::text::write_tokenizer(arguments[2], result.trained, trireme::text::pattern_named(arguments[1]), true);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 6 && std::string(argv[2]) == "--train") {
    train(argv[1], argv + 3);
    return 0;
  }
  const auto tokenizer = trireme::text::load_tokenizer(argv[1]);
  const std::vector<Request> requests = read_requests();
  if (argc > 2 && std::string(argv[2]) == "--time") {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) best = std::min(best, seconds_to_encode(*tokenizer, requests));
    std::cout << best << "\n";
    return 0;
  }
  for (const Request& r : requests) {
    const auto ids = tokenizer->encode(
        r.text,
        {.parse_special = (r.flags & 1) != 0, .add_special = (r.flags & 2) != 0, .tiktoken_bytes = (r.flags & 8) != 0});
    const bool by_token = (r.flags & 16) != 0;
    write_answer(ids,
                 by_token ? streamed(*tokenizer, ids) : tokenizer->decode(ids, {.skip_special = (r.flags & 4) != 0}));
  }
  return 0;
} catch (const trireme::Error& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 2;
}
