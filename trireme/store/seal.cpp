#include "trireme/store/seal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/store/proof.h"

namespace trireme::store {
namespace {

constexpr int kNonceBytes = 12, kMarkBytes = 16;
constexpr std::size_t kLengthBytes = 8;

using Context = std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)>;

void require(bool success) {
  if (!success) throw Error("OpenSSL cannot seal a message with AES-256-GCM: is its default provider there?");
}

std::array<unsigned char, kNonceBytes> nonce_of(Stamp stamp) {
  std::array<unsigned char, kNonceBytes> nonce;
  std::memcpy(nonce.data(), &stamp.stream, sizeof stamp.stream);
  std::memcpy(nonce.data() + sizeof stamp.stream, &stamp.sequence, sizeof stamp.sequence);
  return nonce;
}

unsigned char* bytes(std::byte* memory) { return reinterpret_cast<unsigned char*>(memory); }
const unsigned char* bytes(const std::byte* memory) { return reinterpret_cast<const unsigned char*>(memory); }

// OpenSSL counts in int, and a message may be longer.
template <typename F>
void in_pieces(std::size_t size, F&& f) {
  constexpr std::size_t kMost = 1U << 30;
  for (std::size_t begin = 0; begin < size; begin += kMost) f(begin, static_cast<int>(std::min(kMost, size - begin)));
}

}  // namespace

std::string Seal::draw_key() { return draw_bytes(kKeyBytes); }

Seal::Seal(std::string_view key, std::string_view purpose)
    : key_(prove(key, purpose)), cipher_(EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr), EVP_CIPHER_free) {
  if (key.size() != kKeyBytes) throw Error("a key for sealing messages has 32 bytes");
  require(cipher_ != nullptr);
}

Seal::~Seal() { OPENSSL_cleanse(key_.data(), key_.size()); }

void Seal::close(std::span<const std::byte> text, Stamp stamp, std::byte* sealed) const {
  const std::uint64_t length = text.size();
  std::memcpy(sealed, &length, kLengthBytes);
  std::byte* body = sealed + kLengthBytes;
  const Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int written = 0;
  require(EVP_EncryptInit_ex2(context.get(), cipher_.get(), key_.data(), nonce_of(stamp).data(), nullptr) == 1);
  require(EVP_EncryptUpdate(context.get(), nullptr, &written, bytes(sealed), kLengthBytes) == 1);
  in_pieces(text.size(), [&](std::size_t begin, int count) {
    require(EVP_EncryptUpdate(context.get(), bytes(body + begin), &written, bytes(text.data() + begin), count) == 1);
  });
  require(EVP_EncryptFinal_ex(context.get(), bytes(body + length), &written) == 1);
  require(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kMarkBytes, body + length) == 1);
}

bool Seal::open(const std::byte* sealed, Stamp stamp, std::span<std::byte> room) const {
  std::uint64_t length = 0;
  std::memcpy(&length, sealed, kLengthBytes);
  const std::byte* body = sealed + kLengthBytes;
  bool genuine = false;
  if (length <= room.size()) {
    const Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
    int written = 0;
    require(EVP_DecryptInit_ex2(context.get(), cipher_.get(), key_.data(), nonce_of(stamp).data(), nullptr) == 1);
    require(EVP_DecryptUpdate(context.get(), nullptr, &written, bytes(sealed), kLengthBytes) == 1);
    in_pieces(length, [&](std::size_t begin, int count) {
      require(EVP_DecryptUpdate(context.get(), bytes(room.data() + begin), &written, bytes(body + begin), count) == 1);
    });
    require(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kMarkBytes,
                                const_cast<std::byte*>(body + length)) == 1);
    unsigned char nothing[1];
    genuine = EVP_DecryptFinal_ex(context.get(), nothing, &written) == 1;
  }
  if (!genuine) std::fill(room.begin(), room.end(), std::byte{0});
  return genuine;
}

}  // namespace trireme::store
