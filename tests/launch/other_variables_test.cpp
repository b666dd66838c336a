#include "trireme/launch/identity/other_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

EnvironmentLookup of(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

ParsedSettings parsed(const std::vector<std::string>& words = {}) { return parse_settings(words); }

TEST(OtherVariables, ATimeoutForNcclIsTheTimeoutOfCalls) {
  ParsedSettings settings = parsed();
  take_over_other_variables(settings, of({{"NCCL_TIMEOUT", "1800"}}));
  EXPECT_EQ(settings.settings.comm.timeout, std::chrono::seconds(1800));
  ParsedSettings given = parsed({"--comm.timeout", "7s"});
  take_over_other_variables(given, of({{"NCCL_TIMEOUT", "1800"}}));
  EXPECT_EQ(given.settings.comm.timeout, std::chrono::seconds(7));
  for (const char* wrong : {"", "0", "-3", "1.5", "30s"})
    EXPECT_THROW(take_over_other_variables(settings, of({{"NCCL_TIMEOUT", wrong}})), UsageError) << wrong;
}

TEST(OtherVariables, TheTokensFileHasAShortName) {
  ParsedSettings settings = parsed();
  take_over_other_variables(settings, of({{"TRIREME_TOKEN_FILE", "/run/secret"}}));
  EXPECT_EQ(settings.settings.launch.token_file, "/run/secret");
}

std::map<std::string, std::string> set(const std::vector<std::string>& names) {
  std::map<std::string, std::string> variables;
  for (const std::string& name : names) variables[name] = "1";
  return variables;
}

TEST(OtherVariables, WhatAccelerateSetsIsToldIfItAsksForSomething) {
  EXPECT_THAT(notes_on_other_variables({{"ACCELERATE_MIXED_PRECISION", "no"},
                                        {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1"},
                                        {"ACCELERATE_USE_CPU", "True"},
                                        {"ACCELERATE_DYNAMO_BACKEND", "NO"}},
                                       parsed().settings),
              IsEmpty());
  EXPECT_THAT(notes_on_other_variables({{"ACCELERATE_MIXED_PRECISION", "fp16"}, {"ACCELERATE_USE_FSDP", "true"}},
                                       parsed().settings),
              ElementsAre(HasSubstr("say --precision"), HasSubstr("ACCELERATE_USE_FSDP has no effect")));
}

TEST(OtherVariables, WhatHasNoEffectIsTold) {
  const auto names = set({"PATH", "NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_NOVEL",
                          "CUDA_VISIBLE_DEVICES", "TORCH_DISTRIBUTED_DEBUG"});
  EXPECT_THAT(notes_on_other_variables(names, parsed().settings),
              ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES has no effect"), HasSubstr("NCCL_DEBUG has no effect"),
                          HasSubstr("NCCL_NOVEL has no effect"), HasSubstr("NCCL_P2P_DISABLE has no effect"),
                          HasSubstr("TORCH_DISTRIBUTED_DEBUG has no effect")));
  EXPECT_THAT(notes_on_other_variables(names, parsed({"--accelerator", "cuda"}).settings),
              ElementsAre(HasSubstr("TORCH_DISTRIBUTED_DEBUG has no effect")));
  EXPECT_THAT(notes_on_other_variables(set({"HOME", "NCCL", "RANK"}), parsed().settings), IsEmpty());
}

TEST(OtherVariables, WhatOnlyTorchrunReadsIsToldWhereTorchrunIsNot) {
  const auto names = set({"PET_NNODES", "PET_NPROC_PER_NODE", "PET_STORE"});
  EXPECT_THAT(notes_on_other_variables(names, parsed().settings),
              ElementsAre(HasSubstr("PET_NNODES has no effect"), HasSubstr("PET_NPROC_PER_NODE has no effect")));
  EXPECT_THAT(notes_on_other_variables(set({"PET_NNODES", "TORCHELASTIC_RUN_ID"}), parsed().settings), IsEmpty());
}

TEST(OtherVariables, AnInterfaceIsTakenByItsName) {
  EXPECT_EQ(chosen_interface(of({})), "");
  EXPECT_EQ(chosen_interface(of({{"GLOO_SOCKET_IFNAME", "lo"}})), "lo");
  EXPECT_EQ(chosen_interface(of({{"NCCL_SOCKET_IFNAME", "=lo"}})), "lo");
  EXPECT_EQ(chosen_interface(of({{"NCCL_SOCKET_IFNAME", "^docker"}})), "");  // NCCL's own form
  try {
    chosen_interface(of({{"GLOO_SOCKET_IFNAME", "warp9"}}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("GLOO_SOCKET_IFNAME='warp9'"), HasSubstr("which has lo")));
  }
}

}  // namespace
}  // namespace trireme::launch
