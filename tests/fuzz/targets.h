// Every parser of files that strangers write, as a function of the file's bytes: for libFuzzer (the preset `fuzz`) and
// for the quick tests, which replay the corpus.
//
// A new target is one function in a file of its own, a row in targets.cpp, its name in CMakeLists.txt, and a few small
// files in corpus/<name>/.
#pragma once

#include <cstdlib>
#include <functional>
#include <span>
#include <string_view>

namespace trireme::fuzz {

/// Returns, or throws an error of Trireme's: a crash, another exception or a broken rule is a finding.
using Target = void (*)(std::string_view bytes);

struct NamedTarget {
  std::string_view name;
  Target run;
};

std::span<const NamedTarget> targets();

/// Runs a target and checks that it ends as it should: with nothing, or with one clear error of at most 16 KiB.
void run_checked(Target target, std::string_view bytes);

/// Ends the process with `rule` where it is broken.
void require(bool holds, std::string_view rule);

/// `name` is a file of the same folder, whatever it is joined with.
void require_inside_folder(std::string_view name);

}  // namespace trireme::fuzz
