// Words that several systems share: number formats, that is what a run computes in, and what its gradients travel and
// are summed in; and loggers.
#pragma once

#include <string_view>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// "fp32", "bf16" or "fp16" for any system's word for it ("torch.bfloat16", "half"); empty: none of these.
std::string_view dtype_word(std::string_view text);

/// The format of mixed precision that computes in this dtype: bf16-mixed, 16-mixed, 32-true; empty: none.
std::string_view mixed_format(std::string_view dtype);

/// Sets train.loggers to those of ours that the entry names; others are ignored.
void loggers_named(Reading& reading, const config::Given& entry);

/// Sets `precision` from the name of a dtype, or from "no" and "false", which are fp32; refuses others.
void set_format(Reading& reading, const config::Given& entry);

/// The dtype that units compute in, as far as `precision` is known: a dtype_word, or empty.
std::string_view compute_dtype(const Reading& reading);

/// Sets precision.reduce or precision.gradients, which are fp32 or the dtype of units, from the name of a dtype.
void set_gradient_dtype(Reading& reading, std::string_view setting, const config::Given& entry);

}  // namespace trireme::dialects
