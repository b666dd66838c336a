// Attention on a GPU against attention on the CPU, in float64 from the same (rounded) inputs: what a dtype may differ
// by is then its own rounding.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/ops/cuda_support.h"
#include "trireme/base/error.h"
#include "trireme/ops/attention/paged.h"
#include "trireme/ops/checks.h"

namespace trireme::ops {
namespace {

using CudaAttention = Cuda;

/// Until the end of the scope only these kernels run, and our own.
struct Allowed {
  Allowed(bool cudnn, bool flash) { cuda_kernels().allow_attention(cudnn, flash); }
  ~Allowed() { cuda_kernels().allow_attention(true, true); }
};

struct Results {
  at::Tensor out, lse, dqkv;
};

struct Inputs {
  at::Tensor qkv, d_out, starts;  ///< on the CPU
  Inputs(const AttentionShape& s, at::ScalarType dtype, int64_t document = 0) {
    at::manual_seed(11);
    const int64_t tokens = s.batch * s.sequence;
    qkv = at::randn({tokens, (s.num_heads + 2 * s.num_kv_heads) * s.head_dim}, at::kDouble).to(dtype);
    d_out = at::randn({tokens, s.num_heads * s.head_dim}, at::kDouble).to(dtype);
    if (document == 0) return;
    starts = at::empty({s.batch, s.sequence}, at::kLong);
    for (int64_t b = 0; b < s.batch; ++b)  // the rows' documents end at different places
      for (int64_t i = 0, start = 0; i < s.sequence; ++i) {
        if ((i + 3 * b) % document == document - 1) start = i;
        starts[b][i] = start;
      }
  }
};

at::Tensor nan(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  return at::full(sizes, NAN, at::TensorOptions().dtype(dtype).device(device));
}

Results run(const AttentionShape& s, const at::Tensor& qkv, const at::Tensor& d_out, const at::Tensor& starts) {
  const auto dtype = qkv.scalar_type();
  const bool cpu = qkv.is_cpu();
  const at::Tensor workspace = cpu ? at::empty({attention_workspace_bytes(s, dtype)}, at::kByte) : at::Tensor();
  Results r{nan(d_out.sizes(), dtype, qkv.device()),
            nan({s.batch, s.num_heads, s.sequence}, statistics_dtype(dtype), qkv.device()),
            nan(qkv.sizes(), dtype, qkv.device())};
  ops::attention_forward(r.out, r.lse, qkv, s, workspace, starts);
  ops::attention_backward(r.dqkv, d_out, r.out, r.lse, qkv, s, workspace, starts);
  return r;
}

Results run_gpu(const AttentionShape& s, const Inputs& in) {
  return run(s, on_gpu(in.qkv), on_gpu(in.d_out), on_gpu(in.starts));
}

Results run_cpu_wide(const AttentionShape& s, const Inputs& in) {
  return run(s, in.qkv.to(at::kDouble), in.d_out.to(at::kDouble), in.starts);
}

/// Of gradients, which are sums of many roundings.
double gradient_bound(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 1e-5 : 1.5e-2;
}

/// ||got - want|| relative to the larger of ||want|| and a 20th of ||whole||: dq and dk are 0 where a query sees one
/// key.
double part_error(const at::Tensor& got, const at::Tensor& want, const at::Tensor& whole) {
  const double norm = std::max(want.norm().item<double>(), whole.norm().item<double>() / 20);
  return (got.to(at::kCPU).to(at::kDouble) - want).norm().item<double>() / norm;
}

void expect_close(const Results& got, const Results& want, const AttentionShape& s) {
  const auto dtype = got.out.scalar_type();
  EXPECT_LE(relative_error(got.out, want.out), dtype == at::kFloat ? 5e-6 : bound_of(dtype));
  const at::Tensor lse = got.lse.to(at::kCPU).to(at::kDouble);
  EXPECT_LE((lse - want.lse).abs().max().item<double>(), dtype == at::kDouble ? 1e-11 : 2e-5);
  const int64_t q = s.num_heads * s.head_dim, kv = s.num_kv_heads * s.head_dim;
  for (const auto& [name, first, width] : {std::tuple{"dq", int64_t{0}, q}, {"dk", q, kv}, {"dv", q + kv, kv}})
    EXPECT_LE(part_error(got.dqkv.narrow(1, first, width), want.dqkv.narrow(1, first, width), want.dqkv),
              gradient_bound(dtype))
        << name;
}

void expect_same_bits(const Results& got, const Results& want) {
  EXPECT_TRUE(at::equal(got.out, want.out));
  EXPECT_TRUE(at::equal(got.lse, want.lse));
  EXPECT_TRUE(at::equal(got.dqkv, want.dqkv));
}

struct Case {
  AttentionShape shape;
  int64_t document = 0;
};

std::string text(const Case& c) {
  const AttentionShape& s = c.shape;
  return "b" + std::to_string(s.batch) + " s" + std::to_string(s.sequence) + " H" + std::to_string(s.num_heads) + " K" +
         std::to_string(s.num_kv_heads) + " d" + std::to_string(s.head_dim) + " window " + std::to_string(s.window) +
         " softcap " + std::to_string(s.softcap) + " document " + std::to_string(c.document);
}

AttentionShape shape_of(int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads, int64_t head_dim,
                        int64_t window = 0, double softcap = 0) {
  return {.batch = batch,
          .sequence = sequence,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .softcap = softcap};
}

const std::vector<Case> kCases = {
    {shape_of(2, 1, 4, 2, 64)},
    {shape_of(3, 7, 4, 1, 20)},
    {shape_of(1, 64, 1, 1, 16)},
    {shape_of(2, 64, 4, 2, 128)},
    {shape_of(2, 129, 8, 8, 64)},
    {shape_of(1, 129, 4, 1, 80)},
    {shape_of(1, 130, 4, 2, 256)},
    {shape_of(1, 512, 8, 2, 128)},
    {shape_of(1, 1000, 4, 2, 64)},
    {shape_of(1, 1000, 2, 1, 96)},
    {shape_of(2, 129, 4, 2, 64, 1)},
    {shape_of(2, 512, 4, 2, 64, 100)},
    {shape_of(1, 1000, 4, 1, 128, 257)},
    {shape_of(1, 300, 2, 2, 256, 64, 20)},
    {shape_of(2, 129, 4, 2, 64, 0, 5)},
    {shape_of(1, 512, 4, 2, 128, 0, 30)},
    {shape_of(1, 64, 4, 4, 20, 9, 2)},
    {shape_of(2, 129, 4, 2, 64), 10},
    {shape_of(3, 512, 4, 2, 128), 150},
    {shape_of(2, 1000, 2, 1, 80, 200), 333},
    {shape_of(1, 300, 4, 2, 256, 40, 10), 64},
    {shape_of(2, 7, 4, 2, 20, 3, 1), 3},
};

void expect_as_on_the_cpu(at::ScalarType dtype) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(text(c));
    const Inputs in(c.shape, dtype, c.document);
    const Results got = run_gpu(c.shape, in);
    expect_close(got, run_cpu_wide(c.shape, in), c.shape);
    expect_same_bits(run_gpu(c.shape, in), got);
  }
}

