#include "trireme/store/place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/process.h"

namespace trireme::store {

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
  const auto text = read_secret_file(path, 1024);
  if (!text) return std::nullopt;
  base::allow_no_core_dumps();
  std::istringstream in(*text);
  Place place;
  if (in >> place.host >> place.port >> place.token && is_token(place.token)) return place;
  throw Error(fmt::format("{} does not say where the ranks meet; remove it and start again", path.string()));
}

}  // namespace trireme::store
