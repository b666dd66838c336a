// The ledger says what each sample is made of, as lines for people and as JSON. A run can record it. `trireme data
// ledger` computes it, and writes the same.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/data/sample_stream.h"

namespace trireme::data {

/// {"sample": 704, "epoch": 0, "index": 17, "parts": [{"source": "a.txt", "documents": [3, 3], "first_token": 12345,
/// "tokens": 256}]}
std::string ledger_json(const SampleStream& samples, int64_t global_index);

/// "     704  epoch 0  a.txt  document 3  tokens 12,345 to 12,600", one line for each part.
std::string ledger_text(const SampleStream& samples, int64_t global_index);

}  // namespace trireme::data
