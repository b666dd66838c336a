// The learning rate that a global batch asks for (Goyal et al. 2017 for linear, Krizhevsky 2014 for the root).
#pragma once

#include "trireme/config/settings.h"

namespace trireme::config {

/// optimizer.lr x (train.global_batch_size / optimizer.base_batch_size), the ratio linear, under a root, or left
/// out, as optimizer.lr_scaling says.
double scaled_lr(const Settings& settings);

}  // namespace trireme::config
