#include "trireme/optim/stored_update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::optim {
namespace {

constexpr int64_t kTile = 1 << 15;  // whole blocks of the norm
static_assert(kTile % kNormBlock == 0);

/// 32 well-mixed bits of a counter (Wellons' lowbias32, as dropout's masks).
uint32_t mixed(uint32_t h) {
  h = (h ^ h >> 16) * 0x7feb352du;
  h = (h ^ h >> 15) * 0x846ca68bu;
  return h ^ h >> 16;
}

/// One tensor's tile in the type of the rule: the tensor itself, or a widened copy in scratch.
class Tile {
 public:
  Tile(const at::Tensor& stored, int64_t begin, int64_t count, float*& scratch)
      : stored_(stored.narrow(0, begin, count)) {
    wide_ = stored_;
    if (!ops::is_narrow(stored_.scalar_type())) return;
    wide_ = at::from_blob(scratch, {count}, at::kFloat);
    scratch += kTile;
    wide_.copy_(stored_);
  }

  const at::Tensor& wide() const { return wide_; }
  bool is_copy() const { return !wide_.is_same(stored_); }

  void round_back() {
    if (is_copy()) stored_.copy_(wide_);
  }
  /// `seed` selects the random bits, `first` is the counter of the first element.
  void round_stochastically(uint64_t seed, int64_t first) {
    if (!is_copy()) return;
    const float* from = wide_.data_ptr<float>();
    auto* to = static_cast<uint16_t*>(stored_.data_ptr());
    for (int64_t i = 0; i < wide_.numel(); ++i) {
      const auto counter = static_cast<uint64_t>(first + i);
      const uint32_t high = mixed(static_cast<uint32_t>(counter >> 32) ^ static_cast<uint32_t>(seed >> 32));
      to[i] = stochastic_bfloat16(
          from[i], mixed(static_cast<uint32_t>(counter) * 0x9E3779B9u ^ static_cast<uint32_t>(seed) ^ high));
    }
  }

 private:
  at::Tensor stored_, wide_;
};

/// The segments of [begin, begin + count), counted from `begin`.
std::vector<DecaySegment> segments_of(std::span<const DecaySegment> all, int64_t begin, int64_t count) {
  std::vector<DecaySegment> some;
  for (DecaySegment s : all) {
    s.begin = std::max(s.begin, begin) - begin, s.end = std::min(s.end, begin + count) - begin;
    if (s.begin < s.end) some.push_back(s);
  }
  return some;
}

void update_tile(const StoredSpan& s, int64_t begin, int64_t count, std::span<const DecaySegment> segments,
                 const OptimizerOptions& options) {
  struct Scratch;
  float* scratch = ops::thread_scratch<Scratch, float>(kTile * static_cast<int64_t>(3 + s.state.size()));
  Tile master(s.master, begin, count, scratch), gradient(s.gradient, begin, count, scratch);
  std::vector<Tile> state;
  std::vector<at::Tensor> wide_state;
  for (const at::Tensor& tensor : s.state) {
    state.emplace_back(tensor, begin, count, scratch);
    wide_state.push_back(state.back().wide());
  }
  if (s.compensation.defined()) master.wide().add_(s.compensation.narrow(0, begin, count));
  optimizer_update(master.wide(), wide_state, gradient.wide(), at::Tensor(), segments_of(segments, begin, count),
                   options);
  const int64_t first = s.first + begin;
  uint64_t seed = s.key;
  s.stochastic ? master.round_stochastically(seed, first) : master.round_back();
  for (Tile& tensor : state)
    s.stochastic ? tensor.round_stochastically(++seed * 0x9E3779B97F4A7C15u, first) : tensor.round_back();
  if (s.compute.defined()) s.compute.narrow(0, begin, count).copy_(master.wide());
  if (s.compensation.defined()) {
    const at::Tensor lost = master.wide().sub_(s.master.narrow(0, begin, count));
    s.compensation.narrow(0, begin, count).copy_(lost);
  }
}

}  // namespace

uint16_t stochastic_bfloat16(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7F800000) == 0x7F800000) return ops::narrow<ops::bfloat16>(value).bits;
  return static_cast<uint16_t>((bits + (random & 0xFFFF)) >> 16);
}

namespace {

ops::Operation announced_step(const StoredSpan& s) {
  // Masters, state and compensation are read and written.
  double bytes = ops::bytes_of({&s.master, &s.master, &s.gradient, &s.compute, &s.compensation, &s.compensation});
  for (const at::Tensor& state : s.state) bytes += 2 * ops::bytes_of({&state});
  return {
      .name = "optimizer_step", .dtype = s.master.scalar_type(), .m = s.master.numel(), .n = 1, .k = 1, .bytes = bytes};
}

}  // namespace

void update_stored(const StoredSpan& s, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                   const AddParts& add_parts) {
  // Muon's time is that of its products, which announce themselves.
  std::optional<ops::Announced> announced;
  if (options.rule != Rule::muon) announced.emplace([&] { return announced_step(s); });
  if (announced && announced->skipped()) return;
  const auto narrow = [](const at::Tensor& x) { return ops::is_narrow(x.scalar_type()); };
  const bool rounds = narrow(s.master) || narrow(s.gradient) || std::ranges::any_of(s.state, narrow);
  const bool half = s.compute.defined() && s.compute.scalar_type() == at::kHalf;
  if (is_by_tensor(options.rule) || (!rounds && !half)) {
    step_group({s.master, s.state, s.gradient, half ? at::Tensor() : s.compute, s.work}, segments, options, add_parts);
    if (half) at::Tensor(s.compute).copy_(s.master);
    return;
  }
  const int64_t n = s.master.numel();
  for (const auto& [name, tensor] :
       {std::pair("gradient", s.gradient), std::pair("compute", s.compute), std::pair("compensation", s.compensation)})
    if (tensor.defined()) ops::check_tensor("update_stored", name, tensor, {n}, tensor.scalar_type());
  if (s.stochastic && s.master.scalar_type() != at::kBFloat16)
    throw ShapeError("update_stored: only bfloat16 is rounded stochastically");
  ops::parallel_rows((n + kTile - 1) / kTile, 1, [&](int64_t first, int64_t last) {
    for (int64_t tile = first; tile < last; ++tile)
      update_tile(s, tile * kTile, std::min(kTile, n - tile * kTile), segments, options);
  });
}

void stored_norm_partials(const at::Tensor& partials, const at::Tensor& gradient) {
  const ops::Announced announced(
      [&] { return ops::row_operation("norm_partials", gradient.scalar_type(), gradient.numel(), 1, {&gradient}); });
  if (announced.skipped()) return;
  if (!ops::is_narrow(gradient.scalar_type())) return squared_norm_partials(partials, gradient);
  const int64_t n = gradient.numel();
  ops::parallel_rows((n + kTile - 1) / kTile, 1, [&](int64_t first, int64_t last) {
    struct Scratch;
    for (int64_t tile = first; tile < last; ++tile) {
      float* scratch = ops::thread_scratch<Scratch, float>(kTile);
      const int64_t begin = tile * kTile, count = std::min(kTile, n - begin);
      const Tile wide(gradient, begin, count, scratch);
      squared_norm_partials(partials.narrow(0, begin / kNormBlock, (count + kNormBlock - 1) / kNormBlock), wide.wide());
    }
  });
}

}  // namespace trireme::optim
