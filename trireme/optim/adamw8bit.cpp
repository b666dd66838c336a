#include "trireme/optim/adamw8bit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::optim {
namespace {

/// One of the two moments of a tensor.
struct Moment {
  const ops::EightBitCode& code;
  bool is_signed;
  uint8_t* codes;
  float* scales;

  void widen(int64_t block, int64_t count, float* values) const {
    const uint8_t* from = codes + block * kStateBlock;
    for (int64_t i = 0; i < count; ++i) values[i] = code[from[i]] * scales[block];
  }
  void narrow(int64_t block, int64_t count, const float* values) const {
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
    scales[block] = most;
    const float inverse = 1 / most;
    const bool inverts = std::isfinite(inverse) && std::isfinite(most);  // that of a tiny number does not fit
    uint8_t* to = codes + block * kStateBlock;
    for (int64_t i = 0; i < count; ++i)
      to[i] = most == 0 ? uint8_t{0}
                        : ops::dynamic_byte(is_signed, inverts ? values[i] * inverse
                                                               : static_cast<float>(double(values[i]) / double(most)));
  }
};

/// The numbers of a step that are the same for all elements of a tensor.
struct Rates {
  float scale, beta1, rest1, beta2, rest2, keep, step_size, root_bias2, eps;
};

Rates rates_of(const DecaySegment& s, const OptimizerOptions& o) {
  const double lr = o.lr * s.rate, step = static_cast<double>(step_of(s, o));
  const double decay = s.decay ? s.weight_decay.value_or(o.weight_decay) : 0;
  return {.scale = static_cast<float>(o.gradient_scale),
          .beta1 = static_cast<float>(o.beta1),
          .rest1 = static_cast<float>(1 - o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .rest2 = static_cast<float>(1 - o.beta2),
          .keep = static_cast<float>(1 - lr * decay),
          .step_size = static_cast<float>(lr / (1 - std::pow(o.beta1, step))),
          .root_bias2 = static_cast<float>(std::sqrt(1 - std::pow(o.beta2, step))),
          .eps = static_cast<float>(o.eps)};
}

void update(const Rates& r, int64_t count, float* p, const float* gradient, float* m, float* v) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * r.scale;
    m[i] = m[i] * r.beta1 + r.rest1 * g;
    v[i] = v[i] * r.beta2 + r.rest2 * g * g;
    p[i] = p[i] * r.keep - r.step_size * (m[i] / (std::sqrt(v[i]) / r.root_bias2 + r.eps));
  }
}

void step_blocks(const Rates& rates, int64_t size, float* p, const float* gradient, const Moment& first,
                 const Moment& second) {
  ops::parallel_rows((size + kStateBlock - 1) / kStateBlock, 16, [&](int64_t begin, int64_t end) {
    std::array<float, kStateBlock> m, v;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t at = block * kStateBlock, count = std::min(kStateBlock, size - at);
      first.widen(block, count, m.data());
      second.widen(block, count, v.data());
      update(rates, count, p + at, gradient + at, m.data(), v.data());
      first.narrow(block, count, m.data());
      second.narrow(block, count, v.data());
    }
  });
}

}  // namespace

std::vector<WholeState> adamw8bit_state(std::span<const int64_t> shape) {
  const std::vector<int64_t> whole(shape.begin(), shape.end());
  const int64_t elements = c10::multiply_integers(whole);
  if (elements < kSmallTensor)
    return {{"state1", whole, false, /*elements_each=*/1}, {"state2", whole, false, /*elements_each=*/1}};
  const std::vector<int64_t> blocks = {(elements + kStateBlock - 1) / kStateBlock};
  return {{"state1", whole, true, /*elements_each=*/1},
          {"state2", whole, true, /*elements_each=*/1},
          {"absmax1", blocks, false, kStateBlock},
          {"absmax2", blocks, false, kStateBlock}};
}

bool cuts_state_blocks(const model::ParameterSpec& parameter) {
  if (c10::multiply_integers(parameter.whole_shape()) < kSmallTensor || parameter.split_dim < 0) return false;
  bool cuts = false;
  model::for_each_run(parameter, 0, parameter.numel(), [&](int64_t local, int64_t full, int64_t count) {
    cuts |= local % kStateBlock != 0 || full % kStateBlock != 0 || count % kStateBlock != 0;
  });
  return cuts;
}

void step_adamw8bit(const StepTensors& t, std::span<const DecaySegment> segments, const OptimizerOptions& options) {
  int64_t at = 0;
  for (const DecaySegment& s : segments) {
    if (s.parameter == nullptr) continue;
    std::vector<float*> state;
    for (const WholeState& kept : adamw8bit_state(s.parameter->whole_shape())) {
      state.push_back(t.state[0].data_ptr<float>() + at);
      at += kept.floats(*s.parameter);
    }
    const int64_t size = s.end - s.begin;
    float* p = t.master.data_ptr<float>() + s.begin;
    const float* gradient = t.gradient.data_ptr<float>() + s.begin;
    const Rates rates = rates_of(s, options);
    if (state.size() == 2)
      update(rates, size, p, gradient, state[0], state[1]);
    else
      step_blocks(rates, size, p, gradient,
                  {ops::dynamic_code(true), true, reinterpret_cast<uint8_t*>(state[0]), state[2]},
                  {ops::dynamic_code(false), false, reinterpret_cast<uint8_t*>(state[1]), state[3]});
  }
  if (t.compute.defined()) at::Tensor(t.compute).copy_(t.master);
}

}  // namespace trireme::optim
