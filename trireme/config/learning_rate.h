// The learning rates of a run: the highest one, which a global batch may ask for (Goyal et al. 2017 for linear,
// Krizhevsky 2014 for the root), and the one it falls to.
#pragma once

#include "trireme/config/settings.h"

namespace trireme::config {

/// optimizer.lr x (train.global_batch_size / optimizer.base_batch_size), the ratio linear, under a root, or left
/// out, as optimizer.lr_scaling says.
double scaled_lr(const Settings& settings);

/// train.min_lr; where it is left to choose a tenth of scaled_lr(), at most LitGPT's 6e-5.
double lowest_lr(const Settings& settings);

}  // namespace trireme::config
