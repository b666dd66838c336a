#include "trireme/train/alike.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/machine/nvml.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::train {
namespace {

constexpr int64_t kWords = 128;  // of 8 bytes: what a rank sends
constexpr size_t kShownRanks = 4;

std::string instructions() {
  const base::Processor& p = base::processor();
  return p.amx_bf16 ? "amx_bf16" : p.avx512_bf16 ? "avx512_bf16" : p.avx512 ? "avx512" : p.avx2 ? "avx2" : "none";
}

Kind own_kind(const Session& s) {
  Kind kind{.processor = base::processor_name(),
            .instructions = instructions(),
            .program = fmt::format("trireme {}, LibTorch {}", base::kVersion, TORCH_VERSION)};
  if (s.device.is_cuda()) kind.gpu = ops::cuda_kernels().device_name(), kind.driver = machine::nvidia_driver();
  return kind;
}

// A line for each field; what does not fit is cut.
std::string packed(const Kind& k) {
  std::string text = base::join(std::vector{k.processor, k.instructions, k.gpu, k.driver, k.program}, "\n");
  text.resize(kWords * 8, '\0');
  return text;
}

Kind unpacked(const char* bytes) {
  std::istringstream lines(std::string(bytes, strnlen(bytes, kWords * 8)));
  Kind k;
  for (std::string* field : {&k.processor, &k.instructions, &k.gpu, &k.driver, &k.program}) std::getline(lines, *field);
  return k;
}

std::string ranks_text(const std::vector<size_t>& ranks) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShownRanks, ranks.size()); ++i) shown.push_back(std::to_string(ranks[i]));
  if (ranks.size() > kShownRanks) shown.push_back(fmt::format("{} more", ranks.size() - kShownRanks));
  return (ranks.size() == 1 ? "rank " : "ranks ") + base::join(shown, ", ");
}

}  // namespace

std::vector<std::string> differences(std::span<const Kind> ranks) {
  constexpr std::pair<const char*, std::string Kind::*> kFields[] = {{"processor", &Kind::processor},
                                                                     {"instructions", &Kind::instructions},
                                                                     {"GPU", &Kind::gpu},
                                                                     {"driver", &Kind::driver},
                                                                     {"program", &Kind::program}};
  std::vector<std::string> sentences;
  for (const auto& [name, field] : kFields) {
    std::map<std::string, std::vector<size_t>> of;
    for (size_t r = 0; r < ranks.size(); ++r) of[ranks[r].*field].push_back(r);
    if (of.size() < 2) continue;
    std::vector<std::pair<size_t, std::string>> parts;  // by the first rank
    for (const auto& [value, members] : of)
      parts.emplace_back(members.front(),
                         fmt::format("{}: {}", ranks_text(members), value.empty() ? "unknown" : value));
    std::ranges::sort(parts);
    std::vector<std::string> texts;
    for (const auto& [first, text] : parts) texts.push_back(text);
    sentences.push_back(fmt::format("{}: {}", name, base::join(texts, "; ")));
  }
  return sentences;
}

std::string check_alike(Session& s) {
  const auto ranks = static_cast<int64_t>(s.environment.world_size);
  const launch::Homogeneous wanted = s.settings.launch.homogeneous;
  if (ranks < 2 || wanted == launch::Homogeneous::ignore) return "";
  const at::Tensor own = at::empty({kWords}, at::kLong), all = at::empty({ranks * kWords}, at::kLong);
  std::memcpy(own.data_ptr(), packed(own_kind(s)).data(), kWords * 8);
  s.world().all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(ranks), kWords))->wait();
  std::vector<Kind> kinds;
  for (int64_t r = 0; r < ranks; ++r)
    kinds.push_back(unpacked(static_cast<const char*>(all.data_ptr()) + r * kWords * 8));
  const std::vector<std::string> sentences = differences(kinds);
  if (sentences.empty()) return "";
  const std::string text = base::join(sentences, "\n         ");
  if (wanted == launch::Homogeneous::require)
    throw UsageError(
        fmt::format("error: ranks differ, and launch.homogeneous is require\n  {}\n  leave it out to train "
                    "anyway",
                    base::join(sentences, "\n  ")));
  return s.is_first_rank() ? fmt::format(
                                 "warn     ranks differ; the slowest sets the pace, and sums may round differently\n"
                                 "         {}",
                                 text)
                           : "";
}

}  // namespace trireme::train
