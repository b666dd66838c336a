// Why a key has no effect, in words that several systems' tables share.
#pragma once

#include <string_view>

namespace trireme::dialects {

inline constexpr std::string_view kMetrics =
    "metrics are always in out_dir/metrics.jsonl, the loss curve in out_dir/loss.svg";
inline constexpr std::string_view kOneFolder = "a checkpoint is one folder with whole weights, which any mesh loads";
inline constexpr std::string_view kAnyMesh = "any mesh continues any checkpoint, in pieces of any size";
inline constexpr std::string_view kArena = "memory is planned before the first step: trireme explain memory";
inline constexpr std::string_view kTimes = "--profile says what takes time, and --profile.schedule draws each action";
inline constexpr std::string_view kCompiled = "nothing is compiled at run time here";
inline constexpr std::string_view kFused = "optimizers are always fused here";
inline constexpr std::string_view kNoGraph = "the optimizer runs outside of CUDA graphs (engine.cuda_graph)";
inline constexpr std::string_view kNoAmsgrad = "Adam is built without AMSGrad; leave it out";
inline constexpr std::string_view kNoDampening = "SGD is built without dampening; leave it out";
inline constexpr std::string_view kMinimised = "losses are minimised; leave it out";

}  // namespace trireme::dialects
