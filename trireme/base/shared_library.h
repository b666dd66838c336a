// Parts of the program that are separate libraries, because only some machines can load them. One has the CUDA kernels
// (trireme_cuda), so that the program starts, links and runs on machines without CUDA.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::base {

/// The path of `library`: beside the program (a build folder), in ../lib (an installed tree), or else only its name,
/// for the loader to search.
std::filesystem::path library_path(const std::string& library);

/// True when the machine has an NVIDIA GPU with its driver; loads nothing.
bool gpu_present();

/// How many NVIDIA GPUs processes started from here may use: those of CUDA_VISIBLE_DEVICES, or all with a device file;
/// loads nothing.
int num_gpus();

/// Errors    UsageError if this machine has fewer GPUs than `count` ranks need
void require_gpus(int count);

/// Address of `symbol` in libtrireme_cuda.so (library_path). The library is opened at the first call and never closed:
/// CUDA cannot be started twice. Call this before anything asks ATen about CUDA.
///
/// Errors    UsageError without a GPU, without the library, or if it is of another version
void* cuda_symbol(const char* symbol);

}  // namespace trireme::base
