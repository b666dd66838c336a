#include "trireme/comm/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/fold.h"

namespace trireme::comm {
namespace {
constexpr std::string_view kOperationNames[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                                "reduce",     "gather",         "scatter",    "all_to_all",
                                                "send",       "receive",        "barrier",    "allocate_shared"};

// The checks of one call; every message opens with the operation and the group.
class Checker {
 public:
  Checker(const Collective& call, const Communicator& communicator, at::DeviceType device)
      : call_(call), comm_(communicator), device_(device) {}

  void run() const {
    switch (call_.operation) {
      case Operation::reduce_scatter:
        return reduce_scatter();
      case Operation::broadcast:
        return root(), tensor(call_.input, "tensor");
      case Operation::all_reduce:
      case Operation::reduce:
        return reduce();
      case Operation::all_gather:
      case Operation::gather:
        return gather();
      case Operation::scatter:
        return scatter();
      case Operation::all_to_all:
        return all_to_all();
      case Operation::send:
      case Operation::receive:
        return message();
      case Operation::barrier:
      case Operation::allocate_shared:
        return;
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& text) const {
    throw ShapeError(fmt::format("[comm] {} of group '{}' on rank {}: {}", to_string(call_.operation), comm_.name(),
                                 comm_.rank(), text));
  }

  void tensor(const at::Tensor& t, std::string_view what) const {
    if (!t.defined()) refuse(fmt::format("{} is undefined; pass a tensor", what));
    if (t.device().type() != device_)
      refuse(fmt::format("{} lies on {}, but backend {} takes tensors on {}", what, t.device().str(), comm_.backend(),
                         c10::DeviceTypeName(device_, true)));
    if (!t.is_contiguous()) refuse(fmt::format("{} is not contiguous; pass a flat contiguous tensor", what));
  }

  void elements(const at::Tensor& t, std::string_view what, int64_t expected, std::string_view rule) const {
    tensor(t, what);
    if (t.numel() != expected)
      refuse(fmt::format("{} holds {} elements, but {} is {}", what, t.numel(), rule, expected));
  }

  void counts(const std::vector<int64_t>& c, std::string_view what) const {
    if (std::ssize(c) != comm_.size())
      refuse(fmt::format("{} has {} entries for {} ranks; pass one per rank", what, c.size(), comm_.size()));
    for (int64_t n : c)
      if (n < 0) refuse(fmt::format("{} {} holds a negative number", what, c));
  }

  void same_dtype() const {
    if (call_.input.scalar_type() != call_.output.scalar_type())
      refuse(fmt::format("input is {} and output is {}; they must be equal", dtype_name(call_.input.scalar_type()),
                         dtype_name(call_.output.scalar_type())));
  }

  void fold_dtypes() const {
    const auto in = call_.input.scalar_type(), out = call_.output.scalar_type();
    if (!can_fold(in, out))
      refuse(fmt::format("cannot fold {} into {}; use equal dtypes, or bfloat16 or float16 into float32",
                         dtype_name(in), dtype_name(out)));
  }

  void options() const {
    if (call_.options.accumulate && call_.options.op == ReduceOp::max)
      refuse("accumulate is defined for sums only; pass ReduceOp::sum");
  }

  void root() const {
    if (call_.root < 0 || call_.root >= comm_.size())
      refuse(fmt::format("root {} is not a rank of the group (0 to {})", call_.root, comm_.size() - 1));
  }

  // Any overlap that the contract does not allow would read data that is already overwritten.
  void overlap(const at::Tensor& output, const at::Tensor& input, int64_t allowed_output_begin,
               int64_t allowed_input_begin) const {
    if (!output.defined() || !input.defined() || output.numel() == 0 || input.numel() == 0) return;
    const auto* out = static_cast<const std::byte*>(output.const_data_ptr());
    const auto* in = static_cast<const std::byte*>(input.const_data_ptr());
    if (out >= in + input.nbytes() || in >= out + output.nbytes()) return;
    const bool allowed =
        allowed_output_begin >= 0 && output.scalar_type() == input.scalar_type() &&
        out + allowed_output_begin * output.element_size() == in + allowed_input_begin * input.element_size();
    if (!allowed) refuse("output and input overlap; pass separate tensors, or the very slice that the header allows");
  }

  static int64_t sum(const std::vector<int64_t>& c) { return std::accumulate(c.begin(), c.end(), int64_t{0}); }
  int64_t before_me() const {
    return std::accumulate(call_.counts.begin(), call_.counts.begin() + comm_.rank(), int64_t{0});
  }

  void reduce_scatter() const {
    options();
    counts(call_.counts, "counts");
    elements(call_.input, "input", sum(call_.counts), "the sum of counts");
    elements(call_.output, "output", call_.counts[comm_.rank()], "counts[rank]");
    fold_dtypes();
    overlap(call_.output, call_.input, 0, before_me());
  }
  void reduce() const {
    const bool has_root = call_.operation == Operation::reduce;
    options();
    if (has_root) root();
    tensor(call_.input, "input");
    if (has_root && !can_fold(call_.input.scalar_type(), call_.input.scalar_type()))
      refuse(fmt::format("cannot fold {}", dtype_name(call_.input.scalar_type())));
    if (has_root && comm_.rank() != call_.root) return;
    elements(call_.output, "output", call_.input.numel(), "the size of input");
    fold_dtypes();
    overlap(call_.output, call_.input, 0, 0);
  }
  void gather() const {
    const bool has_root = call_.operation == Operation::gather;
    if (has_root) root();
    counts(call_.counts, "counts");
    elements(call_.input, "input", call_.counts[comm_.rank()], "counts[rank]");
    if (has_root && comm_.rank() != call_.root) return;
    elements(call_.output, "output", sum(call_.counts), "the sum of counts");
    same_dtype();
    overlap(call_.output, call_.input, before_me(), 0);
  }
  void scatter() const {
    root();
    counts(call_.counts, "counts");
    elements(call_.output, "output", call_.counts[comm_.rank()], "counts[rank]");
    if (comm_.rank() != call_.root) return;
    elements(call_.input, "input", sum(call_.counts), "the sum of counts");
    same_dtype();
    overlap(call_.output, call_.input, 0, before_me());
  }
  void all_to_all() const {
    counts(call_.counts, "output_counts");
    counts(call_.input_counts, "input_counts");
    elements(call_.output, "output", sum(call_.counts), "the sum of output_counts");
    elements(call_.input, "input", sum(call_.input_counts), "the sum of input_counts");
    same_dtype();
    const int64_t to_me = call_.input_counts[comm_.rank()], from_me = call_.counts[comm_.rank()];
    if (to_me != from_me)
      refuse(fmt::format("input_counts[rank] is {} and output_counts[rank] is {}; they are the same slice", to_me,
                         from_me));
    overlap(call_.output, call_.input, -1, -1);
  }
  void message() const {
    tensor(call_.operation == Operation::send ? call_.input : call_.output, "tensor");
    if (call_.root < 0 || call_.root >= comm_.size() || call_.root == comm_.rank())
      refuse(fmt::format("peer {} is not another rank of the group (0 to {})", call_.root, comm_.size() - 1));
  }

  const Collective& call_;
  const Communicator& comm_;
  at::DeviceType device_;
};
}  // namespace

std::string_view to_string(Operation operation) { return kOperationNames[static_cast<int>(operation)]; }

std::string_view dtype_name(at::ScalarType dtype) {
  static constexpr std::pair<at::ScalarType, std::string_view> kNames[] = {{at::kFloat, "float32"},
                                                                           {at::kDouble, "float64"},
                                                                           {at::kBFloat16, "bfloat16"},
                                                                           {at::kHalf, "float16"},
                                                                           {at::kLong, "int64"},
                                                                           {at::kInt, "int32"},
                                                                           {at::kShort, "int16"},
                                                                           {at::kChar, "int8"},
                                                                           {at::kByte, "uint8"},
                                                                           {at::kBool, "bool"},
                                                                           {at::ScalarType::Undefined, "none"}};
  for (const auto& [known, name] : kNames)
    if (known == dtype) return name;
  return c10::toString(dtype);
}

void check_call(const Collective& call, const Communicator& communicator, at::DeviceType device) {
  Checker(call, communicator, device).run();
}

}  // namespace trireme::comm
