// The storage of a wrapped module's parameter, whose address a unit sets before each action (wrapped_unit.h). Its owner
// may give a parameter any other storage meanwhile; units keep off memory that is not theirs.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trireme/model/unit.h"

namespace trireme::model {

/// A dense tensor of this shape with its own storage, whose address can be set.
at::Tensor with_storage(at::DataPtr data, at::IntArrayRef shape, const at::TensorOptions& options);

/// A tensor for `parameter` in the memory of the dense `value`, which is freed when another address is set.
at::Tensor movable(const at::Tensor& value, const at::Tensor& parameter);

/// An address in planned memory, for the storage of `parameter`; `by` sets it. The memory ends with its engine.
at::DataPtr planned(void* address, const at::Tensor& parameter, const Unit* by);

/// The address in a parameter's storage, which may refuse to be read.
const at::DataPtr& address_of(const at::Tensor& parameter);
/// Sets it; can_move() must hold. Views that autograd has saved follow.
void move_to(const at::Tensor& parameter, at::DataPtr data);

bool is_in_planned_memory(const at::Tensor& parameter);
/// Whether a unit has made the storage for this parameter, and not for another one.
bool has_own_storage(const at::Tensor& parameter);
/// Whether `unit` has set its address to planned memory last.
bool was_set_by(const at::Tensor& parameter, const Unit* unit);
/// Whether its address can be set: it is all of its own storage, and does not refuse to be read.
bool can_move(const at::Tensor& parameter);

/// Whoever reads or writes the parameter, or a view of it, gets the sentence. This cannot be taken back: a parameter
/// that gets memory again gets another storage.
void refuse_reads(const at::Tensor& parameter, const std::string& why, const Unit* by);

}  // namespace trireme::model
