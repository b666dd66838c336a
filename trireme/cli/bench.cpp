#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/bench_topics.h"
#include "trireme/config/report.h"

namespace trireme::cli {
namespace {

bool asks_for_help(Arguments arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

void print_topics() {
  fmt::print("trireme bench measures, each figure beside what the machine can do at most in the same run.\n\n");
  for (const BenchTopic& t : bench_topics()) fmt::print("  {:<12} {}\n", t.name, t.help);
  fmt::print("\nFor instance\n");
  for (const BenchTopic& t : bench_topics()) fmt::print("  {}\n", t.example);
  fmt::print(
      "\n--json FILE keeps the result, --quick only shows that it works; trireme bench SUBCOMMAND --help teaches.\n");
}

void print_help(const BenchTopic& t) {
  fmt::print("trireme bench {}: {}\n  {}\n\n{}\n{}", t.name, t.help, t.example, t.lesson,
             config::help_text({"bench"}, "bench"));
  fmt::print("\nAll other settings: trireme explain settings.\n");
}

}  // namespace

int run_bench(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_topics();
    return arguments.empty() ? 2 : 0;
  }
  std::vector<std::string> names;
  for (const BenchTopic& t : bench_topics()) {
    names.emplace_back(t.name);
    if (arguments[0] != t.name) continue;
    const Arguments rest = arguments.subspan(1);
    if (!asks_for_help(rest)) return t.run(rest);
    print_help(t);
    return 0;
  }
  const auto near = base::nearest(arguments[0], names);
  throw UsageError(fmt::format("error: there is no trireme bench {}{}; there is {}", arguments[0],
                               near ? fmt::format(" (did you mean {}?)", *near) : "", base::join(names, ", ")));
}

}  // namespace trireme::cli
