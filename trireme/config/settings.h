// Settings: everything a run can be told, as plain typed data with its defaults. Names follow LitGPT where it
// has the flag, Hugging Face's config.json below `model`. What a setting means, its unit and its bounds stand
// once, in declaration.cpp; command line, YAML, help and docs/settings.md all come from there. An empty
// optional is "not given": the declaration says what happens then.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::config {

enum class Accelerator { cpu, cuda };
enum class Precision { automatic, fp32_true, bf16_mixed, fp64_true };
enum class Strategy { no_shard, zero1, shard_grad_op, full_shard, hybrid_shard, hybrid_shard_zero2 };
enum class Backend { automatic, shm, gloo, mpi, threads, nccl, dry_run };
enum class Reduce { fast, ordered };
enum class Accumulation { sharded, local };
enum class Recompute { none, full, selective };
enum class Context { ring, ulysses };
enum class PrefetchBackward { pre, post, none };
enum class WrapBy { block, layer, parameter };
enum class Compression { none, bf16 };
enum class LrScaling { none, linear, sqrt };
enum class LrDecay { cosine, linear, constant };
enum class SaveDtype { as_loaded, fp32, bf16 };
enum class SaveMode { sync, async };
enum class OnSaveError { stop, carry_on };

/// Where a run starts from: `resume: false | true | auto | FOLDER`.
struct Resume {
  enum class From { nothing, newest, newest_if_any, folder };
  From from = From::nothing;
  std::string folder;  ///< a checkpoint, or a folder of checkpoints; only with From::folder
  bool operator==(const Resume&) const = default;
};

/// The model's shape: a name, and keys of config.json that replace what the name stands for.
struct ModelSettings {
  bool from_scratch = false;
  std::string name;
  std::optional<std::string> model_type;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> rms_norm_eps;
  std::optional<double> rope_theta;
  std::optional<bool> tie_word_embeddings;
  std::optional<double> initializer_range;
  bool operator==(const ModelSettings&) const = default;
};

struct DataSettings {
  std::string name = "Austen";  ///< "Austen", "TextFiles", or LitGPT's "JSON" and "Alpaca"
  std::optional<std::string> train_data_path;
  std::optional<std::string> val_data_path;
  double val_split_fraction = 0.1;
  std::optional<std::string> val_split;  ///< "last" or "sample"; absent: by the number of documents
  std::optional<std::string> tokenizer;  ///< a folder, a file or "byte"; absent: the model folder's own, or bytes
  std::string text_field = "text";       ///< of JSONL objects, column of Parquet files
  bool append_eos = true;                ///< behind each document, when it is tokenized
  std::optional<std::string> format;     ///< "text", "alpaca", "sharegpt" or "messages"; absent: found by itself
  std::optional<std::string> chat_template;  ///< of conversations; absent: the model folder's own
  std::string learn = "replies";             ///< of conversations: "replies", "last_reply" or "messages"
  std::string long_conversations = "cut";    ///< "cut" or "drop"
  int64_t seed = 42;
  int64_t num_workers = 1;
  std::string packing = "wrapped";  ///< "wrapped", "best_fit" or "none"
  std::optional<std::vector<std::string>> mixture;  ///< each "PATH" or "WEIGHT PATH"
  bool reset_attention_mask = false;
  bool reset_position_ids = false;
  std::string on_change = "refuse";  ///< "refuse" or "restart"
  bool ledger = false;
  bool operator==(const DataSettings&) const = default;
};

struct TrainSettings {
  int64_t global_batch_size = 64;
  int64_t micro_batch_size = 4;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> epochs;
  std::optional<std::chrono::milliseconds> max_time;
  std::optional<int64_t> max_seq_length;
  int64_t lr_warmup_steps = 100;
  LrDecay lr_decay = LrDecay::cosine;
  std::optional<double> min_lr;  ///< absent: lowest_lr() says
  std::optional<double> max_norm = 1.0;
  std::optional<int64_t> save_interval = 1000;
  int64_t log_interval = 1;
  bool operator==(const TrainSettings&) const = default;
};

