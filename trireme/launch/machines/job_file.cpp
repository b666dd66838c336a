#include "trireme/launch/machines/job_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {
// Slurm checks the time once a minute, so its signal may come up to a minute early, but never late.
constexpr std::chrono::seconds kSlurmClock{60};
constexpr int kTriesOfADisk = 5;  // a full disk may have room when the requeued job starts
constexpr std::chrono::seconds kEnding{30};  // for a pod's processes to end after their state is saved
constexpr std::chrono::seconds kAfterGrace{10};  // Open MPI kills ranks a second after SIGTERM unless told otherwise

std::string command_of(const JobFile& job, const std::string& between) {
  std::string text = base::shell_quoted(job.program);
  for (const std::string& word : job.arguments) text += between + base::shell_quoted(word);
  return text;
}

bool goes_on(const JobFile& job) {
  return job.when_stopped == WhenStopped::goes_on || job.when_stopped == WhenStopped::resumes;
}

// A name that both schedulers accept: letters, digits, dashes; a letter first; not too long for a pod's host name.
std::string name_of(const JobFile& job) {
  constexpr size_t kLongest = 40;
  std::string name = "trireme";
  const std::string last = std::filesystem::path(job.out_dir).lexically_normal().filename().string();
  for (const char c : "-" + last) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 128 && std::isalnum(byte) != 0;
    if (plain)
      name += static_cast<char>(std::tolower(byte));
    else if (name.back() != '-')
      name += '-';
  }
  name.resize(std::min(name.size(), kLongest));
  return name.substr(0, name.find_last_not_of('-') + 1);
}

// A line break in a word, or a character that an editor or parser takes for one, would begin a new line of the job
// file, perhaps with a command. In comments, quotes do not help against it.
bool has_control_character(std::string_view word) {
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    const std::string_view here = word.substr(i, 3);
    if (byte == 0xc2 && here.size() > 1 && static_cast<unsigned char>(here[1]) < 0xa0) return true;  // U+0080 to U+009F
    if (here == "\u2028" || here == "\u2029") return true;
  }
  return false;
}

void check_words(const JobFile& job) {
  const auto check = [](const char* what, const std::string& word) {
    if (!has_control_character(word)) return;
    std::string shown;
    for (const char c : word) shown += has_control_character({&c, 1}) ? '?' : c;
    throw UsageError(
        fmt::format("error: {} '{}' has a control character (shown as ?), for instance a line break, which would begin "
                    "a line of its "
                    "own in the job file: use another name or word",
                    what, shown));
  };
  check("the path of the program", job.program);
  check("the folder", job.folder);
  check("out_dir", job.out_dir);
  check("launch.image", job.image);
  check("launch.volume", job.claim);
  check("launch.volume", job.mount);
  for (const std::string& word : job.arguments) check("the word", word);
  for (const std::string& host : job.hosts) check("the host", host);
}

// A double-quoted YAML scalar; check_words has refused control characters.
std::string yaml_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// Kubernetes puts a variable in the place of $(NAME) in a container's arguments, and one dollar in that of two.
std::string unexpanded(const std::string& word) {
  std::string all;
  for (const char c : word) all.append(c == '$' ? 2 : 1, c);
  return all;
}

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto relative = path.lexically_normal().lexically_relative(folder.lexically_normal());
  return !relative.empty() && *relative.begin() != "..";
}

void check_k8s(const JobFile& job) {
  if (job.image.empty())
    throw UsageError("error: launch.print k8s needs launch.image: the container image that holds trireme");
  if (job.claim.empty() || job.mount.empty() || job.mount[0] != '/')
    throw UsageError(
        "error: launch.print k8s needs launch.volume CLAIM:/PATH: a PersistentVolumeClaim that all pods can write "
        "(ReadWriteMany where there are several), and where they see it");
  if (!lies_in(job.out_dir, job.mount))
    throw UsageError(
        fmt::format("error: out_dir {} is not in {}, the volume that outlives a pod (launch.volume); for instance "
                    "--out_dir {}",
                    job.out_dir, job.mount, base::shell_quoted(job.mount + "/out")));
}
}  // namespace

