#include "targets.h"

#include <string>

#include "trireme/base/error.h"

namespace trireme::fuzz {

void fuzz_adapter_config(std::string_view bytes);
void fuzz_chat_template(std::string_view bytes);
void fuzz_config(std::string_view bytes);
void fuzz_conversations(std::string_view bytes);
void fuzz_dcp_metadata(std::string_view bytes);
void fuzz_dialect(std::string_view bytes);
void fuzz_gguf(std::string_view bytes);
void fuzz_jsonl(std::string_view bytes);
void fuzz_litdata_chunk(std::string_view bytes);
void fuzz_litdata_index(std::string_view bytes);
void fuzz_litgpt_config(std::string_view bytes);
void fuzz_manifest(std::string_view bytes);
void fuzz_megatron_idx(std::string_view bytes);
void fuzz_parquet_frame(std::string_view bytes);
void fuzz_pickle(std::string_view bytes);
void fuzz_preference_pairs(std::string_view bytes);
void fuzz_safetensors(std::string_view bytes);
void fuzz_scaled_floats(std::string_view bytes);
void fuzz_sentencepiece(std::string_view bytes);
void fuzz_settings_yaml(std::string_view bytes);
void fuzz_tekken(std::string_view bytes);
void fuzz_tiktoken(std::string_view bytes);
void fuzz_token_set_about(std::string_view bytes);
void fuzz_tokenizer_json(std::string_view bytes);
void fuzz_torch_file(std::string_view bytes);
void fuzz_vocab_merges(std::string_view bytes);
void fuzz_weight_index(std::string_view bytes);
void fuzz_written_task(std::string_view bytes);

std::span<const NamedTarget> targets() {
  static constexpr NamedTarget kTargets[] = {
      {"adapter_config", fuzz_adapter_config},
      {"chat_template", fuzz_chat_template},
      {"config", fuzz_config},
      {"conversations", fuzz_conversations},
      {"dcp_metadata", fuzz_dcp_metadata},
      {"dialect", fuzz_dialect},
      {"gguf", fuzz_gguf},
      {"jsonl", fuzz_jsonl},
      {"litdata_chunk", fuzz_litdata_chunk},
      {"litdata_index", fuzz_litdata_index},
      {"litgpt_config", fuzz_litgpt_config},
      {"manifest", fuzz_manifest},
      {"megatron_idx", fuzz_megatron_idx},
      {"parquet_frame", fuzz_parquet_frame},
      {"pickle", fuzz_pickle},
      {"preference_pairs", fuzz_preference_pairs},
      {"safetensors", fuzz_safetensors},
      {"scaled_floats", fuzz_scaled_floats},
      {"sentencepiece", fuzz_sentencepiece},
      {"settings_yaml", fuzz_settings_yaml},
      {"tekken", fuzz_tekken},
      {"tiktoken", fuzz_tiktoken},
      {"token_set_about", fuzz_token_set_about},
      {"tokenizer_json", fuzz_tokenizer_json},
      {"torch_file", fuzz_torch_file},
      {"vocab_merges", fuzz_vocab_merges},
      {"weight_index", fuzz_weight_index},
      {"written_task", fuzz_written_task},
  };
  return kTargets;
}

void run_checked(Target target, std::string_view bytes) {
  try {
    target(bytes);
  } catch (const InternalError& error) {
    require(false, error.what());
  } catch (const Error& error) {
    const std::string_view text = error.what();
    require(!text.empty() && text.size() <= 16384, "an error is one clear message");
  }
}

}  // namespace trireme::fuzz
