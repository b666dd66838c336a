// Two of three batch sizes give the third on the ranks that start: B = m x g x data-parallel ranks.
#pragma once

#include <string_view>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// Sets train.micro_batch_size and train.global_batch_size from two of B, m and g; the keys' names differ between
/// systems. A key that is empty is not there.
void set_batch(Reading& reading, std::string_view batch, std::string_view micro, std::string_view accumulation);

}  // namespace trireme::dialects
