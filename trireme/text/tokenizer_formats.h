// The files that tokenizers come in. Each reader returns a tokenizer's parts; `path` is for messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::text {

/// Hugging Face's tokenizer.json, version "1.0": a whole pipeline in one file. Known types do exactly what PyPI's
/// tokenizers does (tests/text/tokenizers_judge.py compares); an unknown type is refused by its name.
/// Errors    UsageError naming the file, the key and what is wrong
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& path);

/// SentencePiece's tokenizer.model: BPE or Unigram, with its own normaliser and decoder. Ids are positions of pieces.
/// `beside`: tokens that transformers keeps in other files; those with the id of a piece are known already.
/// Errors    UsageError naming the file and what is wrong; word and character models are refused
TokenizerParts parse_sentencepiece_model(std::string_view bytes, const std::string& path,
                                         std::span<const AddedToken> beside = {});

/// tiktoken: lines of "base64 rank". The file has no pre-tokenizer and no special tokens. Its name decides them, if it
/// begins with cl100k, o200k, qwen, llama3, gpt2, r50k or p50k; under any other name, such as Llama 3's
/// tokenizer.model, the number of its ranks does.
/// Errors    UsageError naming the file and line; neither name nor number of ranks is that of a known vocabulary
TokenizerParts parse_tiktoken(std::string_view text, const std::string& path);

/// Whether the text begins like a list of ranks.
bool is_tiktoken_list(std::string_view text);

/// GPT-2's way: vocab.json, merges.txt and what lies beside them; "" if a file is not there.
struct VocabFiles {
  std::string vocab, merges, tokenizer_config, special_tokens_map, added_tokens, config;
};

/// The class in transformers decides how text is cut: `tokenizer_class` in tokenizer_config.json or config.json, else
/// what config.json's model_type has by default. GPT2Tokenizer and Qwen2Tokenizer are known.
/// Errors    UsageError naming the class and the way out
TokenizerParts parse_vocab_and_merges(const VocabFiles& files, const std::string& folder);

/// Mistral's Tekken (JSON). Special tokens take the first ids; the vocabulary is cut to the size in the file's
/// `config`.
/// Errors    UsageError naming the file and key
TokenizerParts parse_tekken(std::string_view text, const std::string& path);

}  // namespace trireme::text
