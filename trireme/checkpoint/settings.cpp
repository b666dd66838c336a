#include "trireme/checkpoint/settings.h"

namespace trireme::checkpoint {

using config::Resumed;

// torch.distributed.checkpoint's async_save.
std::span<const config::Choice<SaveMode>> choices_of(SaveMode) {
  static const std::vector<config::Choice<SaveMode>> kTable = {
      {SaveMode::sync, "sync", {"blocking"}}, {SaveMode::async, "async", {"asynchronous", "background"}}};
  return kTable;
}

std::span<const config::Choice<OnSaveError>> choices_of(OnSaveError) {
  static const std::vector<config::Choice<OnSaveError>> kTable = {{OnSaveError::stop, "stop", {"raise"}},
                                                                  {OnSaveError::carry_on, "continue", {"warn"}}};
  return kTable;
}

std::span<const config::Choice<SaveDtype>> choices_of(SaveDtype) {
  static const std::vector<config::Choice<SaveDtype>> kTable = {
      {SaveDtype::as_loaded, "auto"}, {SaveDtype::fp32, "fp32", {"float32"}}, {SaveDtype::bf16, "bf16", {"bfloat16"}}};
  return kTable;
}

std::span<const config::Choice<Dtype>> choices_of(Dtype) {
  static const std::vector<config::Choice<Dtype>> kTable = {{Dtype::f32, "fp32", {"float32"}},
                                                            {Dtype::bf16, "bf16", {"bfloat16"}},
                                                            {Dtype::f16, "fp16", {"float16"}},
                                                            {Dtype::f64, "fp64", {"float64"}}};
  return kTable;
}

std::span<const config::Choice<BaseIn>> choices_of(BaseIn) {
  static const std::vector<config::Choice<BaseIn>> kTable = {{BaseIn::reference, "reference"}, {BaseIn::copy, "copy"}};
  return kTable;
}

config::Section section(CheckpointSettings& s) {
  return {
      .name = "checkpoint",
      .title = "contents of adapters' checkpoints",
      .resumed = Resumed::yes,
      .rows = {{"checkpoint.base", &s.base,
                "what a checkpoint of adapters holds of their base model: a reference (its path and a fingerprint) or "
                "a copy"}}};
}

config::Section section(SaveSettings& s) {
  return {
      .name = "save",
      .title = "checkpoints",
      .resumed = Resumed::yes,
      .rows =
          {
              {"save.mode", &s.mode,
               "sync: training waits until the checkpoint is on the disk; async: it waits until the state is copied "
               "into memory planned for it, then a thread writes in the background"},
              {"save.on_error", &s.on_error,
               "if a checkpoint or another file of the run cannot be written (full disk, folder gone): stop, or "
               "continue training with a warning; the checkpoint at the end of training must succeed, and a picture "
               "of the loss that cannot be written is only told"},
              {"save.dtype", &s.dtype,
               "dtype of the weights: auto keeps the dtype of each tensor, and its file, as in the folder that the "
               "model came from, and is fp32 for a new model; optimizer state keeps the dtype that the run has it in"},
              {"save.keep_last",
               &s.keep_last,
               "number of newest checkpoints to keep; older ones are removed; 0 keeps all",
               {.unit = "checkpoints", .at_least = 0, .at_most = 1e6}},
              {"save.keep_best", &s.keep_best,
               "beside them, the checkpoint stays whose step had the best evaluation: the highest val_reward, or the "
               "lowest held-out loss; trireme grpo: true"},
              {"save.max_shard_bytes",
               &s.max_shard_bytes,
               "largest size of one safetensors file",
               {.at_least = 1e6,
                .bytes = true,
                .absent = "auto",
                .when_absent = "files as in the folder the model came from; 5 GB for a new model",
                .example = "5GB"}},
          },
      .others = {
          {{"async_save"}, "for saving in the background, use save.mode async"},
          {{"save_total_limit", "max_to_keep"}, "the number of checkpoints to keep is save.keep_last"},
          {{"load_best_model_at_end", "save_top_k"},
           "training goes on from the newest checkpoint; with save.keep_best true the best one stays as well"},
          {{"push_to_hub"}, "nothing is uploaded, but checkpoints are Hugging Face folders", true},
      }};
}

config::Section section(ConvertSettings& s) {
  return {
      .name = "convert",
      .title = "models in other formats",
      .command = "convert",
      .rows = {
          {"convert.source",
           &s.source,
           "the model to read, in any format that convert knows; may be the first word, without its name",
           {.may_be_empty = true, .example = "model.gguf"}},
          {"convert.adapter",
           &s.adapter,
           "adapter (PEFT's folder or a checkpoint of one) to merge into the model",
           {.absent = "none", .example = "out/finetune/lora"}},
          {"convert.base",
           &s.base,
           "if the source is itself an adapter: the folder of its base model",
           {.absent = "auto", .when_absent = "the folder that the adapter names", .example = "llama"}},
          {"convert.out",
           &s.out,
           "the file or folder to write; may be the second word, without its name",
           {.may_be_empty = true, .example = "model"}},
          {"convert.to",
           &s.to,
           "the format to write",
           {.absent = "auto",
            .when_absent = "gguf if the name ends in .gguf, pth if it ends in .pth, .pt or .bin, else safetensors",
            .classes = {"safetensors", "gguf", "pth", "dcp", "litgpt"}}},
          {"convert.dtype",
           &s.dtype,
           "dtype of the matrices; q8_0 and q4_0 are GGUF's, with a scale for every 32 values, in a GGUF file or in a "
           "folder for trireme alone, which keeps a GGUF file's own blocks; bnb.nf4 and its like are bitsandbytes' "
           "blocks of 4 bits, in a folder that transformers reads",
           {.absent = "auto",
            .when_absent = "unchanged, but quantised ones become float32",
            .classes = {"float32", "bfloat16", "float16", "q8_0", "q4_0", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4",
                        "bnb.fp4-dq"}}},
          {"convert.quantize",
           &s.quantize,
           "merge the adapter into the values that codes of this format stand for, on which it was trained; with "
           "another base it means something else",
           {.absent = "none",
            .when_absent = "the base as it lies in its folder",
            .classes = {"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "q8_0", "q4_0"}}},
          {"convert.force", &s.force, "replace an existing result"},
          {"convert.max_shard_bytes",
           &s.max_shard_bytes,
           "largest size of one safetensors file",
           {.at_least = 1e6, .bytes = true}},
      }};
}

}  // namespace trireme::checkpoint
