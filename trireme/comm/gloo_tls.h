// comm.tls: gloo's TLS transport, with a certificate that rank 0 makes for the job and that comes to the others through
// the store, which is sealed (docs/security.md). Connections between ranks are then encrypted, and a process without
// the job's key can open none.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

/// Every gloo communicator that this process makes from now on uses TLS. Collective over the ranks of the job.
///
/// Cost      a key on rank 0, two small files in memory on each
/// Errors    UsageError where gloo could not open OpenSSL on this machine, naming what is missing; CommError where
///           rank 0's certificate does not come within the timeout
void use_gloo_tls(c10d::Store& store, int global_rank, std::chrono::milliseconds timeout);

}  // namespace trireme::comm