std::string sbatch_file(const JobFile& job) {
  check_words(job);
  const int cores = job.ranks_per_node * job.threads_per_rank;
  const std::string signal = fmt::format(
      "# So many seconds before the end the ranks hear of it, save and exit with {}.\n"
      "#SBATCH --signal=USR1@{}\n",
      kStoppedEarly, (job.grace + kSlurmClock).count());
  const std::string on_full_disk = fmt::format("[ $code -eq {} ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {} ]",
                                               base::kStorageFailed, kTriesOfADisk);
  const std::string requeue =
      goes_on(job) ? fmt::format(
                         "# Stopped by request, state saved: back into the queue. So is a run whose disk took "
                         "no more, for a few times.\n"
                         "if [ $code -eq {} ] || {{ {}; }}; then\n",
                         kStoppedEarly, on_full_disk)
                   : fmt::format(
                         "# Its disk took no more: back into the queue, for a few times.\n"
                         "if {}; then\n",
                         on_full_disk);
  return fmt::format(
      "#!/bin/bash\n"
      "# {nodes} machines, one task on each, which starts {ranks} ranks there. Submit it with: sbatch FILE\n"
      "# Further options of sbatch (--partition, --account, --time) may stand on its command line.\n"
      "#SBATCH --job-name={name}\n"
      "#SBATCH --nodes={nodes}\n"
      "#SBATCH --ntasks-per-node=1\n"
      "# Cores for the ranks of a machine; launch.threads_per_rank says how many each has.\n"
      "#SBATCH --cpus-per-task={cores}\n"
      "{gpus}"
      "#SBATCH --chdir={folder}\n"
      "#SBATCH --output={name}-%j.log\n"
      "# A job that starts again goes on in the same log.\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --requeue\n"
      "{signal}"
      "\n"
      "srun --cpus-per-task={cores} --kill-on-bad-exit=0 \\\n"
      "  {command}\n"
      "code=$?\n"
      "{requeue}"
      "  scontrol requeue \"$SLURM_JOB_ID\"\n"
      "fi\n"
      "exit $code\n",
      fmt::arg("nodes", job.num_nodes), fmt::arg("ranks", job.ranks_per_node), fmt::arg("cores", cores),
      fmt::arg("gpus", job.on_gpus ? fmt::format("#SBATCH --gpus-per-node={}\n", job.ranks_per_node) : ""),
      fmt::arg("name", name_of(job)), fmt::arg("folder", base::shell_quoted(job.folder)),
      fmt::arg("signal", goes_on(job) ? signal : ""), fmt::arg("requeue", requeue),
      fmt::arg("command", command_of(job, " \\\n    ")));
}

std::string k8s_file(const JobFile& job) {
  check_words(job);
  check_k8s(job);
  const std::string name = name_of(job);
  const std::string again = fmt::format(
      "    - action: Ignore  # stopped by request, state saved: starts again and goes on\n"
      "      onExitCodes: {{containerName: trireme, operator: In, values: [{}]}}\n",
      kStoppedEarly);
  std::string arguments;
  for (const std::string& word : job.arguments)
    arguments += fmt::format("            - {}\n", yaml_quoted(unexpanded(word)));
  return fmt::format(
      "# {nodes} pods of {ranks} ranks. Start it with: kubectl apply -f FILE\n"
      "apiVersion: v1\n"
      "kind: Service  # headless: gives pod k the name {name}-k.{name}\n"
      "metadata:\n"
      "  name: {name}\n"
      "spec:\n"
      "  clusterIP: None\n"
      "  publishNotReadyAddresses: true\n"
      "  selector:\n"
      "    job-name: {name}\n"
      "---\n"
      "apiVersion: batch/v1\n"
      "kind: Job\n"
      "metadata:\n"
      "  name: {name}\n"
      "spec:\n"
      "  completionMode: Indexed\n"
      "  completions: {nodes}\n"
      "  parallelism: {nodes}\n"
      "  backoffLimit: {failures}  # a failure of one pod is one of each\n"
      "  podReplacementPolicy: Failed\n"
      "  podFailurePolicy:\n"
      "    rules:\n"
      "    - action: FailJob  # refused settings: the next pod would refuse them, too\n"
      "      onExitCodes: {{containerName: trireme, operator: In, values: [2]}}\n"
      "{again}"
      "    - action: Ignore  # evicted, or its machine is gone\n"
      "      onPodConditions:\n"
      "      - {{type: DisruptionTarget, status: \"True\"}}\n"
      "  template:\n"
      "    spec:\n"
      "      subdomain: {name}\n"
      "      restartPolicy: Never\n"
      "      terminationGracePeriodSeconds: {patience}\n"
      "      containers:\n"
      "      - name: trireme\n"
      "        image: {image}\n"
      "        workingDir: {mount}\n"
      "        command:\n"
      "            - {program}\n"
      "{arguments}"
      "        ports:\n"
      "        - containerPort: {port}\n"
      "        resources:\n"
      "          requests: {{cpu: {cores}}}\n"
      "{gpus}"
      "        volumeMounts:\n"
      "        - {{name: shared, mountPath: {mount}}}\n"
      "      volumes:\n"
      "      - name: shared\n"
      "        persistentVolumeClaim: {{claimName: {claim}}}\n",
      fmt::arg("nodes", job.num_nodes), fmt::arg("ranks", job.ranks_per_node), fmt::arg("name", name),
      fmt::arg("failures", 3 * job.num_nodes), fmt::arg("again", goes_on(job) ? again : ""),
      fmt::arg("patience", (job.grace + kEnding).count()), fmt::arg("image", yaml_quoted(job.image)),
      fmt::arg("mount", yaml_quoted(job.mount)), fmt::arg("program", yaml_quoted("trireme")),
      fmt::arg("arguments", arguments), fmt::arg("port", job.master_port),
      fmt::arg("cores", job.ranks_per_node * job.threads_per_rank),
      fmt::arg("gpus",
               job.on_gpus ? fmt::format("          limits: {{nvidia.com/gpu: {}}}\n", job.ranks_per_node) : ""),
      fmt::arg("claim", yaml_quoted(job.claim)));
}

std::string host_file(const JobFile& job) {
  check_words(job);
  std::string text = fmt::format("# mpirun --mca odls_base_sigkill_timeout {} --hostfile FILE -n {} {}\n",
                                 (job.grace + kAfterGrace).count(),
                                 job.hosts.size() * static_cast<size_t>(job.ranks_per_node), command_of(job, " "));
  for (const std::string& host : job.hosts) text += fmt::format("{} slots={}\n", host, job.ranks_per_node);
  return text;
}

}  // namespace trireme::launch
