#include "trireme/launch/machines/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::launch {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

JobFile job() {
  return {.program = "/opt/trireme",
          .arguments = {"pretrain", "llama-5m", "--devices", "4"},
          .folder = "/data/my job",
          .out_dir = "/data/out/Big_Run.1",
          .num_nodes = 2,
          .ranks_per_node = 4,
          .threads_per_rank = 3,
          .grace = std::chrono::seconds(90),
          .image = "registry/trireme:1",
          .claim = "data",
          .mount = "/data",
          .hosts = {"a", "b"}};
}

// What a shell makes of one quoted word.
std::string by_shell(const std::string& quoted) {
  const std::string command = "printf %s " + quoted;
  const std::unique_ptr<FILE, decltype(&pclose)> shell(popen(command.c_str(), "r"), &pclose);
  std::string text;
  for (int c = std::fgetc(shell.get()); c != EOF; c = std::fgetc(shell.get())) text += static_cast<char>(c);
  return text;
}

TEST(ShellQuoted, AShellReadsEveryWordBack) {
  for (const std::string word :
       {"plain", "a b", "it's", "", "$HOME `id`", "a\nb", "\"\\", "*", "~", "--x=y", "#", "Übung/模型"})
    EXPECT_EQ(by_shell(base::shell_quoted(word)), word);
  for (const char* plain : {"--train.max_steps=3", "Übung/模型"}) EXPECT_EQ(base::shell_quoted(plain), plain);
}

// A line break in a folder's name began a line of the batch script, and sbatch ran it.
TEST(JobFiles, NoWordBeginsALineOfItsOwn) {
  for (const std::string bad : {"a\ntouch /tmp/owned\n", "a\rb", "a\tb", "a\x1b[2J", "a\x7f", "a\u0085b", "a\u2028b"})
    for (std::string JobFile::* field :
         {&JobFile::program, &JobFile::folder, &JobFile::out_dir, &JobFile::image, &JobFile::claim, &JobFile::mount}) {
      JobFile named = job(), told = job(), hosted = job();
      named.*field += bad;
      told.arguments.push_back(bad);
      hosted.hosts.push_back(bad);
      for (const JobFile& j : {named, told, hosted})
        for (const auto print : {&sbatch_file, &k8s_file, &host_file}) EXPECT_THROW(print(j), UsageError) << bad;
    }
  JobFile german = job();
  german.folder = "/data/Größe \u00a0 100 %";
  EXPECT_THAT(sbatch_file(german), HasSubstr("--chdir='/data/Größe"));
}

TEST(SbatchFile, HasWhatARequeuedJobNeeds) {
  const std::string text = sbatch_file(job());
  EXPECT_THAT(text, StartsWith("#!/bin/bash\n"));
  for (const char* line :
       {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=1\n", "#SBATCH --cpus-per-task=12\n",
        "#SBATCH --chdir='/data/my job'\n", "#SBATCH --job-name=trireme-big-run-1\n", "#SBATCH --open-mode=append\n",
        "#SBATCH --requeue\n", "#SBATCH --signal=USR1@150\n",
        "if [ $code -eq 75 ] || { [ $code -eq 74 ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt 5 ]; }; then",
        "scontrol requeue \"$SLURM_JOB_ID\"", "exit $code\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(JobFiles, ACommandThatDoesNotGoOnIsNotAskedToStop) {
  for (const WhenStopped when : {WhenStopped::dies, WhenStopped::ends}) {
    JobFile begins_again = job();
    begins_again.when_stopped = when;
    const std::string batch = sbatch_file(begins_again), pods = k8s_file(begins_again);
    EXPECT_THAT(batch,
                ::testing::AllOf(::testing::Not(HasSubstr("USR1")), ::testing::Not(HasSubstr("75")),
                                 HasSubstr("if [ $code -eq 74 ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt 5 ]; then\n"
                                           "  scontrol requeue")));
    EXPECT_THAT(pods, ::testing::AllOf(::testing::Not(HasSubstr("75")), HasSubstr("action: FailJob")));
  }
  JobFile goes_on = job();
  goes_on.when_stopped = WhenStopped::goes_on;
  EXPECT_EQ(sbatch_file(goes_on), sbatch_file(job()));
  EXPECT_EQ(k8s_file(goes_on), k8s_file(job()));
}

TEST(K8sFile, PodsFindTheFirstByTheServicesName) {
  const std::string text = k8s_file(job());
  EXPECT_THAT(text,
              HasSubstr("kind: Service  # headless: gives pod k the name trireme-big-run-1-k.trireme-big-run-1\n"));
  EXPECT_THAT(text, HasSubstr("\n      subdomain: trireme-big-run-1\n"));
  EXPECT_THAT(text, HasSubstr("            - \"llama-5m\"\n            - \"--devices\"\n            - \"4\"\n"));
  auto money = job();
  money.arguments = {"generate", "--prompt", "$(HOME) costs $$5"};
  EXPECT_THAT(k8s_file(money), HasSubstr("- \"$$(HOME) costs $$$$5\"\n")) << "Kubernetes makes the word of it again";
}

TEST(JobFiles, RanksOnGpusAskForThem) {
  EXPECT_THAT(sbatch_file(job()), ::testing::Not(HasSubstr("gpu")));
  EXPECT_THAT(k8s_file(job()), ::testing::Not(HasSubstr("gpu")));
  JobFile on_gpus = job();
  on_gpus.on_gpus = true;
  EXPECT_THAT(sbatch_file(on_gpus), HasSubstr("#SBATCH --cpus-per-task=12\n#SBATCH --gpus-per-node=4\n"));
  EXPECT_THAT(k8s_file(on_gpus), HasSubstr("          requests: {cpu: 12}\n          limits: {nvidia.com/gpu: 4}\n"));
}

TEST(K8sFile, WhatIsMissingIsNamed) {
  struct Case {
    void (*spoil)(JobFile&);
    const char* text;
  };
  const Case cases[] = {{[](JobFile& j) { j.image = ""; }, "launch.image"},
                        {[](JobFile& j) { j.claim = ""; }, "launch.volume CLAIM:/PATH"},
                        {[](JobFile& j) { j.mount = "data"; }, "launch.volume CLAIM:/PATH"},
                        {[](JobFile& j) { j.out_dir = "/data/../out"; }, "out_dir /data/../out is not in /data"},
                        {[](JobFile& j) { j.out_dir = "out"; }, "out_dir out is not in /data"}};
  for (const Case& c : cases) {
    JobFile bad = job();
    c.spoil(bad);
    try {
      k8s_file(bad);
      FAIL() << c.text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.text));
    }
  }
}

TEST(HostFile, IsOpenMpis) {
  EXPECT_EQ(host_file(job()),
            "# mpirun --mca odls_base_sigkill_timeout 100 --hostfile FILE -n 8 /opt/trireme pretrain llama-5m "
            "--devices 4\na slots=4\nb slots=4\n");
}

}  // namespace
}  // namespace trireme::launch
