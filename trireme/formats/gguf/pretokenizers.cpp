#include "trireme/formats/gguf/tokenizer.h"

#include <string>
#include <vector>

namespace trireme::formats {
namespace {

// The published tokenizer.json files of Llama 3, Qwen2, Mistral Nemo and GPT-4o.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

std::span<const GgufPretokenizer> gguf_pretokenizers() {
  static const std::vector<GgufPretokenizer> all{
      {.name = "gpt-2", .also = "default phi-2 jina-en mpt olmo jais trillion granite-docling"},
      {.name = "smollm", .also = "starcoder refact command-r codeshell exaone minerva-7b", .digits = true},
      {.name = "llama-bpe",
       .also = "llama3 llama-v3 falcon3 dbrx smaug-bpe",
       .regex = kLlama3,
       .ignore_merges = true,
       .add_bos = true},
      {.name = "qwen2", .also = "deepseek-r1-qwen megrez", .regex = kQwen2, .nfc = true},
      {.name = "tekken", .regex = kTekken, .ignore_merges = true, .add_bos = true}};
  return all;
}

const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) {
  for (const GgufPretokenizer& known : gguf_pretokenizers())
    if (known.name == name ||
        (" " + std::string(known.also) + " ").find(" " + std::string(name) + " ") != std::string::npos)
      return &known;
  return nullptr;
}

}  // namespace trireme::formats