TEST_F(CudaAttention, IsTheCpusInFloat64) { expect_as_on_the_cpu(at::kDouble); }

TEST_F(CudaAttention, IsTheCpusInFloat32) { expect_as_on_the_cpu(at::kFloat); }

TEST_F(CudaAttention, IsTheCpusInBfloat16) { expect_as_on_the_cpu(at::kBFloat16); }

TEST_F(CudaAttention, FlashAttentionAndOwnKernelsDoAllThatCudnnDoes) {
  for (const bool flash : {true, false}) {
    const Allowed allowed(/*cudnn=*/false, flash);
    expect_as_on_the_cpu(at::kBFloat16);
  }
}

TEST_F(CudaAttention, InAnyOrderIsTheCpusToo) {
  cuda_kernels().allow_any_order(true);
  for (const Case& c : kCases) {
    SCOPED_TRACE(text(c));
    const Inputs in(c.shape, at::kBFloat16, c.document);
    expect_close(run_gpu(c.shape, in), run_cpu_wide(c.shape, in), c.shape);
  }
  cuda_kernels().allow_any_order(false);
}

/// The calls are so large that they run in parts: of sequences in the first, of heads in the second.
TEST_F(CudaAttention, PartsOfACallAreTheCallsInAnyOrder) {
  for (const AttentionShape& s : {shape_of(4, 4096, 16, 4, 64), shape_of(1, 8192, 32, 8, 64)}) {
    SCOPED_TRACE(text({s}));
    const Inputs in(s, at::kBFloat16);
    const Results parts = run_gpu(s, in);
    expect_same_bits(run_gpu(s, in), parts);
    cuda_kernels().allow_any_order(true);
    const Results whole = run_gpu(s, in);
    cuda_kernels().allow_any_order(false);
    EXPECT_TRUE(at::equal(parts.out, whole.out));
    EXPECT_LE(relative_error(parts.dqkv, whole.dqkv), 6e-3);
  }
}

