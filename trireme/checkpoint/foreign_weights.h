// Weights that lie in a folder in the form of another program. Only trireme convert reads those.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::checkpoint {

/// "DIR holds its weights in pytorch_model.bin, which only trireme convert reads: ...", with the way out. Empty if the
/// folder holds a .safetensors file, or no file of weights that is known.
std::string advice_on_foreign_weights(const std::filesystem::path& folder);

/// As above for a folder of DeepSpeed's checkpoints, or a global_step... in it; empty for others.
std::string advice_on_deepspeed(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
