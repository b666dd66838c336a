// Synthetic images of five classes: horizontal, vertical and slanted stripes, squares of a chessboard, rings. Their
// colours, widths and places are random, and there is noise on them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "model.h"

namespace parallel_example {

/// Images `number` x count ... as [count,3,height,width], and their classes: the same on every rank and in every run.
inline trireme::model::Example image_batch(int64_t number, int64_t count, const VitOptions& o = {}) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number) + 1);
  const auto random = [&](torch::IntArrayRef shape) { return torch::rand(shape, generator, torch::kFloat); };
  const torch::Tensor label = torch::randint(o.classes, {count}, generator, torch::kLong);
  const torch::Tensor y = torch::arange(o.height, torch::kFloat).view({1, -1, 1}),
                      x = torch::arange(o.width, torch::kFloat).view({1, 1, -1});
  const torch::Tensor wave = 2 * M_PI / (4 + 4 * random({count, 1, 1})), phase = 2 * M_PI * random({2, count, 1, 1});
  const torch::Tensor cy = o.height * random({count, 1, 1}), cx = o.width * random({count, 1, 1});
  const torch::Tensor down = torch::sin(wave * y + phase[0]), across = torch::sin(wave * x + phase[1]);
  const std::vector<torch::Tensor> patterns{down.expand({count, o.height, o.width}),
                                            across.expand({count, o.height, o.width}),
                                            torch::sin(wave * (x + y) * M_SQRT1_2 + phase[0]), down * across,
                                            torch::sin(wave * ((y - cy).square() + (x - cx).square()).sqrt())};
  const torch::Tensor index = label.view({1, count, 1, 1}).expand({1, count, o.height, o.width});
  const torch::Tensor pattern = torch::stack(patterns).gather(0, index)[0].unsqueeze(1);
  const torch::Tensor colour = 0.5 + random({count, o.channels, 1, 1});
  const torch::Tensor noise = 0.2 * (random({count, o.channels, o.height, o.width}) - 0.5);
  return {pattern * colour + noise, label};
}

}  // namespace parallel_example
