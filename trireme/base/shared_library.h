// Parts of the program that are separate libraries, because only some machines can load them. For example, the CUDA
// kernels are in trireme_cuda. So the program itself links and runs on machines without CUDA.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::base {

/// The path of `library`: beside the program (a build folder), in ../lib (an installed tree), or else only its name,
/// for the loader to search.
std::filesystem::path library_path(const std::string& library);

/// True when the machine has an NVIDIA GPU with its driver; loads nothing.
bool gpu_present();

/// The number of NVIDIA GPUs that this process and its children may use: those in CUDA_VISIBLE_DEVICES, or without this
/// variable all that have a device file (/dev/nvidia<N>). Loads nothing.
int num_gpus();

/// Errors    UsageError if this machine has fewer GPUs than `count` ranks need
void require_gpus(int count);

/// Address of `symbol` in libtrireme_cuda.so (library_path). The library is opened at the first call. It is never
/// closed, because CUDA cannot be started twice in a process. Call this before anything asks ATen about CUDA.
///
/// Errors    UsageError if there is no GPU or no library, or if the library is of another version of Trireme
void* cuda_symbol(const char* symbol);

}  // namespace trireme::base
