#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/bench/report.h"
#include "trireme/doctor/judge.h"

namespace trireme::doctor {
namespace {

// Of the limit. Idle machines reach three to nine tenths; less than this means that ranks stood in line for cores.
constexpr double kLittle = 0.1;

}  // namespace

std::vector<Finding> judge_collectives(double copy_rate, std::span<const CollectiveResult> collectives) {
  std::vector<Finding> findings;
  if (copy_rate > 0)
    findings.push_back({Grade::ok, "copy",
                        fmt::format("a copy moves {} GB/s a rank{}", bench::rate_text(copy_rate * 1e-9),
                                    collectives.empty() ? "" : " while all ranks copy")});
  if (collectives.empty()) return findings;
  std::vector<std::string> texts;
  double worst = 1;
  for (const CollectiveResult& c : collectives) {
    const double share = c.limit > 0 ? c.rate / c.limit : 1;
    worst = std::min(worst, share);
    texts.push_back(fmt::format("{} {} GB/s ({:.0f} %)", c.name, bench::rate_text(c.rate * 1e-9), 100 * share));
  }
  const CollectiveResult& first = collectives.front();
  Finding finding{Grade::ok, "collectives",
                  fmt::format("{} of {}: {}; limit {} GB/s, {}", first.backend, base::human_bytes(first.bytes),
                              base::join(texts, ", "), bench::rate_text(first.limit * 1e-9), first.limit_name)};
  if (worst < kLittle) {
    finding.grade = Grade::warn;
    finding.fix = "other work on these cores, or more ranks than cores; trireme bench collectives shows every size";
  }
  findings.push_back(finding);
  return findings;
}

}  // namespace trireme::doctor
