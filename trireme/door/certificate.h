// A key and a certificate for one job, for transports that know TLS by certificates alone (gloo). The ranks of a job
// share them: whoever shows the certificate is one of them, and it is the only one that they trust.
#pragma once

#include <string>

namespace trireme::door {

struct Certificate {
  std::string key;   ///< PEM, a private key on the curve P-256
  std::string text;  ///< PEM, signed by itself
};

/// Drawn anew; valid from a day ago, for clocks that differ, and for ten years.
///
/// Errors    Error when OpenSSL fails
Certificate make_certificate();

}  // namespace trireme::door
