#include "trireme/model/wrapped_storage.h"

#include <ATen/ATen.h>

#include <utility>

namespace trireme::model {
namespace {

// What stands behind the address of a storage that a unit has made.
struct Place {
  const void* parameter;  ///< whose storage it is, by its TensorImpl: its owner may have given it to others, too
  const Unit* unit;       ///< that has set the address to planned memory
  at::Tensor memory;      ///< that is freed with it; undefined in planned memory, which ends with its engine
};
void in_own_memory(void* place) { delete static_cast<Place*>(place); }
void in_planned_memory(void* place) { delete static_cast<Place*>(place); }

c10::StorageImpl& storage_of(const at::Tensor& parameter) { return *parameter.storage().unsafeGetStorageImpl(); }

}  // namespace

const at::DataPtr& address_of(const at::Tensor& parameter) {
  return storage_of(parameter)._mutable_data_ptr_no_checks();
}

namespace {

// The place of a storage that a unit has made; null for others.
const Place* place_of(const at::Tensor& parameter) {
  if (!parameter.has_storage()) return nullptr;
  const at::DataPtr& data = address_of(parameter);
  const bool is_ours = data.get_deleter() == &in_own_memory || data.get_deleter() == &in_planned_memory;
  return is_ours ? static_cast<const Place*>(data.get_context()) : nullptr;
}

}  // namespace

void move_to(const at::Tensor& parameter, at::DataPtr data) {
  storage_of(parameter).set_data_ptr_noswap(std::move(data));
}

bool was_set_by(const at::Tensor& parameter, const Unit* unit) {
  return is_in_planned_memory(parameter) && has_own_storage(parameter) && place_of(parameter)->unit == unit;
}

at::Tensor with_storage(at::DataPtr data, at::IntArrayRef shape, const at::TensorOptions& options) {
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(options.dtype().itemsize());
  const auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(data), nullptr, false);
  return at::empty({0}, options).set_(c10::Storage(storage), 0, shape, c10::contiguous_strides(shape));
}

at::Tensor movable(const at::Tensor& value, const at::Tensor& parameter) {
  auto* place = new Place{parameter.unsafeGetTensorImpl(), nullptr, value};
  return with_storage({value.data_ptr(), place, &in_own_memory, value.device()}, value.sizes(), value.options());
}

at::DataPtr planned(void* address, const at::Tensor& parameter, const Unit* by) {
  return {address, new Place{parameter.unsafeGetTensorImpl(), by, {}}, &in_planned_memory, parameter.device()};
}

bool is_in_planned_memory(const at::Tensor& parameter) {
  return parameter.has_storage() && address_of(parameter).get_deleter() == &in_planned_memory;
}

bool has_own_storage(const at::Tensor& parameter) {
  const Place* place = place_of(parameter);
  return place != nullptr && place->parameter == parameter.unsafeGetTensorImpl();
}

bool can_move(const at::Tensor& parameter) {
  return has_own_storage(parameter) && address_of(parameter).get() != nullptr && parameter.storage_offset() == 0 &&
         parameter.is_contiguous() && storage_of(parameter).nbytes() == parameter.nbytes();
}

void refuse_reads(const at::Tensor& parameter, const std::string& why, const Unit* by) {
  storage_of(parameter).set_data_ptr_noswap(planned(nullptr, parameter, by));
  storage_of(parameter).release_data_and_set_meta_custom_data_ptr_error_msg_(why);
}

}  // namespace trireme::model
