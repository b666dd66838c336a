// The products of generation: one row, or a few, with all packed matrices of a model. As many copies of the model take
// turns as are eight times as large as the last-level cache, so that each matrix comes from memory.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/base/text.h"
#include "trireme/bench/gemm_products.h"
#include "trireme/bench/nearer_limit.h"
#include "trireme/engine/arena.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/products/packed_blocks.h"
#include "trireme/ops/products/products.h"

namespace trireme::bench {
namespace {

constexpr int64_t kPage = 4096;

/// How matrices are kept: packed in the compute dtype, or in blocks.
struct Storage {
  at::ScalarType dtype;
  base::BlockFormat format;

  bool blocks() const { return format != base::BlockFormat::none; }
  int64_t bytes(const Product& p) const {
    return blocks() ? ops::packed_block_bytes(p.out, p.in, format) : ops::packed_bytes(p.out, p.in, dtype);
  }
  /// Of an element. In blocks, scales take half a bit.
  double bits() const {
    return blocks() ? base::traits_of(format).bits + 0.5 : 8.0 * static_cast<double>(c10::elementSize(dtype));
  }
  std::string name() const {
    return blocks() ? fmt::format("packed {}", base::traits_of(format).code) : std::string("packed");
  }
  /// The largest relative error of a product's result.
  double allowed() const {
    if (blocks()) return base::traits_of(format).bits == 4 ? 0.2 : 0.02;
    return ops::is_narrow(dtype) ? 1e-2 : 1e-5;
  }
};

struct Matrix {
  Product product;
  at::Tensor bytes;
};

/// A matrix in blocks, as bytes.
std::vector<uint8_t> quantized(const ops::BlockPart& part, const at::Tensor& w) {
  ops::Quantizer quantizer(part.format, w.numel());
  const at::Tensor values = w.to(at::kFloat).contiguous();
  quantizer.add(0, values.numel(), values.data_ptr<float>());
  std::vector<uint8_t> record(static_cast<size_t>(part.record_bytes()));
  ops::write_record(quantizer.finish(), part, record.data());
  return record;
}

void pack(const Storage& s, const Matrix& m, const at::Tensor& w) {
  if (!s.blocks()) return ops::pack(ops::PackedMatrix{m.bytes, m.product.out, m.product.in, s.dtype}, w.t());
  const ops::BlockPart part = ops::whole_part(s.format, m.product.out, m.product.in);
  const std::vector<uint8_t> record = quantized(part, w);
  ops::BlockRecords records;
  records.add(part, record.data());
  ops::pack(ops::PackedBlocks{m.bytes, m.product.out, m.product.in, s.dtype, s.format}, records.matrix());
}

void multiply(const Storage& s, const at::Tensor& y, const at::Tensor& x, const Matrix& m) {
  if (s.blocks())
    return ops::multiply_packed(y, x, ops::PackedBlocks{m.bytes, m.product.out, m.product.in, s.dtype, s.format});
  ops::multiply_packed(y, x, ops::PackedMatrix{m.bytes, m.product.out, m.product.in, s.dtype});
}

/// Copies of all matrices of a model.
class Copies {
 public:
  Copies(const Storage& storage, const std::vector<Product>& products, int64_t least_bytes) : storage_(storage) {
    int64_t one = 0;
    for (const Product& p : products) one += p.times * pages(storage.bytes(p));
    count_ = std::max<int64_t>(1, (least_bytes + one - 1) / one);
    memory_ = engine::MappedMemory(count_ * one);
    auto* at = static_cast<uint8_t*>(memory_.data());
    for (const Product& p : products) widest_ = std::max(widest_, p.out);
    for (int64_t copy = 0; copy < count_; ++copy)
      for (const Product& p : products)
        for (int64_t i = 0; i < p.times; ++i, at += pages(storage.bytes(p)))
          matrices_.push_back({p, at::from_blob(at, {storage.bytes(p)}, at::TensorOptions(at::kByte))});
  }