struct EvalSettings {
  std::optional<int64_t> interval;  ///< absent: evaluation_interval() says
  int64_t max_iters = 100;
  bool initial_validation = false;
  bool final_validation = true;
  bool operator==(const EvalSettings&) const = default;
};

/// Defaults are those of torch.optim; what is empty is the optimizer's own: optim::options_of().
struct OptimizerSettings {
  std::string name = "AdamW";
  double lr = 1e-3;
  std::optional<std::array<double, 2>> betas;
  std::optional<double> eps;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  std::optional<bool> nesterov;
  LrScaling lr_scaling = LrScaling::none;  ///< what train.global_batch_size does to lr: scaled_lr()
  int64_t base_batch_size = 256;
  bool operator==(const OptimizerSettings&) const = default;
};

/// Ranks along each axis, outer to inner; empty: worked out from the strategy and the number of ranks.
struct MeshSettings {
  std::optional<int64_t> pp, replicate, shard, cp, tp;
  bool sequence_parallel = false;
  Context context = Context::ring;
  bool operator==(const MeshSettings&) const = default;
};

struct CommSettings {
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout{30'000};
  Compression compression = Compression::none;
  std::optional<bool> tls;  ///< none: between machines
  bool operator==(const CommSettings&) const = default;
};

/// The names of schedules stand in their registry (trireme/schedule/pipeline.h), which this folder cannot see.
struct PipelineSettings {
  std::string schedule = "1f1b";
  int64_t chunks = 0;                         ///< stages a rank; 0: the schedule's own number
  std::optional<std::vector<int64_t>> split;  ///< units of each stage; empty: balanced by cost
  bool operator==(const PipelineSettings&) const = default;
};

struct RecomputeSettings {
  Recompute mode = Recompute::none;
  std::vector<std::string> values = {"hidden"};  ///< for Recompute::selective: names of saved values
  int64_t every = 1;                             ///< every n-th block
  bool operator==(const RecomputeSettings&) const = default;
};

/// What becomes a group that is gathered and reduced as one.
struct WrapSettings {
  WrapBy by = WrapBy::block;
  int64_t min_num_params = 0;
  std::optional<std::vector<std::string>> units;
  bool operator==(const WrapSettings&) const = default;
};

struct ScheduleSettings {
  int64_t prefetch = 1;
  bool prefetch_forward = true;
  PrefetchBackward prefetch_backward = PrefetchBackward::pre;
  std::optional<int64_t> limit_unsharded;  ///< elements
  int64_t reduce_lag = 1;
  bool operator==(const ScheduleSettings&) const = default;
};

struct SaveSettings {
  SaveMode mode = SaveMode::sync;
  OnSaveError on_error = OnSaveError::stop;
  SaveDtype dtype = SaveDtype::as_loaded;
  int64_t keep_last = 3;
  std::optional<int64_t> max_shard_bytes;
  bool operator==(const SaveSettings&) const = default;
};

struct LaunchSettings {
  std::optional<int64_t> threads_per_rank;
  bool pin = true;
  bool oversubscribe = false;
  std::optional<int64_t> node_rank;
  std::optional<std::string> master_addr;
  int64_t master_port = 29500;
  int64_t max_restarts = 0;
  std::optional<std::string> nnodes;         ///< "2:4": machines come and go
  std::optional<std::string> rdzv_endpoint;  ///< "host:port": where their launchers meet
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds last_call{10'000};
  std::optional<std::string> token_file;
  std::chrono::milliseconds grace{30'000};
  std::optional<std::string> notice_file;
  std::optional<std::string> notice_url;
  std::chrono::milliseconds notice_interval{5'000};
  std::optional<std::vector<int64_t>> log_ranks;
  std::optional<std::vector<std::string>> hosts;  ///< each "NAME" or "NAME:RANKS"
  std::optional<std::string> hostfile;
  std::optional<std::string> print;  ///< "sbatch", "k8s" or "hostfile"
  std::optional<std::string> image;
  std::optional<std::string> volume;
  bool operator==(const LaunchSettings&) const = default;
};

struct GenerateSettings {
  std::string checkpoint;
  std::string prompt;
  int64_t max_new_tokens = 200;
  double temperature = 0.8;
  std::optional<int64_t> top_k = 50;
  double top_p = 1.0;
  int64_t seed = 42;
  std::optional<std::vector<std::string>> stop;
  bool chat = false;
  std::optional<std::string> system;
  std::optional<std::string> chat_template;
  bool operator==(const GenerateSettings&) const = default;
};

/// Formats and dtypes stand in trireme/checkpoint/convert_sink.h, which this folder cannot see.
struct ConvertSettings {
  std::string source;
  std::string out;
  std::optional<std::string> to;
  std::optional<std::string> dtype;
  bool force = false;
  int64_t max_shard_bytes = 5'000'000'000;
  bool operator==(const ConvertSettings&) const = default;
};

struct EvaluateSettings {
  std::string checkpoint;
  std::optional<std::string> text;
  std::optional<std::string> multiple_choice;
  std::optional<int64_t> max_seq_length;
  std::optional<int64_t> limit;
  std::optional<std::string> json;
  bool operator==(const EvaluateSettings&) const = default;
};

struct BenchSettings {
  int64_t warmup = 3;
  int64_t steps = 10;
  std::optional<std::string> json;
  bool quick = false;
  std::optional<int64_t> threads;
  std::optional<std::vector<int64_t>> ranks;
  std::optional<std::string> picture;
  bool operator==(const BenchSettings&) const = default;
};

/// What `trireme data` does: PREFIX or file to write, and how.
struct PrepareSettings {
  std::string output;
  bool overwrite = false;
  std::optional<int64_t> threads;
  std::optional<int64_t> max_documents;
  bool json = false;
  int64_t vocab_size = 32000;
  int64_t min_frequency = 2;
  std::string pre_tokenizer = "gpt2";
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int64_t count = 3;  ///< documents that are shown
  bool ids = false;
  std::optional<int64_t> step;
  bool operator==(const PrepareSettings&) const = default;
};

struct DoctorSettings {
  std::optional<std::string> json;
  bool operator==(const DoctorSettings&) const = default;
};

struct EngineSettings {
  bool poison = false;
  bool operator==(const EngineSettings&) const = default;
};

struct ProfileSettings {
  std::optional<std::string> schedule;
  bool operator==(const ProfileSettings&) const = default;
};

struct Settings {
  std::string out_dir = "out/pretrain";
  Precision precision = Precision::automatic;
  Resume resume;
  bool overwrite = false;
  int64_t seed = 42;
  Accelerator accelerator = Accelerator::cpu;
  std::optional<int64_t> devices;
  int64_t num_nodes = 1;
  Strategy strategy = Strategy::full_shard;
  Reduce reduce = Reduce::ordered;
  Accumulation accumulation = Accumulation::sharded;
  ModelSettings model;
  DataSettings data;
  TrainSettings train;
  EvalSettings eval;
  OptimizerSettings optimizer;
  MeshSettings mesh;
  PipelineSettings pipeline;
  RecomputeSettings recompute;
  WrapSettings wrap;
  CommSettings comm;
  ScheduleSettings schedule;
  SaveSettings save;
  LaunchSettings launch;
  GenerateSettings generate;
  ConvertSettings convert;
  EvaluateSettings evaluate;
  PrepareSettings prepare;
  BenchSettings bench;
  DoctorSettings doctor;
  EngineSettings engine;
  ProfileSettings profile;
  bool operator==(const Settings&) const = default;
};

}  // namespace trireme::config
