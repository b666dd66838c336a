#include "trireme/door/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::door {
namespace {

std::string without_space_around(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace), last = text.find_last_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

bool is_token(const std::string& text) { return text.size() >= kLeastTokenBytes && text.size() <= kMostTokenBytes; }

}  // namespace

Token draw_token() {
  std::array<unsigned char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error("the kernel gives no random numbers, which a job's token is made of");
  Token token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

Token read_token_file(const std::filesystem::path& path) {
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  struct stat status{};
  if (fstat(file.get(), &status) != 0) base::throw_file_error("read", path, errno);
  if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0)
    throw UsageError(
        fmt::format("{} holds the job's secret, and others may read or change it (mode {:04o}): chmod 600 {}",
                    path.string(), status.st_mode & 07777, path.string()));
  std::string text(kMostTokenBytes + 64, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  if (got < 0) base::throw_file_error("read", path, errno);
  text.resize(static_cast<std::size_t>(got));
  const Token token = without_space_around(text);
  if (!is_token(token))
    throw UsageError(fmt::format("{} must hold the job's secret, {} to {} characters; openssl rand -hex 32 writes one",
                                 path.string(), kLeastTokenBytes, kMostTokenBytes));
  return token;
}

base::FileDescriptor token_descriptor(const Token& token) {
  base::FileDescriptor file(memfd_create("trireme-token", MFD_CLOEXEC));
  if (file.get() < 0)
    throw Error(fmt::format("cannot make a file in memory for the job's token: {}", std::strerror(errno)));
  base::write_at(file, std::as_bytes(std::span(token)), 0, "the job's token");
  return file;
}

Token token_from_descriptor(int descriptor) {
  std::string text(kMostTokenBytes + 1, '\0');
  const ssize_t got = pread(descriptor, text.data(), text.size(), 0);
  if (got > 0) text.resize(static_cast<std::size_t>(got));
  if (got <= 0 || !is_token(text))
    throw UsageError(
        fmt::format("environment variable TRIREME_TOKEN_FD={} is not a descriptor with the job's token; unset it, or "
                    "start the ranks with --devices",
                    descriptor));
  return text;
}

}  // namespace trireme::door