TEST_F(CudaAttention, KernelsReadEachOthersResults) {
  const AttentionShape s = shape_of(2, 300, 8, 2, 128, 200);
  const Inputs in(s, at::kBFloat16);
  const auto own = [&] {
    const Allowed allowed(/*cudnn=*/false, /*flash=*/false);
    return run_gpu(s, in);
  }();
  for (const bool cudnn : {true, false}) {
    const Allowed allowed(cudnn, /*flash=*/true);
    const Results got = run_gpu(s, in);
    EXPECT_LE(relative_error(own.out, got.out), 6e-3);
    EXPECT_LE((own.lse - got.lse).abs().max().item<double>(), 2e-5);
    EXPECT_LE(relative_error(own.dqkv, got.dqkv), 1.5e-2);
    const at::Tensor dqkv = at::full_like(own.dqkv, NAN);
    ops::attention_backward(dqkv, on_gpu(in.d_out), own.out, own.lse, on_gpu(in.qkv), s, {});
    EXPECT_LE(relative_error(dqkv, got.dqkv), 1.5e-2);
  }
}

/// With half the heads' scale the softmax is another: the call's scale is the one used.
TEST_F(CudaAttention, TakesTheCallsScale) {
  AttentionShape s = shape_of(1, 129, 4, 2, 64);
  s.scale = 0.3;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Inputs in(s, dtype);
    expect_close(run_gpu(s, in), run_cpu_wide(s, in), s);
  }
}

// ---- blocks without a mask ----

struct BlockCase {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
  double softcap;
};

struct BlockResults {
  at::Tensor out, lse, dq, dkv;
};

/// Two blocks of keys merged, then both blocks' gradients added to what dq and dkv hold. Rows are views: q and kv are
/// ends of longer rows, and kv's two blocks are halves of a sequence.
BlockResults run_blocks(const BlockCase& c, at::ScalarType dtype, at::ScalarType inputs, at::Device device) {
  at::manual_seed(5);
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::kDouble).to(inputs).to(dtype).to(device);
  };
  const int64_t width = c.heads * c.head_dim, kv_width = 2 * c.kv_heads * c.head_dim;
  const auto wide = statistics_dtype(dtype);
  const int64_t before = c.queries % 8;  // rows of some cases begin at no multiple of 16 bytes
  const at::Tensor q = random({c.batch, c.queries, width + before}).narrow(2, before, width);
  const at::Tensor kv = random({c.batch, 2 * c.keys, kv_width + 16}).narrow(2, 16, kv_width);
  const at::Tensor d_out = random({c.batch, c.queries, width});
  const AttentionBlockShape shape{.batch = c.batch,
                                  .queries = c.queries,
                                  .keys = c.keys,
                                  .num_heads = c.heads,
                                  .num_kv_heads = c.kv_heads,
                                  .head_dim = c.head_dim,
                                  .softcap = c.softcap};
  const at::Tensor workspace =
      device.is_cpu() ? at::empty({attention_block_workspace_bytes(shape, dtype)}, at::kByte) : at::Tensor();
  BlockResults r{at::zeros({c.batch, c.queries, width}, q.options()),
                 at::full({c.batch, c.heads, c.queries}, -INFINITY, q.options().dtype(wide)),
                 random({c.batch, c.queries, width + 3}).to(wide).narrow(2, 3, width),
                 random({c.batch, 2 * c.keys, kv_width}).to(wide)};
  for (const int64_t first : {c.keys, int64_t{0}})
    ops::attention_block_forward(r.out, r.lse, q, kv.narrow(1, first, c.keys), shape, workspace);
  for (const int64_t first : {int64_t{0}, c.keys})
    ops::attention_block_backward(r.dq, r.dkv.narrow(1, first, c.keys), d_out, r.out, r.lse, q,
                                  kv.narrow(1, first, c.keys), shape, workspace);
  return r;
}

