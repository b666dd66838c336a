#include <array>
#include <string_view>
#include <utility>

#include "trireme/config/value.h"

namespace trireme::config {

namespace {

// For settings whose default says nothing: it is left open, or an empty text. Others show their default.
constexpr std::array kExamples = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"resume", "auto"},
    {"devices", "2"},
    {"model", "llama-32m"},
    {"model.model_type", "llama"},
    {"model.vocab_size", "32000"},
    {"model.hidden_size", "512"},
    {"model.intermediate_size", "1408"},
    {"model.num_hidden_layers", "8"},
    {"model.num_attention_heads", "8"},
    {"model.num_key_value_heads", "2"},
    {"model.head_dim", "64"},
    {"model.max_position_embeddings", "2048"},
    {"model.rms_norm_eps", "1e-6"},
    {"model.rope_theta", "1e6"},
    {"model.initializer_range", "0.02"},
    {"data.train_data_path", "my.txt"},
    {"data.val_data_path", "held_out.txt"},
    {"data.tokenizer", "byte"},
    {"data.mixture", "[0.7 web, 0.3 books]"},
    {"train.max_steps", "1000"},
    {"train.max_tokens", "3e9"},
    {"train.epochs", "1"},
    {"train.max_time", "2h"},
    {"train.max_seq_length", "1024"},
    {"train.min_lr", "6e-5"},
    {"eval.interval", "100"},
    {"optimizer.betas", "[0.9, 0.95]"},
    {"optimizer.eps", "1e-8"},
    {"optimizer.weight_decay", "0.1"},
    {"optimizer.momentum", "0.9"},
    {"mesh.pp", "2"},
    {"mesh.replicate", "2"},
    {"mesh.shard", "2"},
    {"mesh.cp", "2"},
    {"mesh.tp", "2"},
    {"pipeline.split", "[4, 4, 4, 3]"},
    {"wrap.units", "[embedding, head]"},
    {"schedule.limit_unsharded", "5e8"},
    {"save.max_shard_bytes", "5GB"},
    {"launch.threads_per_rank", "1"},
    {"launch.node_rank", "0"},
    {"launch.master_addr", "host-a"},
    {"launch.notice_file", "/run/preempted"},
    {"launch.notice_url", "http://169.254.169.254/latest/meta-data/spot/instance-action"},
    {"launch.hosts", "host-a:4,host-b:4"},
    {"launch.hostfile", "hosts.txt"},
    {"launch.image", "registry.example/trireme:1"},
    {"launch.volume", "shared:/data"},
    {"launch.nnodes", "2:4"},
    {"launch.rdzv_endpoint", "host-a:29400"},
    {"launch.token_file", "job.token"},
    {"launch.log_ranks", "1,3"},
    {"generate.checkpoint", "out/austen"},
    {"generate.prompt", "It is a truth"},
    {"generate.top_k", "50"},
    {"generate.stop", "[END]"},
    {"generate.system", "Answer briefly."},
    {"evaluate.checkpoint", "out/austen"},
    {"evaluate.text", "my.txt"},
    {"evaluate.multiple_choice", "questions.jsonl"},
    {"evaluate.max_seq_length", "1024"},
    {"evaluate.limit", "100"},
    {"evaluate.json", "result.json"},
    {"convert.source", "model.gguf"},
    {"convert.out", "model"},
    {"prepare.output", "tokens/mine"},
    {"prepare.threads", "4"},
    {"prepare.max_documents", "1000"},
    {"prepare.step", "1"},
    {"bench.json", "result.json"},
    {"bench.threads", "2"},
    {"bench.ranks", "1,2,4"},
    {"bench.picture", "scaling.svg"},
    {"doctor.json", "result.json"},
    {"profile.schedule", "schedule.svg"},
});

}  // namespace

std::string example_text(const Setting& setting) {
  for (const auto& [key, example] : kExamples)
    if (key == setting.key) return std::string(example);
  if (!setting.rules.classes.empty()) return setting.rules.classes.front();
  return type_name(setting) == "true or false" ? "true" : value_text(setting);
}

}  // namespace trireme::config
