#include "trireme/config/declaration.h"

#include <algorithm>

namespace trireme::config {

const std::vector<Group>& groups() {
  static const std::vector<Group> kGroups = {
      {"", "the whole run"},
      {"model", "its shape"},
      {"data", "the text to learn from"},
      {"train", "batches, steps, learning rate"},
      {"eval", "evaluation while training"},
      {"optimizer", "the update rule"},
      {"mesh", "ranks along each axis, outer to inner"},
      {"pipeline", "stages of the model, with mesh.pp above 1"},
      {"recompute", "memory for time"},
      {"wrap", "what is gathered and reduced as one"},
      {"comm", "communication"},
      {"schedule", "order of a step's actions"},
      {"save", "checkpoints"},
      {"launch", "starting ranks"},
      {"generate", "writing text", "generate"},
      {"convert", "models in other formats", "convert"},
      {"evaluate", "judging a trained model", "evaluate"},
      {"prepare", "preparing data with trireme data", "data"},
      {"bench", "benchmarks", "bench"},
      {"doctor", "looking at machines before a run", "doctor"},
      {"engine", "checks for debugging"},
      {"profile", "measuring"},
  };
  return kGroups;
}

std::vector<Setting> declare(Settings& s) {
  // As data/chat_families.cpp has them.
  const std::vector<std::string> chat_templates = {"chatml",  "llama3", "gemma",           "phi3",  "zephyr", "llama2",
                                                   "mistral", "alpaca", "stanford_alpaca", "vicuna"};
  const Rules shape{.at_least = 1, .absent = "null", .when_absent = "the named model's"};
  const Rules scale{.above = 0, .absent = "null", .when_absent = "the named model's"};
  auto axis = [](std::string_view left_to_choose) {
    return Rules{.unit = "ranks", .at_least = 1, .absent = "auto", .when_absent = left_to_choose};
  };
  const Rules stop{.at_least = 1, .absent = "null", .when_absent = "no limit"};
  auto stop_in = [&stop](std::string_view unit) {
    Rules rules = stop;
    rules.unit = unit;
    return rules;
  };

  return {
      {"out_dir", &s.out_dir, "folder for checkpoints, metrics and logs"},
      {"precision", &s.precision,
       "number format: fp32 throughout, or bf16 compute with fp32 master weights; auto is bf16-mixed on a GPU and "
       "where the processor has AVX512-BF16 or AMX, else 32-true"},
      {"resume", &s.resume,
       "go on from the newest checkpoint of out_dir (true: there must be one; auto: if there is one) or from a folder, "
       "with the settings of the checkpoint where no others are given"},
      {"overwrite", &s.overwrite,
       "a new run may replace an earlier one: the checkpoints, metrics and logs of that one are removed from out_dir "
       "when all settings have been accepted, and nothing else"},
      {"seed", &s.seed, "seed of the initial weights", {.at_least = 0}},
      {"accelerator", &s.accelerator,
       "what ranks compute on: the processor's cores, or an NVIDIA GPU each; commands that train take cuda"},
      {"devices",
       &s.devices,
       "ranks started on this machine",
       {.unit = "ranks",
        .at_least = 1,
        .at_most = 100'000,
        .absent = "auto",
        .when_absent = "one for each GPU (accelerator cuda) or NUMA node; 1 with a mesh"}},
      {"num_nodes",
       &s.num_nodes,
       "machines that take part, each with `devices` ranks",
       {.unit = "machines", .at_least = 1, .at_most = 100'000}},
      {"strategy", &s.strategy,
       "what ranks divide among them: nothing (no_shard), optimizer state (zero1), also gradients (shard_grad_op), "
       "also weights (full_shard); hybrid_shard and hybrid_shard_zero2 are the last two inside each of "
       "mesh.replicate copies"},
      {"reduce", &s.reduce,
       "order of sums over ranks: ordered gives the same bits on any number of data-parallel ranks (hybrid strategies "
       "exchange directly); fast sums a hybrid's shards first and its copies once a step, and allows accumulation "
       "local"},
      {"accumulation", &s.accumulation,
       "sharded reduces the gradients of each micro-batch; local adds a rank's micro-batches up in whole gradients on "
       "the rank, in fp32, and reduces once a step, which needs reduce fast"},

      {"model",
       &s.model.name,
       "name of the model's shape, for instance llama-32m, or a Hugging Face folder, whose weights training starts "
       "from; may stand first, without --model",
       {.may_be_empty = true}},
      {"model.from_scratch", &s.model.from_scratch, "new weights, though the model is a folder that has some"},
      {"model.model_type",
       &s.model.model_type,
       "architecture: llama, mistral, qwen2, qwen3, gemma2, gemma3_text or gpt2",
       {.absent = "null", .when_absent = "the named model's"}},
      {"model.vocab_size", &s.model.vocab_size, "tokens in the vocabulary", shape},
      {"model.hidden_size", &s.model.hidden_size, "width of the residual stream", shape},
      {"model.intermediate_size", &s.model.intermediate_size, "width inside the MLP", shape},
      {"model.num_hidden_layers", &s.model.num_hidden_layers, "number of blocks", shape},
      {"model.num_attention_heads", &s.model.num_attention_heads, "query heads a block", shape},
      {"model.num_key_value_heads", &s.model.num_key_value_heads, "key and value heads a block", shape},
      {"model.head_dim", &s.model.head_dim, "width of one head", shape},
      {"model.max_position_embeddings", &s.model.max_position_embeddings, "longest sequence the model is made for",
       shape},
      {"model.rms_norm_eps", &s.model.rms_norm_eps, "added to the mean square in RMSNorm", scale},
      {"model.rope_theta", &s.model.rope_theta, "base of the rotary frequencies", scale},
      {"model.tie_word_embeddings",
       &s.model.tie_word_embeddings,
       "embedding and head share one matrix",
       {.absent = "null", .when_absent = "the named model's"}},
      {"model.initializer_range", &s.model.initializer_range, "standard deviation of initial weights", scale},

      {"data",
       &s.data.name,
       "source of the text: Austen (the default corpus) or TextFiles; LitGPT's JSON and Alpaca are conversations",
       {.classes = {"Austen", "TextFiles", "JSON", "Alpaca"}}},
      {"data.train_data_path",
       &s.data.train_data_path,
       "what to train on: text, JSONL, Parquet, a folder of them, or a tokenized set",
       {.absent = "null", .when_absent = "the corpus that `make setup` fetched; TextFiles needs one"}},
      {"data.val_data_path",
       &s.data.val_data_path,
       "the same, held out for validation",
       {.absent = "null", .when_absent = "a part of the training text"}},
      {"data.val_split_fraction",
       &s.data.val_split_fraction,
       "share of the training text that is held out when there is no data.val_data_path",
       {.above = 0, .below = 1}},
      {"data.val_split",
       &s.data.val_split,
       "which part that is: the last one, or a sample of whole documents",
       {.absent = "auto",
        .when_absent = "sample for a source of 100 documents or more, else last; a resumed run keeps its own",
        .classes = {"last", "sample"}}},
      {"data.tokenizer",
       &s.data.tokenizer,
       "folder or file of the tokenizer (tokenizer.json), or byte",
       {.absent = "null", .when_absent = "the tokenizer in the model's folder; byte where there is none"}},
      {"data.text_field", &s.data.text_field,
       "field of JSONL objects, or column of Parquet files, that holds the text"},
      {"data.append_eos", &s.data.append_eos,
       "trireme data tokenize puts the tokenizer's end of text (byte: a newline) behind each document"},
      {"data.format",
       &s.data.format,
       "what the files hold: text, or conversations as Alpaca (instruction, input, output), ShareGPT (conversations) "
       "or "
       "OpenAI (messages) write them",
       {.absent = "auto",
        .when_absent = "told by the first record of .json and .jsonl files",
        .classes = {"text", "alpaca", "sharegpt", "messages"}}},
      {"data.chat_template",
       &s.data.chat_template,
       "how conversations are written for the model",
       {.absent = "auto",
        .when_absent = "that of the model's tokenizer_config.json; for Alpaca's form alpaca",
        .classes = chat_templates}},
      {"data.learn",
       &s.data.learn,
       "what is learned of conversations: replies (the assistant's, with their end), last_reply, or messages (also the "
       "user's)",
       {.classes = {"replies", "last_reply", "messages"}}},
      {"data.long_conversations",
       &s.data.long_conversations,
       "conversations longer than train.max_seq_length: cut their end off, or drop them",
       {.classes = {"cut", "drop"}}},
      {"data.seed", &s.data.seed, "seed of the order of samples", {.at_least = 0}},
      {"data.num_workers",
       &s.data.num_workers,
       "threads that prepare batches; 0 prepares them between steps",
       {.unit = "threads", .at_least = 0, .at_most = 64}},
      {"data.packing",
       &s.data.packing,
       "how text becomes samples: wrapped cuts the running text into windows, best_fit packs whole documents into "
       "rows, "
       "none gives every document a row",
       {.classes = {"wrapped", "best_fit", "none"}}},
      {"data.mixture",
       &s.data.mixture,
       "several sources instead of data.train_data_path, in YAML each {path: PATH, weight: NUMBER} or PATH, on the "
       "command "
       "line [NUMBER PATH, ...]; weights are shares of the samples, without them each source is seen once an epoch",
       {.absent = "null", .when_absent = "one source"}},
      {"data.reset_attention_mask", &s.data.reset_attention_mask,
       "a token sees those of its own document only (block-diagonal attention)"},
      {"data.reset_position_ids", &s.data.reset_position_ids, "positions begin at 0 with each document"},
      {"data.on_change",
       &s.data.on_change,
       "on resuming with other data, packing, lengths or weights: refuse, or restart at the new data's first sample",
       {.classes = {"refuse", "restart"}}},
      {"data.ledger", &s.data.ledger, "write down what each micro-batch was made of, in out_dir/ledger/rank<N>.jsonl"},

      {"train.global_batch_size",
       &s.train.global_batch_size,
       "sequences an optimizer step, over all ranks: a multiple of train.micro_batch_size",
       {.unit = "sequences", .at_least = 1}},
      {"train.micro_batch_size",
       &s.train.micro_batch_size,
       "sequences a rank computes at once",
       {.unit = "sequences", .at_least = 1}},
      {"train.max_steps", &s.train.max_steps, "stop after this many optimizer steps", stop_in("steps")},
      {"train.max_tokens", &s.train.max_tokens, "stop after this many tokens, over all ranks", stop_in("tokens")},
      {"train.epochs", &s.train.epochs, "stop after this many passes over the training data", stop_in("epochs")},
      {"train.max_time",
       &s.train.max_time,
       "stop, saved, after this much wall time",
       {.above = 0, .absent = "null", .when_absent = "no limit"}},
      {"train.max_seq_length",
       &s.train.max_seq_length,
       "tokens a sequence",
       {.unit = "tokens", .at_least = 1, .absent = "null", .when_absent = "model.max_position_embeddings"}},
      {"train.lr_warmup_steps",
       &s.train.lr_warmup_steps,
       "steps over which the learning rate rises from 0",
       {.unit = "steps", .at_least = 0}},
      {"train.lr_decay", &s.train.lr_decay, "how the learning rate falls from optimizer.lr to train.min_lr afterwards"},
      {"train.min_lr",
       &s.train.min_lr,
       "learning rate of the last step",
       {.at_least = 0, .absent = "auto", .when_absent = "a tenth of optimizer.lr, at most 6e-5"}},
      {"train.max_norm",
       &s.train.max_norm,
       "clip gradients to this global norm",
       {.above = 0, .absent = "null", .when_absent = "no clipping"}},
      {"train.save_interval",
       &s.train.save_interval,
       "save every so many steps; 0 saves only at the end",
       {.unit = "steps", .at_least = 0, .absent = "null", .when_absent = "only at the end"}},
      {"train.log_interval", &s.train.log_interval, "report every so many steps", {.unit = "steps", .at_least = 1}},

      {"eval.interval",
       &s.eval.interval,
       "evaluate on the held-out text every so many steps",
       {.unit = "steps",
        .at_least = 1,
        .absent = "auto",
        .when_absent = "every 50 to 600 steps: 20 times a run, where that takes less than a twentieth of the time"}},
      {"eval.max_iters",
       &s.eval.max_iters,
       "micro-batches an evaluation, over all ranks",
       {.unit = "micro-batches", .at_least = 1}},
      {"eval.initial_validation", &s.eval.initial_validation, "evaluate before the first step"},
      {"eval.final_validation", &s.eval.final_validation, "evaluate after the last step"},

      {"optimizer", &s.optimizer.name, "the optimizer", {.classes = {"AdamW", "Adam", "SGD", "Lion"}}},
      {"optimizer.lr", &s.optimizer.lr, "highest learning rate, reached after the warm-up", {.above = 0}},
      {"optimizer.betas",
       &s.optimizer.betas,
       "decay rates of the two moments; Lion's: in the update, and of the moment",
       {.at_least = 0, .below = 1, .absent = "auto", .when_absent = "[0.9, 0.999]; for Lion [0.9, 0.99]"}},
      {"optimizer.eps",
       &s.optimizer.eps,
       "added to the root of the second moment (AdamW, Adam)",
       {.above = 0, .absent = "auto", .when_absent = "1e-8"}},
      {"optimizer.weight_decay",
       &s.optimizer.weight_decay,
       "decay of matrices: decoupled, times the learning rate (AdamW, Lion), or added to the gradient (Adam, SGD)",
       {.at_least = 0, .absent = "auto", .when_absent = "0.01 for AdamW, else 0"}},
      {"optimizer.momentum",
       &s.optimizer.momentum,
       "part of the last step's direction that stays in the next (SGD)",
       {.at_least = 0, .below = 1, .absent = "auto", .when_absent = "0, which keeps no state"}},
      {"optimizer.nesterov",
       &s.optimizer.nesterov,
       "look ahead along the momentum (SGD)",
       {.absent = "auto", .when_absent = "false"}},
      {"optimizer.lr_scaling", &s.optimizer.lr_scaling,
       "multiplies optimizer.lr by train.global_batch_size / optimizer.base_batch_size (linear) or its root (sqrt)"},
      {"optimizer.base_batch_size",
       &s.optimizer.base_batch_size,
       "global batch that optimizer.lr was found for; read by optimizer.lr_scaling",
       {.unit = "sequences", .at_least = 1}},

      {"mesh.pp", &s.mesh.pp, "pipeline stages", axis("1")},
      {"mesh.replicate", &s.mesh.replicate, "copies of the weights",
       axis("the rest for no_shard and hybrid strategies, else 1")},
      {"mesh.shard", &s.mesh.shard, "ranks that share one copy of the weights",
       axis("1 for no_shard, one machine's ranks for hybrid strategies, else the rest")},
      {"mesh.cp", &s.mesh.cp, "ranks that share one sequence", axis("1")},
      {"mesh.tp", &s.mesh.tp, "ranks that share each matrix product", axis("1")},
      {"mesh.sequence_parallel", &s.mesh.sequence_parallel,
       "the mesh.tp ranks also share the tokens between matrix products: less memory, the same bytes sent"},
      {"mesh.context", &s.mesh.context,
       "how mesh.cp ranks attend to each other's tokens: keys and values go round (ring), or heads are exchanged for "
       "tokens (ulysses)"},

      {"pipeline.schedule", &s.pipeline.schedule,
       "order of forward and backward passes: 1f1b, gpipe, interleaved_1f1b, zb_h1, zb_v or breadth_first"},
      {"pipeline.chunks",
       &s.pipeline.chunks,
       "stages on each rank; 0 takes the schedule's own number, 2 for interleaved_1f1b, zb_v and breadth_first, else 1",
       {.unit = "stages", .at_least = 0, .at_most = 64}},
      {"pipeline.split",
       &s.pipeline.split,
       "units (embedding, blocks, head) of each stage, for instance [4, 4, 4, 3]",
       {.unit = "units", .at_least = 1, .absent = "auto", .when_absent = "balanced by cost"}},

      {"recompute", &s.recompute.mode,
       "what is computed again in the backward pass instead of kept: nothing, all but each block's input (full), or "
       "recompute.values (selective)"},
      {"recompute.values",
       &s.recompute.values,
       "values that selective computes again",
       {.classes = {"qkv", "attended", "mid", "hidden"}}},
      {"recompute.every",
       &s.recompute.every,
       "recompute in every n-th block; 1 is all of them",
       {.unit = "blocks", .at_least = 1}},

      {"wrap.by", &s.wrap.by,
       "smallest part of the model that is gathered and reduced by itself: a block with all it holds, its attention "
       "and "
       "MLP apart (layer), or each weight (parameter)"},
      {"wrap.min_num_params",
       &s.wrap.min_num_params,
       "neighbours with fewer parameters are put together until they have so many",
       {.unit = "parameters", .at_least = 0}},
      {"wrap.units",
       &s.wrap.units,
       "units that are gathered and reduced by themselves, for instance [embedding, block 0, head]; the others go "
       "together",
       {.absent = "null", .when_absent = "all units"}},

      {"comm.backend", &s.comm.backend, "how ranks talk: auto takes shm on one machine, gloo or nccl between several"},
      {"comm.timeout", &s.comm.timeout, "a collective that has not ended by then fails the job", {.above = 0}},
      {"comm.compression", &s.comm.compression,
       "bf16 sends fp32 gradients between ranks as bf16 and sums them in fp32, in rank order; needs backend gloo, and "
       "changes nothing where gradients are bf16 already (bf16-mixed)"},
      {"comm.tls",
       &s.comm.tls,
       "nobody on the network can read or change what gloo sends between machines: AES-256-GCM by Trireme itself, with "
       "a key that comes through the store's TLS; it costs a pass over the bytes on both sides",
       {.absent = "null", .when_absent = "true between machines, false inside of one"}},

      {"schedule.prefetch",
       &s.schedule.prefetch,
       "units whose weights are gathered ahead of their use",
       {.unit = "units", .at_least = 0, .at_most = 64}},
      {"schedule.prefetch_forward", &s.schedule.prefetch_forward, "gather ahead in forward passes too"},
      {"schedule.prefetch_backward", &s.schedule.prefetch_backward,
       "when the next unit's weights are asked for in backward passes: before a unit's gradients are computed (pre), "
       "after (post), or when they are used (none)"},
      {"schedule.limit_unsharded",
       &s.schedule.limit_unsharded,
       "whole weights on a rank at once; gathers wait until they fit",
       {.unit = "parameters", .at_least = 1, .absent = "null", .when_absent = "no limit"}},
      {"schedule.reduce_lag",
       &s.schedule.reduce_lag,
       "forward or backward computations of a unit beside which a gradient's reduction may go on",
       {.unit = "computations", .at_least = 0, .at_most = 64}},

      {"save.mode", &s.save.mode,
       "sync: training stands still until the checkpoint is on the disk; async: until the state is copied into memory "
       "planned for it, then a thread writes beside training"},
      {"save.on_error", &s.save.on_error,
       "when a checkpoint cannot be saved (full disk, folder gone): stop, or continue training with a warning; the one "
       "at "
       "the end of training has to succeed"},
      {"save.dtype", &s.save.dtype,
       "format of the model's files: auto keeps that of the folder the model came from, tensor by tensor and file by "
       "file, and is fp32 for a new model; optimizer files are fp32 always"},
      {"save.keep_last",
       &s.save.keep_last,
       "checkpoints to keep, older ones are removed; 0 keeps all",
       {.unit = "checkpoints", .at_least = 0}},
      {"save.max_shard_bytes",
       &s.save.max_shard_bytes,
       "largest size of one safetensors file",
       {.at_least = 1e6,
        .bytes = true,
        .absent = "auto",
        .when_absent = "files as in the folder the model came from; 5 GB for a new model"}},

      {"launch.threads_per_rank",
       &s.launch.threads_per_rank,
       "threads a rank computes with",
       {.unit = "threads", .at_least = 1, .absent = "auto", .when_absent = "the machine's cores divided by its ranks"}},
      {"launch.pin", &s.launch.pin, "tie each rank's threads to cores of their own"},
      {"launch.oversubscribe", &s.launch.oversubscribe,
       "start ranks for which a machine has too few cores or too little memory (docs/launching.md says when that is)"},
      {"launch.node_rank",
       &s.launch.node_rank,
       "which of the num_nodes machines this is; each starts the same command with its own",
       {.at_least = 0, .absent = "auto", .when_absent = "srun's or Kubernetes' word; else it must be given"}},
      {"launch.master_addr",
       &s.launch.master_addr,
       "address of machine 0 as the other machines reach it, where all ranks meet",
       {.absent = "null",
        .when_absent = "srun's tasks meet by a file in out_dir; else it must be given where num_nodes is 2 or more"}},
      {"launch.master_port",
       &s.launch.master_port,
       "port there, the same on every machine",
       {.at_least = 1, .at_most = 65535}},
      {"launch.max_restarts",
       &s.launch.max_restarts,
       "how often all ranks start again after a failure, from the newest checkpoint; a failure that comes again at the "
       "same step ends the job",
       {.unit = "restarts", .at_least = 0}},
      {"launch.grace",
       &s.launch.grace,
       "what a run has from the request to stop (SIGTERM, SIGINT, SIGUSR1, a notice) to its end: a step that would "
       "take "
       "longer is abandoned, and the last complete one saved",
       {.above = 0}},
      {"launch.notice_file",
       &s.launch.notice_file,
       "a file whose appearing, or change, on any machine asks the run to stop",
       {.absent = "null", .when_absent = "none is looked for"}},
      {"launch.notice_url",
       &s.launch.notice_url,
       "an http address that tells of preemption, asked once on each machine: a cloud's metadata service",
       {.absent = "null", .when_absent = "none is asked"}},
      {"launch.notice_interval", &s.launch.notice_interval, "how often file and address are looked at", {.above = 0}},
      {"launch.hosts",
       &s.launch.hosts,
       "machines to start by ssh, each NAME or NAME:RANKS; devices where it says none",
       {.absent = "null", .when_absent = "this machine, or those of launch.hostfile"}},
      {"launch.hostfile",
       &s.launch.hostfile,
       "file with a machine a line, to start by ssh: NAME, or NAME slots=RANKS as Open MPI writes it",
       {.absent = "null", .when_absent = "none"}},
      {"launch.print",
       &s.launch.print,
       "print a job file for this command and start nothing",
       {.absent = "null", .when_absent = "the command runs", .classes = {"sbatch", "k8s", "hostfile"}}},
      {"launch.image",
       &s.launch.image,
       "container image that holds trireme, for launch.print k8s",
       {.absent = "null", .when_absent = "it must be given for k8s"}},
      {"launch.volume",
       &s.launch.volume,
       "shared storage for launch.print k8s: CLAIM:/PATH, a PersistentVolumeClaim and where pods see it; out_dir lies "
       "in it",
       {.absent = "null", .when_absent = "it must be given for k8s"}},
      {"launch.nnodes",
       &s.launch.nnodes,
       "machines that take part, MIN:MAX: the job starts, and starts again after a failure, on as many as come to "
       "launch.rdzv_endpoint; one number stands for both",
       {.absent = "null", .when_absent = "num_nodes"}},
      {"launch.rdzv_endpoint",
       &s.launch.rdzv_endpoint,
       "HOST:PORT where the machines' launchers meet and give out numbers; HOST is one of the machines, and every "
       "machine starts the same command",
       {.absent = "null", .when_absent = "launch.node_rank says which machine this is"}},
      {"launch.join_timeout",
       &s.launch.join_timeout,
       "how long launchers wait at launch.rdzv_endpoint for enough machines, and ranks for rank 0, which reads the "
       "data before it comes",
       {.above = 0}},
      {"launch.last_call",
       &s.launch.last_call,
       "how long they wait for more machines, up to the most, once there are enough",
       {.at_least = 0}},
      {"launch.token_file",
       &s.launch.token_file,
       "file with the job's secret, at least 32 random characters (openssl rand -hex 32), of mode 0600 and yours; "
       "ranks "
       "without it are refused",
       {.absent = "null", .when_absent = "drawn for each job; other machines find it in out_dir"}},
      {"launch.log_ranks",
       &s.launch.log_ranks,
       "ranks whose output is on the screen too, each line after its rank: 1,3; all of it is in out_dir/logs anyway",
       {.at_least = 0, .absent = "none", .when_absent = "rank 0 alone"}},

      {"generate.checkpoint",
       &s.generate.checkpoint,
       "checkpoint folder, or folder of checkpoints (the newest counts); may stand first, without its name",
       {.may_be_empty = true}},
      {"generate.prompt", &s.generate.prompt, "text to continue", {.may_be_empty = true}},
      {"generate.max_new_tokens", &s.generate.max_new_tokens, "tokens to write", {.unit = "tokens", .at_least = 1}},
      {"generate.temperature",
       &s.generate.temperature,
       "divides the logits; 0 takes the likeliest token always",
       {.at_least = 0}},
      {"generate.top_k",
       &s.generate.top_k,
       "draw among this many likeliest tokens",
       {.unit = "tokens", .at_least = 1, .absent = "null", .when_absent = "all"}},
      {"generate.top_p",
       &s.generate.top_p,
       "draw among the likeliest tokens that together have this probability",
       {.above = 0, .at_most = 1}},
      {"generate.seed", &s.generate.seed, "seed of the draws", {.at_least = 0}},
      {"generate.stop",
       &s.generate.stop,
       "the text ends before the first of these words: [END, \"User:\"]",
       {.absent = "null", .when_absent = "it ends where the model ends it"}},
      {"generate.chat", &s.generate.chat, "answer each line of standard input in a conversation"},
      {"generate.system",
       &s.generate.system,
       "with generate.chat: what the model is told first",
       {.may_be_empty = true, .absent = "none"}},
      {"generate.chat_template",
       &s.generate.chat_template,
       "how the model was told who speaks",
       {.absent = "auto", .when_absent = "that of its tokenizer_config.json", .classes = chat_templates}},

      {"evaluate.checkpoint",
       &s.evaluate.checkpoint,
       "checkpoint folder, or folder of checkpoints (the newest counts); may stand first, without its name",
       {.may_be_empty = true}},
      {"evaluate.text",
       &s.evaluate.text,
       "text file, or folder of *.txt files, whose perplexity is asked for",
       {.absent = "none"}},
      {"evaluate.multiple_choice",
       &s.evaluate.multiple_choice,
       "JSONL file of questions: {\"context\", \"choices\", \"answer\"}, answered by likelihood",
       {.absent = "none"}},
      {"evaluate.max_seq_length",
       &s.evaluate.max_seq_length,
       "the text is read in windows of so many tokens",
       {.unit = "tokens", .at_least = 2, .absent = "null", .when_absent = "1024, or the model's longest"}},
      {"evaluate.limit",
       &s.evaluate.limit,
       "only the first so many windows or questions",
       {.at_least = 1, .absent = "null", .when_absent = "all"}},
      {"evaluate.json", &s.evaluate.json, "file for the result as JSON", {.absent = "none"}},

      {"convert.source",
       &s.convert.source,
       "the model to read, in any format that convert knows; may stand first, without its name",
       {.may_be_empty = true}},
      {"convert.out",
       &s.convert.out,
       "the file or folder to write; may stand second, without its name",
       {.may_be_empty = true}},
      {"convert.to",
       &s.convert.to,
       "the format to write",
       {.absent = "auto",
        .when_absent = "gguf for a name in .gguf, pth for one in .pth, .pt or .bin, else safetensors",
        .classes = {"safetensors", "gguf", "pth", "dcp", "litgpt"}}},
      {"convert.dtype",
       &s.convert.dtype,
       "dtype of the matrices; q8_0 is GGUF's, with a scale for every 32 values",
       {.absent = "auto",
        .when_absent = "as they are, quantised ones in float32",
        .classes = {"float32", "bfloat16", "float16", "q8_0"}}},
      {"convert.force", &s.convert.force, "replace what is there"},
      {"convert.max_shard_bytes",
       &s.convert.max_shard_bytes,
       "largest size of one safetensors file",
       {.at_least = 1e6, .bytes = true}},

      {"prepare.output",
       &s.prepare.output,
       "what trireme data writes: the PREFIX of a tokenized set, or a file",
       {.may_be_empty = true}},
      {"prepare.overwrite", &s.prepare.overwrite, "replace what is there"},
      {"prepare.threads",
       &s.prepare.threads,
       "threads that tokenize",
       {.unit = "threads", .at_least = 1, .at_most = 1024, .absent = "auto", .when_absent = "one a core"}},
      {"prepare.max_documents",
       &s.prepare.max_documents,
       "only the first so many documents",
       {.unit = "documents", .at_least = 1, .absent = "null", .when_absent = "all"}},
      {"prepare.json", &s.prepare.json, "print the result as JSON"},
      {"prepare.vocab_size",
       &s.prepare.vocab_size,
       "tokens that train_tokenizer learns, with the special ones and 256 bytes",
       {.unit = "tokens", .at_least = 256, .at_most = 1048576}},
      {"prepare.min_frequency",
       &s.prepare.min_frequency,
       "how often a pair occurs at least for train_tokenizer to make a token of it",
       {.at_least = 1}},
      {"prepare.pre_tokenizer",
       &s.prepare.pre_tokenizer,
       "how train_tokenizer cuts text into pieces: as that model does",
       {.classes = {"gpt2", "llama3", "qwen2"}}},
      {"prepare.special_tokens", &s.prepare.special_tokens,
       "special tokens of train_tokenizer, from id 0 on; the first ends a text"},
      {"prepare.count", &s.prepare.count, "documents that data show prints", {.unit = "documents", .at_least = 1}},
      {"prepare.ids", &s.prepare.ids, "data show prints each token's id behind it"},
      {"prepare.step",
       &s.prepare.step,
       "optimizer step whose samples trireme data ledger lists, the first is 1",
       {.at_least = 1, .absent = "null", .when_absent = "none is listed"}},

      {"bench.warmup", &s.bench.warmup, "steps before the clock starts", {.unit = "steps", .at_least = 0}},
      {"bench.steps", &s.bench.steps, "steps that are timed", {.unit = "steps", .at_least = 1}},
      {"bench.json", &s.bench.json, "file for the result as JSON (keys: docs/benchmarks.md)", {.absent = "none"}},
      {"bench.quick", &s.bench.quick, "time everything so briefly that figures mean little: to see that it works"},
      {"bench.threads",
       &s.bench.threads,
       "threads that bench ops, gemm and data compute with",
       {.unit = "threads", .at_least = 1, .at_most = 1024, .absent = "auto", .when_absent = "1"}},
      {"bench.ranks",
       &s.bench.ranks,
       "numbers of ranks that bench scaling compares, the first being the measure of the others",
       {.unit = "ranks", .at_least = 1, .absent = "auto", .when_absent = "1, 2 and 4"}},
      {"bench.picture",
       &s.bench.picture,
       "file for the picture of bench scaling (SVG)",
       {.absent = "auto", .when_absent = "scaling.svg in out_dir"}},

      {"doctor.json",
       &s.doctor.json,
       "file for what trireme doctor found as JSON (keys: docs/launching.md)",
       {.absent = "none"}},

      {"engine.poison", &s.engine.poison,
       "fill every value with NaN at the end of its life and put guard bytes between values; slow"},

      {"profile.schedule",
       &s.profile.schedule,
       "file for the measured timeline of the third step: a picture for .svg, text for .txt, else a Chrome trace",
       {.absent = "null", .when_absent = "not measured"}},
  };
}

std::string_view own_leaf(std::string_view group) {
  if (group == "model" || group == "data" || group == "optimizer") return "name";
  return group == "recompute" ? "mode" : "";
}

std::string_view group_of(std::string_view key) {
  const std::string_view head = key.substr(0, key.find('.'));
  return head.size() != key.size() || !own_leaf(head).empty() ? head : std::string_view();
}

const std::vector<std::string>& all_keys() {
  static const std::vector<std::string> kKeys = [] {
    Settings settings;
    std::vector<std::string> keys;
    for (const Setting& setting : declare(settings)) keys.emplace_back(setting.key);
    return keys;
  }();
  return kKeys;
}

const Setting* find(const std::vector<Setting>& table, std::string_view key) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const Setting& s) { return s.key == key; });
  return row == table.end() ? nullptr : &*row;
}

std::string canonical_key(std::string_view key) {
  // torchrun's words, on training commands too.
  for (const std::string_view word :
       {"nnodes", "rdzv_endpoint", "max_restarts", "node_rank", "master_addr", "master_port"})
    if (key == word) return "launch." + std::string(word);
  constexpr std::string_view kArguments = ".init_args";
  const std::string_view head = key.substr(0, key.find('.'));
  const std::string_view leaf = own_leaf(head);
  if (leaf.empty()) return std::string(key);
  std::string_view rest = key.substr(head.size());
  const bool is_class = head == "data" || head == "optimizer";
  if (is_class && (rest == kArguments || rest.substr(0, kArguments.size() + 1) == ".init_args.")) {
    rest.remove_prefix(kArguments.size());
  }
  if ((!rest.empty() && rest.substr(1) == leaf) || (rest == ".class_path" && is_class)) rest = {};
  if (head == "data" && rest == ".json_path") rest = ".train_data_path";  // LitGPT's JSON
  if (head == "data" && rest == ".prompt_style") rest = ".chat_template";
  return std::string(head) + std::string(rest);
}

std::string environment_name(std::string_view key) {
  std::string name = "TRIREME_";
  for (const char c : key) name += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

}  // namespace trireme::config
