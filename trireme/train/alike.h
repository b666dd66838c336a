// Whether all ranks run on the same hardware with the same libraries: the slowest sets the pace, and other kernels
// round differently.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/train/session.h"

namespace trireme::train {

/// What a rank runs on.
struct Kind {
  std::string processor;  ///< as /proc/cpuinfo names it
  std::string instructions;  ///< of its kernels: "avx512_bf16"
  std::string gpu, driver;  ///< "" on processors
  std::string program;  ///< versions of Trireme and LibTorch
};

/// Sentences about what differs, one for each kind of thing: "processor: ranks 0, 1: AMD EPYC; rank 2: Intel Xeon".
std::vector<std::string> differences(std::span<const Kind> ranks);

/// Every rank must call. Returns the line to say, on rank 0; "" if all are alike or launch.homogeneous is ignore.
/// Cost      one gather of 1 KiB a rank
/// Errors    UsageError on every rank if launch.homogeneous is require, and something differs
std::string check_alike(Session& session);

}  // namespace trireme::train
