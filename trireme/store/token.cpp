#include "trireme/store/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/process.h"

namespace trireme::store {
namespace {

std::string without_space_around(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace), last = text.find_last_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Judges the form: hexadecimal digits, or (base64) letters of both cases with digits, with few repetitions. One in
// 1,500 random tokens in base64 has no digit; it has more different letters than words have. Of random tokens fewer
// than one in a million is rejected.
bool looks_random(const std::string& text) {
  constexpr std::size_t kLeastDifferent = 8, kLeastWithoutDigit = 24, kPiece = 8;
  bool hex = true, lower = false, upper = false, digit = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && std::string_view("+/=-_").find(c) == std::string_view::npos) return false;
    hex = hex && std::isxdigit(byte) != 0;
    lower = lower || std::islower(byte) != 0;
    upper = upper || std::isupper(byte) != 0;
    digit = digit || std::isdigit(byte) != 0;
  }
  const std::size_t different = std::set<char>(text.begin(), text.end()).size();
  if (!hex && !(lower && upper && (digit || different >= kLeastWithoutDigit))) return false;
  if (different < kLeastDifferent) return false;
  for (std::size_t i = 0; i + 2 * kPiece <= text.size(); ++i)
    if (text.find(text.substr(i, kPiece), i + 1) != std::string::npos) return false;
  return true;
}

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

Token draw_token() {
  base::allow_no_core_dumps();
  std::array<unsigned char, 32> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error("the kernel gives no random numbers, which a job's token is made of");
  Token token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

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

Token read_token_file(const std::filesystem::path& path) {
  base::allow_no_core_dumps();
  const auto text = read_secret_file(path, kMostTokenBytes + 64);
  if (!text) base::throw_file_error("read", path, ENOENT);
  Token token = without_space_around(*text);
  if (!is_token(token))
    throw UsageError(fmt::format("{} must hold the job's secret, {} to {} characters; openssl rand -hex 32 writes one",
                                 path.string(), kLeastTokenBytes, kMostTokenBytes));
  if (!looks_random(token))
    throw UsageError(
        fmt::format("{} must hold random characters, as openssl rand -hex 32 or -base64 32 writes them: what it holds "
                    "can be guessed",
                    path.string()));
  return token;
}

base::FileDescriptor token_descriptor(const Token& token) {
  base::FileDescriptor file(memfd_create("trireme-token", MFD_CLOEXEC));
  if (file.get() < 0)
    throw Error("cannot make a file in memory for the job's token: " + base::why_no_descriptor(errno));
  base::write_at(file, std::as_bytes(std::span(token)), 0, "the job's token");
  return file;
}

Token token_from_descriptor(int descriptor) {
  base::allow_no_core_dumps();
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

}  // namespace trireme::store
