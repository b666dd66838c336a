#include "trireme/config/choices.h"

namespace trireme::config {

std::span<const Choice<Precision>> choices_of(Precision) {
  static const std::vector<Choice<Precision>> kTable = {
      {Precision::automatic, "auto", {}},
      {Precision::fp32_true, "32-true", {"32", "fp32", "float32"}},
      {Precision::bf16_mixed, "bf16-mixed", {"bf16", "bfloat16"}},
      {Precision::fp64_true, "64-true", {"64", "fp64", "float64"}},
      {Precision::automatic, "16-mixed", {"16", "fp16", "float16"}, false},
      {Precision::automatic, "bf16-true", {}, false},
      {Precision::automatic, "16-true", {}, false},
  };
  return kTable;
}

// Words of DeepSpeed, PyTorch FSDP, Accelerate, LitGPT and Thunder for the same things.
std::span<const Choice<Accelerator>> choices_of(Accelerator) {
  static const std::vector<Choice<Accelerator>> kTable = {{Accelerator::cpu, "cpu", {}},
                                                          {Accelerator::cuda, "cuda", {"gpu"}}};
  return kTable;
}

std::span<const Choice<Strategy>> choices_of(Strategy) {
  static const std::vector<Choice<Strategy>> kTable = {
      {Strategy::no_shard, "no_shard", {"ddp", "zero0", "multi_gpu"}},
      {Strategy::zero1, "zero1", {}},
      {Strategy::shard_grad_op, "shard_grad_op", {"zero2"}},
      {Strategy::full_shard, "full_shard", {"zero3", "fsdp"}},
      {Strategy::hybrid_shard, "hybrid_shard", {"hsdp"}},
      {Strategy::hybrid_shard_zero2, "hybrid_shard_zero2", {"_hybrid_shard_zero2", "hybrid_zero2"}},
  };
  return kTable;
}

std::span<const Choice<Backend>> choices_of(Backend) {
  static const std::vector<Choice<Backend>> kTable = {
      {Backend::automatic, "auto", {}},
      {Backend::shm, "shm", {}},
      {Backend::gloo, "gloo", {}},
      {Backend::mpi, "mpi", {}},
      {Backend::threads, "threads", {}},
      {Backend::nccl, "nccl", {}},
      {Backend::dry_run, "dry_run", {"dry-run"}},
  };
  return kTable;
}

std::span<const Choice<Reduce>> choices_of(Reduce) {
  static const std::vector<Choice<Reduce>> kTable = {{Reduce::ordered, "ordered", {}}, {Reduce::fast, "fast", {}}};
  return kTable;
}

std::span<const Choice<Accumulation>> choices_of(Accumulation) {
  static const std::vector<Choice<Accumulation>> kTable = {{Accumulation::sharded, "sharded", {}},
                                                           {Accumulation::local, "local", {"no_sync"}}};
  return kTable;
}

std::span<const Choice<Context>> choices_of(Context) {
  static const std::vector<Choice<Context>> kTable = {{Context::ring, "ring", {}}, {Context::ulysses, "ulysses", {}}};
  return kTable;
}

// FSDP's BackwardPrefetch.
std::span<const Choice<PrefetchBackward>> choices_of(PrefetchBackward) {
  static const std::vector<Choice<PrefetchBackward>> kTable = {{PrefetchBackward::pre, "pre", {"backward_pre"}},
                                                               {PrefetchBackward::post, "post", {"backward_post"}},
                                                               {PrefetchBackward::none, "none", {"false"}}};
  return kTable;
}

std::span<const Choice<WrapBy>> choices_of(WrapBy) {
  static const std::vector<Choice<WrapBy>> kTable = {
      {WrapBy::block, "block", {}}, {WrapBy::layer, "layer", {}}, {WrapBy::parameter, "parameter", {}}};
  return kTable;
}

// PyTorch's communication hook.
std::span<const Choice<Compression>> choices_of(Compression) {
  static const std::vector<Choice<Compression>> kTable = {{Compression::none, "none", {"false"}},
                                                          {Compression::bf16, "bf16", {"bf16_compress"}}};
  return kTable;
}

std::span<const Choice<LrScaling>> choices_of(LrScaling) {
  static const std::vector<Choice<LrScaling>> kTable = {
      {LrScaling::none, "none", {"false"}}, {LrScaling::linear, "linear", {}}, {LrScaling::sqrt, "sqrt", {}}};
  return kTable;
}

std::span<const Choice<Recompute>> choices_of(Recompute) {
  static const std::vector<Choice<Recompute>> kTable = {{Recompute::none, "none", {"false"}},
                                                        {Recompute::full, "full", {"true"}},
                                                        {Recompute::selective, "selective", {}}};
  return kTable;
}

std::span<const Choice<LrDecay>> choices_of(LrDecay) {
  static const std::vector<Choice<LrDecay>> kTable = {
      {LrDecay::cosine, "cosine", {}}, {LrDecay::linear, "linear", {}}, {LrDecay::constant, "constant", {"none"}}};
  return kTable;
}

// torch.distributed.checkpoint's async_save.
std::span<const Choice<SaveMode>> choices_of(SaveMode) {
  static const std::vector<Choice<SaveMode>> kTable = {{SaveMode::sync, "sync", {"blocking"}},
                                                       {SaveMode::async, "async", {"asynchronous", "background"}}};
  return kTable;
}

std::span<const Choice<OnSaveError>> choices_of(OnSaveError) {
  static const std::vector<Choice<OnSaveError>> kTable = {{OnSaveError::stop, "stop", {"raise"}},
                                                          {OnSaveError::carry_on, "continue", {"warn"}}};
  return kTable;
}

std::span<const Choice<SaveDtype>> choices_of(SaveDtype) {
  static const std::vector<Choice<SaveDtype>> kTable = {
      {SaveDtype::as_loaded, "auto"}, {SaveDtype::fp32, "fp32", {"float32"}}, {SaveDtype::bf16, "bf16", {"bfloat16"}}};
  return kTable;
}

}  // namespace trireme::config
