// The door to what needs a GPU: kernels in a library of their own (trireme_cuda), so that the program starts, links and
// runs on machines without CUDA.
#pragma once

namespace trireme::base {

/// True when the machine has an NVIDIA GPU with its driver; loads nothing.
bool gpu_present();

/// NVIDIA GPUs that processes started from here may use: those of CUDA_VISIBLE_DEVICES, or all that the driver has made
/// device files for; loads nothing.
int num_gpus();

/// Errors    UsageError where this machine has fewer GPUs than `count` ranks need
void require_gpus(int count);

/// Address of `symbol` in libtrireme_cuda.so, which lies beside the program, in ../lib or where the loader looks.
/// Opened at the first call, never closed: CUDA cannot be started twice. Call it before anything asks ATen about CUDA.
///
/// Errors    UsageError without a GPU, without the library, or where it is of another version
void* cuda_symbol(const char* symbol);

}  // namespace trireme::base
