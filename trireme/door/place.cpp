#include "trireme/door/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::door {

namespace fs = std::filesystem;

void write_place(const fs::path& path, const Place& place) {
  const std::string text = fmt::format("{} {} {}\n", place.host, place.port, place.token);
  const fs::path unfinished = fs::path(path) += fmt::format(".{}", getpid());
  fs::remove(unfinished);
  try {
    const base::FileDescriptor file = base::open_file(unfinished, O_WRONLY | O_CREAT | O_EXCL, 0600);
    base::write_at(file, std::as_bytes(std::span(text)), 0, unfinished);
    fs::rename(unfinished, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

std::optional<Place> read_place(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  struct stat status{};
  if (fstat(file.get(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw UsageError(fmt::format("{} holds the job's secret, and others may read or change it (mode {:04o}); remove it",
                                 path.string(), status.st_mode & 07777));
  std::array<char, 1024> text{};
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) base::throw_file_error("read", path, errno);
  std::istringstream in(std::string(text.data(), static_cast<std::size_t>(got)));
  Place place;
  if (in >> place.host >> place.port >> place.token && place.token.size() >= kLeastTokenBytes &&
      place.token.size() <= kMostTokenBytes)
    return place;
  throw Error(fmt::format("{} does not say where the ranks meet; remove it and start again", path.string()));
}

}  // namespace trireme::door
