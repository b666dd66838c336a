#include "trireme/door/certificate.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::door {
namespace {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>>;
using X509Pointer = std::unique_ptr<X509, Free<&X509_free>>;
using Memory = std::unique_ptr<BIO, Free<&BIO_free>>;

void require(bool went_well) {
  if (!went_well) throw Error("OpenSSL makes no certificate for the job");
}

std::string written_by(const std::function<int(BIO*)>& write) {
  const Memory memory(BIO_new(BIO_s_mem()));
  require(memory != nullptr && write(memory.get()) == 1);
  char* text = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

}  // namespace

Certificate make_certificate() {
  constexpr long kDay = 24 * 60 * 60;
  const Key key(EVP_EC_gen("P-256"));
  const X509Pointer certificate(X509_new());
  require(key != nullptr && certificate != nullptr);
  X509* const x = certificate.get();
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  require(X509_set_version(x, X509_VERSION_3) == 1);
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial >> 1) == 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(x), 3650 * kDay);
  X509_NAME* const name = X509_get_subject_name(x);
  const auto* text = reinterpret_cast<const unsigned char*>("a job of trireme");
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1);
  require(X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key.get()) == 1);
  require(X509_sign(x, key.get(), EVP_sha256()) > 0);
  return {written_by([&](BIO* out) {
            return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          }),
          written_by([&](BIO* out) { return PEM_write_bio_X509(out, x); })};
}

}  // namespace trireme::door