TEST_F(CudaAttention, MergesBlocksAsOnTheCpu) {
  for (const BlockCase& c :
       {BlockCase{1, 1, 1, 1, 1, 16, 0}, BlockCase{2, 64, 64, 4, 2, 64, 0}, BlockCase{2, 70, 129, 4, 1, 80, 0},
        BlockCase{1, 129, 31, 4, 4, 20, 3}, BlockCase{2, 200, 333, 8, 2, 128, 0}, BlockCase{1, 65, 100, 2, 1, 256, 8}})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE("queries " + std::to_string(c.queries) + " keys " + std::to_string(c.keys) + " d " +
                   std::to_string(c.head_dim) + " " + c10::toString(dtype));
      const BlockResults got = run_blocks(c, dtype, dtype, at::kCUDA), again = run_blocks(c, dtype, dtype, at::kCUDA);
      const BlockResults want = run_blocks(c, at::kDouble, dtype, at::kCPU);
      const bool narrow = dtype == at::kBFloat16;
      EXPECT_LE(relative_error(got.out, want.out), narrow ? 1e-2 : 5 * bound_of(dtype));
      EXPECT_LE((got.lse.to(at::kCPU).to(at::kDouble) - want.lse).abs().max().item<double>(),
                dtype == at::kDouble ? 1e-11 : 2e-5);
      EXPECT_LE(relative_error(got.dq, want.dq), gradient_bound(dtype));
      EXPECT_LE(relative_error(got.dkv, want.dkv), gradient_bound(dtype));
      for (const auto& [a, b] :
           {std::pair{again.out, got.out}, {again.lse, got.lse}, {again.dq, got.dq}, {again.dkv, got.dkv}})
        EXPECT_TRUE(at::equal(a, b));
    }
}

// ---- refusals ----

TEST_F(CudaAttention, RefusesTensorsOfTwoDevicesAndHeadsThatAreTooLong) {
  AttentionShape s = shape_of(1, 4, 2, 1, 16);
  const Inputs in(s, at::kFloat, 2);
  EXPECT_THROW(run(s, on_gpu(in.qkv), in.d_out, {}), ShapeError);
  EXPECT_THROW(run(s, on_gpu(in.qkv), on_gpu(in.d_out), in.starts), ShapeError);
  s.head_dim = 272;
  const Inputs longer(s, at::kFloat);
  EXPECT_THROW(run_gpu(s, longer), ShapeError);
}

TEST_F(CudaAttention, AttendsToPagesOnTheCpuOnly) {
  const AttentionShape s = shape_of(1, 1, 2, 1, 16);
  const at::Tensor q = at::zeros({1, 32}, at::kCUDA), pages = at::zeros({1, 1, kAttentionPage, 16}, at::kCUDA);
  const int32_t page = 0;
  EXPECT_THROW(ops::attention_paged(at::zeros_like(q), q, pages, pages, {{0, 1, 1, &page}}, s), ShapeError);
}

}  // namespace
}  // namespace trireme::ops
