#include "trireme/comm/gloo_tls.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/comm/group.h"
#include "trireme/comm/store.h"
#include "trireme/door/certificate.h"

namespace trireme::comm {

namespace {

// gloo opens the library by these names when it makes its first TLS connection, and would end the process there.
void require_openssl() {
  for (const char* name : {"libssl.so", "libssl.so.1.1"})
    if (dlopen(name, RTLD_LAZY) != nullptr) return;
  throw UsageError(
      "comm.tls: LibTorch's gloo opens OpenSSL by the name libssl.so, and this machine has no library of that name; "
      "install libssl-dev, which brings it as a link, or set comm.tls false and use a network you trust");
}

// gloo wants names of files. These have none on any disk; they stay open as long as the process lives.
std::string file_in_memory(const std::string& text) {
  base::FileDescriptor file(memfd_create("trireme-tls", MFD_CLOEXEC));
  if (file.get() < 0) throw Error(fmt::format("comm.tls: no file in memory: {}", std::strerror(errno)));
  base::write_at(file, std::as_bytes(std::span(text)), 0, "the job's certificate");
  return fmt::format("/proc/self/fd/{}", file.release());
}

}  // namespace

void use_gloo_tls(c10d::Store& store, int global_rank, std::chrono::milliseconds timeout) {
  require_openssl();
  constexpr const char *kKey = "trireme/tls/key", *kCertificate = "trireme/tls/certificate";
  if (global_rank == 0) {
    const door::Certificate made = door::make_certificate();
    set_text(store, kKey, made.key);
    set_text(store, kCertificate, made.text);
  }
  const Group world{.rank = global_rank, .timeout = timeout};
  const std::string key = file_in_memory(wait_for_text(store, world, kKey, 0));
  const std::string certificate = file_in_memory(wait_for_text(store, world, kCertificate, 0));
  setenv("GLOO_DEVICE_TRANSPORT", "TCP_TLS", 1);
  setenv("GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY", key.c_str(), 1);
  setenv("GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT", certificate.c_str(), 1);
  setenv("GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE", certificate.c_str(), 1);
}

}  // namespace trireme::comm
