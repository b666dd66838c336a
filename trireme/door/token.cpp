#include "trireme/door/token.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>

#include "trireme/base/core_dump.h"
#include "trireme/base/error.h"
#include "trireme/door/secret_file.h"

namespace trireme::door {
namespace {

std::string without_space_around(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace), last = text.find_last_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

bool is_token(const std::string& text) { return text.size() >= kLeastTokenBytes && text.size() <= kMostTokenBytes; }

// By its form: hexadecimal digits, or letters of both cases with digits among them (base64), of which few repeat.
// Chance makes fewer than one token in a million of 32 hexadecimal digits look otherwise.
bool looks_random(const std::string& text) {
  constexpr std::size_t kLeastDifferent = 8, kPiece = 8;
  bool hex = true, lower = false, upper = false, digit = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) == 0 && std::string_view("+/=-_").find(c) == std::string_view::npos) return false;
    hex = hex && std::isxdigit(byte) != 0;
    lower = lower || std::islower(byte) != 0;
    upper = upper || std::isupper(byte) != 0;
    digit = digit || std::isdigit(byte) != 0;
  }
  if (!hex && !(lower && upper && digit)) return false;
  if (std::set<char>(text.begin(), text.end()).size() < kLeastDifferent) return false;
  for (std::size_t i = 0; i + 2 * kPiece <= text.size(); ++i)
    if (text.find(text.substr(i, kPiece), i + 1) != std::string::npos) return false;
  return true;
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
    throw Error(fmt::format("cannot make a file in memory for the job's token: {}", std::strerror(errno)));
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

}  // namespace trireme::door
