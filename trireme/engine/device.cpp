#include "trireme/engine/device.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/embedding.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::engine {

at::Device take_gpu(int local_rank) {
  ops::cuda_kernels();
  const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
  const int count = gpus.deviceCount();
  if (local_rank >= count)
    throw UsageError(
        fmt::format("local rank {} has no GPU: CUDA sees {} on this machine (CUDA_VISIBLE_DEVICES chooses "
                    "among them); start at most {} with --devices",
                    local_rank, count, count));
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  gpus.setDevice(device);
  return device;
}

at::Tensor allocate_on_gpu(int64_t bytes, at::Device device) try {
  return at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(device));
} catch (const c10::OutOfMemoryError& error) {
  throw Error(
      fmt::format("the GPU has no {} bytes for the arena: {}; try a smaller train.micro_batch_size, "
                  "--recompute full or more ranks",
                  bytes, error.what_without_backtrace()));
}

PageLock::PageLock(const MappedMemory& memory) {
  try {
    ops::cuda_kernels().page_lock(memory.data(), memory.bytes());
  } catch (const Error& error) {
    throw Error(fmt::format("{} of host memory cannot be page-locked for offloading: {}; offload less",
                            base::human_bytes(memory.bytes()), error.what()));
  }
  data_ = memory.data();
}

PageLock::~PageLock() {
  if (data_ == nullptr) return;
  try {
    ops::cuda_kernels().page_unlock(data_);
  } catch (const Error&) {  // the GPU has failed before, which has been told
  }
}

std::vector<GroupState> saved_part(std::vector<GroupState> whole, const MappedMemory& live) {
  const auto part = [&](at::Tensor& tensor, int64_t first, int64_t size) {
    tensor = tensor.narrow(0, first, size);
    if (live.holds(tensor.const_data_ptr())) tensor = tensor.clone();
  };
  for (GroupState& g : whole) {
    const int64_t first = g.saved.size() > 0 ? g.saved.begin - g.held.begin : 0;
    part(g.master, first, g.saved.size());
    for (OptimizerTensor& state : g.optimizer) part(state.tensor, first, g.saved.size());
    g.held = g.saved;
    g.gradient = at::Tensor();
  }
  return whole;
}

constexpr int64_t kWidestHead = 256;  // of ops/attention/kernels_cuda.cu

void check_gpu(const model::Model& model, const plan::StepRequest& request, bool poison) {
  if (request.offload.uses(schedule::Tier::disk))
    throw UsageError(
        "a GPU's values leave to host memory, not to a disk: with accelerator cuda take cpu instead of disk in "
        "offload.*");
  if (poison) throw UsageError("engine.poison works on the CPU only; leave it out with accelerator cuda");
  const model::ModelConfig& c = model.config;
  const bool plain = !c.gated_mlp && c.activation != model::Activation::gelu_tanh;
  if (plain || c.rotary_fraction != 1 || c.wide_query_key_norm)
    throw UsageError(fmt::format("models of type {} with {} compute on the CPU only; leave accelerator cuda out",
                                 model::model_type(c.architecture),
                                 plain                    ? "the exact GELU or ReLU"
                                 : c.rotary_fraction != 1 ? "heads that are rotated in part"
                                                          : "norms over all heads"));
  if (c.head_dim > kWidestHead)
    throw UsageError(
        fmt::format("heads of {} are computed on the CPU only, a GPU's are of at most {}; leave "
                    "accelerator cuda out, or lower model.head_dim",
                    c.head_dim, kWidestHead));
  if (c.dropout.any())
    throw UsageError(
        fmt::format("dropout ({}) is computed on the CPU only; with accelerator cuda set model.attention_dropout, "
                    "model.residual_dropout and model.embedding_dropout 0",
                    c.dropout.describe()));
  if (c.dropout.neftune > 0)
    throw UsageError(
        "noise on embeddings is computed on the CPU only; set objective.neftune_alpha 0 with accelerator cuda");
  for (const auto& [module, adapter] : model.adapters.modules) {
    if (adapter.dropout > 0)
      throw UsageError("dropout of adapters is computed on the CPU only; set lora.dropout 0 with accelerator cuda");
    if (adapter.dora)
      throw UsageError(
          "magnitudes of adapters (DoRA) are computed on the CPU only; set lora.dora false with "
          "accelerator cuda");
    if (module == model::module_of(model::embedding_table_name(model.config.architecture)))
      throw UsageError(
          fmt::format("an adapter of the embedding is computed on the CPU only; leave {} out of lora.target_modules "
                      "with accelerator "
                      "cuda",
                      module));
  }
  if (const optim::Rule rule = request.optimizer.rule; !optim::runs_on_gpu(rule))
    throw UsageError(fmt::format("the optimizer {} computes on the CPU only; take another one with accelerator cuda",
                                 config::name_of(rule)));
  for (const auto& unit : model.units)
    if (!unit->runs_on_gpu())
      throw UsageError("wrapped modules compute on the CPU only; a model of built-in units can use accelerator cuda");
}

// Batches are loaded into page-locked memory, so that the copy to the GPU overlaps its work. Each action has its own:
// when a step reads its losses back, all its copies are done.
BatchTensors Engine::host_batch(const BatchTensors& on_device) const {
  const auto twin = [](const at::Tensor& tensor) {
    return tensor.defined() ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true))
                            : at::Tensor();
  };
  return {twin(on_device.inputs), twin(on_device.targets), twin(on_device.document_starts),
          twin(on_device.position_ids), on_device.text_length};
}

void Engine::load(const schedule::Action& action, Bound& b) {
  if (b.batch.text_length != nullptr) *b.batch.text_length = plan_.request.shape.sequence;
  if (!on_gpu()) return (*load_batch_)(action.micro_batch, b.batch);
  (*load_batch_)(action.micro_batch, b.host_batch);
  // GPU kernels do not check ids, so they are checked here.
  if (b.host_batch.inputs.defined()) ops::check_tokens("load", b.host_batch.inputs, model_.config.vocab_size);
  if (b.host_batch.targets.defined()) ops::check_targets("load", b.host_batch.targets, model_.config.vocab_size);
  const auto send = [](const at::Tensor& to, const at::Tensor& from) {
    if (to.defined()) at::Tensor(to).copy_(from, /*non_blocking=*/true);
  };
  send(b.batch.inputs, b.host_batch.inputs);
  send(b.batch.targets, b.host_batch.targets);
  send(b.batch.document_starts, b.host_batch.document_starts);
  send(b.batch.position_ids, b.host_batch.position_ids);
}

at::Tensor Engine::on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  if (tensor.numel() == 0) return tensor.to(at::kCPU);
  at::Tensor& copy = mirror_[tensor.const_data_ptr()];
  if (!copy.defined()) copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU)).copy_(tensor);
  return copy;
}

}  // namespace trireme::engine
