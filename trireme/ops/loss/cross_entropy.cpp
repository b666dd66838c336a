// Cross-entropy fused with the head's product. Logits exist for one chunk of rows at a time, in the compute dtype, and
// are overwritten by their gradient. There are no log-probabilities and no float32 logits.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/loss/cross_entropy_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops {
namespace {

struct HeadShape {
  int64_t tokens, width, vocabulary, chunk_rows;
  at::ScalarType dtype;
};

HeadShape check(const char* operation, const at::Tensor& loss_sum, const at::Tensor& x, const at::Tensor& w,
                const at::Tensor& targets, const at::Tensor& logits_chunk) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  check_dims(operation, "w", w, 2);
  check_dims(operation, "logits_chunk", logits_chunk, 2);
  const HeadShape shape{x.size(0), x.size(1), w.size(0), logits_chunk.size(0), dtype};
  check_tensor(operation, "x", x, x.sizes(), dtype);
  check_tensor(operation, "w", w, {shape.vocabulary, shape.width}, dtype);
  check_tensor(operation, "targets", targets, {shape.tokens}, at::kLong);
  check_tensor(operation, "logits_chunk", logits_chunk, {std::max<int64_t>(1, shape.chunk_rows), shape.vocabulary},
               dtype);
  check_tensor(operation, "loss_sum", loss_sum, {1}, at::kDouble);
  check_targets(operation, targets, shape.vocabulary);
  return shape;
}

/// Overwrites a chunk's logits with their gradients, if they are wanted. Its losses are added to `total`, row by row,
/// or on a GPU to loss_sum.
void softmax(const SoftmaxLoss& arguments, const at::Tensor& logits, int64_t rows, const at::Tensor& loss_sum,
             double& total) {
  const at::Tensor none;
  const Announced announced([&] {
    return row_operation("softmax_loss", logits.scalar_type(), rows, arguments.vocabulary,
                         {&logits, arguments.gradient ? &logits : &none});
  });
  if (announced.skipped()) return;
  if (logits.is_cuda()) return cuda_kernels().softmax_loss(arguments, rows, loss_sum.mutable_data_ptr<double>());
  run_rows(softmax_loss_rows, arguments, rows, arguments.vocabulary);
  for (int64_t t = 0; t < rows; ++t) total += arguments.losses[t];
}

/// Both public functions; without dx and dw only the loss.
void run_chunks(const HeadShape& shape, const at::Tensor& loss_sum, const at::Tensor& dx, const Gradient& dw,
                const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double scale,
                const at::Tensor& logits_chunk, const at::Tensor& dw_sum, double softcap) {
  const bool gradient = dx.defined(), on_gpu = x.is_cuda();
  double total = 0;
  struct Losses;
  double* losses = on_gpu ? nullptr : thread_scratch<Losses, double>(std::min(shape.chunk_rows, shape.tokens));
  if (on_gpu) at::Tensor(loss_sum).zero_();
  for (int64_t first = 0; first < shape.tokens; first += shape.chunk_rows) {
    const int64_t rows = std::min(shape.chunk_rows, shape.tokens - first);
    const at::Tensor logits = logits_chunk.narrow(0, 0, rows);
    const at::Tensor x_chunk = x.narrow(0, first, rows);
    multiply(logits, x_chunk, w.t());
    softcap_forward(logits, softcap);
    const SoftmaxLoss arguments{.dtype = storage_of(shape.dtype),
                                .vocabulary = shape.vocabulary,
                                .logits = logits.mutable_data_ptr(),
                                .targets = targets.data_ptr<int64_t>() + first,
                                .losses = losses,
                                .scale = scale,
                                .softcap = softcap,
                                .gradient = gradient};
    softmax(arguments, logits, rows, loss_sum, total);
    if (!gradient) continue;
    // dw first, because dx may be x.
    cross_entropy_weight_gradient(dw, dw_sum, logits, x_chunk, first == 0, first + rows == shape.tokens);
    multiply(dx.narrow(0, first, rows), logits, w);
  }
  if (!on_gpu) *loss_sum.mutable_data_ptr<double>() = total;
}

}  // namespace

int64_t cross_entropy_chunk_rows(int64_t num_tokens, int64_t vocabulary, bool on_gpu) {
  constexpr int64_t kRowMultiple = 64;
  const int64_t most_logits = int64_t{on_gpu ? 128 : 8} << 20, min_rows = on_gpu ? 2048 : 256;
  const int64_t max_rows = std::max(min_rows, most_logits / std::max<int64_t>(1, vocabulary));
  if (num_tokens <= max_rows) return std::max<int64_t>(1, num_tokens);
  // Chunks of nearly equal size, a multiple of the products' tiles.
  const int64_t num_chunks = (num_tokens + max_rows - 1) / max_rows;
  const int64_t rows = (num_tokens + num_chunks - 1) / num_chunks;
  return (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
}

void cross_entropy_forward(const at::Tensor& loss_sum, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& targets, const at::Tensor& logits_chunk, double softcap) {
  constexpr auto kOperation = "cross_entropy_forward";
  const HeadShape shape = check(kOperation, loss_sum, x, w, targets, logits_chunk);
  check_softcap(kOperation, softcap);
  run_chunks(shape, loss_sum, {}, {}, x, w, targets, 0, logits_chunk, {}, softcap);
}

void cross_entropy_weight_gradient(const Gradient& dw, const at::Tensor& dw_sum, const at::Tensor& dlogits,
                                   const at::Tensor& x, bool first, bool last) {
  if (!dw.defined()) return;
  if (dw.accumulate && is_narrow(dw.to.scalar_type()))
    throw ShapeError("cross_entropy: adding to a dw of two bytes would lose bits; it must be float32");
  const bool in_dw = (first && last) || !is_narrow(dw.to.scalar_type());
  multiply(in_dw ? dw.to : dw_sum, dlogits.t(), x, !first || dw.accumulate);
  if (!in_dw && last) write_gradient(Gradient(dw.to), dw_sum);
}

void cross_entropy_forward_backward(const at::Tensor& loss_sum, const at::Tensor& dx, const Gradient& dw,
                                    const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double scale,
                                    const at::Tensor& logits_chunk, const at::Tensor& dw_sum, double softcap) {
  constexpr auto kOperation = "cross_entropy_forward_backward";
  const HeadShape shape = check(kOperation, loss_sum, x, w, targets, logits_chunk);
  check_softcap(kOperation, softcap);
  check_tensor(kOperation, "dx", dx, x.sizes(), shape.dtype);
  check_gradient(kOperation, "dw", dw, w.sizes(), shape.dtype);
  if (dw.defined() && is_narrow(dw.to.scalar_type()) && shape.chunk_rows < shape.tokens)
    check_tensor(kOperation, "dw_sum", dw_sum, w.sizes(), statistics_dtype(shape.dtype));
  if (shape.tokens == 0 && dw.defined() && !dw.accumulate) at::Tensor(dw.to).zero_();
  run_chunks(shape, loss_sum, dx, dw, x, w, targets, scale, logits_chunk, dw_sum, softcap);
}

}  // namespace trireme::ops