  /// Packs random values into every matrix; a product with each shape is checked.
  void fill(const std::vector<Product>& products) {
    for (const Product& p : products) {
      const at::Tensor w = at::rand({p.out, p.in}).sub_(0.5).to(storage_.dtype);
      const Matrix* first = nullptr;
      for (const Matrix& m : matrices_) {
        if (std::string_view(m.product.name) != p.name) continue;
        if (first == nullptr)
          pack(storage_, *(first = &m), w), check(m, w);
        else
          m.bytes.copy_(first->bytes);
      }
    }
  }

  /// One step of generation: a copy's products, the next copy's in the next call.
  void step(const at::Tensor& y, const at::Tensor& x) {
    const int64_t each = std::ssize(matrices_) / count_;
    for (int64_t i = now_ * each; i < (now_ + 1) * each; ++i) {
      const Product& p = matrices_[static_cast<size_t>(i)].product;
      const int64_t rows = x.size(0);
      multiply(storage_, at::from_blob(y.data_ptr(), {rows, p.out}, y.options()),
               at::from_blob(x.data_ptr(), {rows, p.in}, x.options()), matrices_[static_cast<size_t>(i)]);
    }
    now_ = (now_ + 1) % count_;
  }

  int64_t count() const { return count_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  static int64_t pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  void check(const Matrix& m, const at::Tensor& w) const {
    const at::Tensor x = at::rand({3, m.product.in}).sub_(0.5).to(storage_.dtype),
                     y = at::empty({3, m.product.out}, storage_.dtype);
    multiply(storage_, y, x, m);
    const at::Tensor expected = x.to(at::kDouble).mm(w.to(at::kDouble).t());
    const double error = (y.to(at::kDouble) - expected).norm().item<double>() / expected.norm().item<double>();
    if (!(error < storage_.allowed()))
      throw Error(fmt::format("bench gemm: {} {} is off by {:.1e}, more than {:.0e}; nothing was timed after it",
                              m.product.name, storage_.name(), error, storage_.allowed()));
  }

  Storage storage_;
  int64_t count_ = 1, now_ = 0, widest_ = 0;
  engine::MappedMemory memory_;
  std::vector<Matrix> matrices_;
};

}  // namespace

void add_packed_rows(Report& report, Limits& limits, const GemmBench& bench) {
  NearerLimit beside(bench.dtype, bench.threads, bench.quick);
  const int64_t caches = 8 * base::last_level_cache_bytes(bench.threads),
                least = bench.quick ? int64_t{16} << 20 : std::clamp(caches, int64_t{64} << 20, int64_t{4} << 30);
  int64_t elements = 0, in = 0, out = 0;
  for (const Product& p : bench.products)
    elements += p.times * p.in * p.out, in = std::max(in, p.in), out = std::max(out, p.out);
  using enum base::BlockFormat;
  for (const base::BlockFormat format : {none, nf4, q8_0, q4_0}) {
    const int64_t values = base::traits_of(format).values;
    if (std::ranges::any_of(bench.products, [&](const Product& p) { return p.in % values != 0; })) continue;
    const Storage storage{bench.dtype, format};
    Copies copies(storage, bench.products, least);
    copies.fill(bench.products);
    const double bytes = static_cast<double>(elements) * storage.bits() / 8;
    for (const int64_t rows : {1, 8, 32}) {
      const at::Tensor x = at::rand({rows, in}).sub_(0.5).to(bench.dtype), y = at::empty({rows, out}, bench.dtype);
      const double flops = 2.0 * static_cast<double>(rows * elements);
      Row row{.name = fmt::format("all products {}, {}", storage.name(), base::plural(rows, "row")),
              .shape = fmt::format("{}, {} of weights in turn, {}, {}", bench.model, base::human_bytes(copies.bytes()),
                                   dtype_name(bench.dtype), base::plural(bench.threads, "thread"))};
      beside.time(row, limits, bytes, flops, [&] { copies.step(y, x); });
      report.rows.push_back(row);
    }
  }
}

}  // namespace trireme::bench
