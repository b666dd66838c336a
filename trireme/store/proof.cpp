#include "trireme/store/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "trireme/base/error.h"

namespace trireme::store {

Proof prove(std::string_view key, std::string_view text) {
  Proof proof;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), proof.data(), nullptr) == nullptr)
    throw Error("OpenSSL cannot compute HMAC-SHA-256: is its default provider there?");
  return proof;
}

bool proves(std::string_view shown, std::string_view key, std::string_view text) {
  const Proof expected = prove(key, text);
  return shown.size() == expected.size() && CRYPTO_memcmp(shown.data(), expected.data(), expected.size()) == 0;
}

std::string draw_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_priv_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    throw Error("the system gives no random bytes for a key");
  return bytes;
}

}  // namespace trireme::store
