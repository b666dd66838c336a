#include "trireme/door/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/files.h"

namespace trireme::door {
namespace {

std::string why_not_trusted(const struct stat& file) {
  if (!S_ISREG(file.st_mode)) return "is not a plain file: put the secret into one of mode 0600";
  if (file.st_uid != geteuid())
    return fmt::format("belongs to user {}, not to user {} who runs this: remove it, or make one of your own",
                       file.st_uid, geteuid());
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fmt::format("others may read or change it (mode {:04o}): chmod 600 it, or remove it", file.st_mode & 07777);
  if (file.st_nlink > 1)
    return fmt::format("has {} names (hard links), so that it may lie where others put it: make one of your own",
                       file.st_nlink);
  return {};
}

}  // namespace

std::optional<std::string> read_secret_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const bool inherited = path.parent_path() == "/proc/self/fd";
  // A pipe would keep the process waiting for who opens its other end.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (inherited ? 0 : O_NOFOLLOW);
  const base::FileDescriptor file(::open(path.c_str(), flags));
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  if (file.get() < 0 && errno == ELOOP)
    throw UsageError(fmt::format("{} holds a job's secret, but is a link: name the file itself", path.string()));
  struct stat status{};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) base::throw_file_error("read", path, errno);
  if (const std::string why = why_not_trusted(status); !why.empty())
    throw UsageError(fmt::format("{} holds a job's secret, but {}", path.string(), why));
  std::string text(most_bytes, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) base::throw_file_error("read", path, errno);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace trireme::door
