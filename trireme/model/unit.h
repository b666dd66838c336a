// Unit: the smallest piece of a model that is scheduled - the embedding, one decoder block, the head with its
// loss. A unit says as data what it needs (parameters, values for a batch shape) and computes over views of
// memory that somebody else planned: it never allocates, and nothing outlives a call except through its values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::model {

/// The two dtypes of a run: what products run in, and what masters, moments and statistics are kept in.
struct Precision {
  at::ScalarType compute = at::kFloat;
  at::ScalarType state = at::kFloat;
  bool operator==(const Precision&) const = default;
};

struct Initializer {
  enum class Kind { normal, ones, zeros } kind = Kind::normal;
  double stddev = 0.02;
};

struct ParameterSpec {
  std::string name;             ///< Hugging Face's
  std::vector<int64_t> shape;   ///< and orientation
  Initializer init;
  bool decay = true;            ///< weight decay applies (matrices; not norms and biases)
  bool joined = false;          ///< lies without a gap behind the one before: both are one matrix to a product
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
};

struct BatchShape {
  int64_t micro_batch = 1;
  int64_t sequence = 1;
  int64_t tokens() const { return micro_batch * sequence; }
  bool operator==(const BatchShape&) const = default;
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  int64_t bytes() const;
};

/// What a unit keeps and needs for one micro-batch.
struct UnitValues {
  TensorSpec output;                        ///< boundary to the next unit; empty shape when there is none
  std::vector<TensorSpec> saved;            ///< written by forward, read (and may be overwritten) by backward
  std::vector<TensorSpec> forward_work;     ///< scratch of forward and recompute
  std::vector<TensorSpec> backward_work;    ///< scratch of backward
};

/// Views handed to a unit, in the order in which it declared them.
struct UnitTensors {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  at::Tensor input;        ///< the boundary before; undefined for the first unit
  at::Tensor output;
  at::Tensor d_boundary;   ///< holds d_output when backward starts and d_input when it ends, same bytes
  std::vector<at::Tensor> saved;
  std::vector<at::Tensor> work;
  at::Tensor tokens;       ///< [T] int64
  at::Tensor targets;      ///< [T] int64, -100 where not supervised
  at::Tensor loss_sum;     ///< [1] float64, the last unit's
  double loss_scale = 1;   ///< gradient of loss_sum: 1 / supervised tokens of the global batch
  BatchShape shape;
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  virtual UnitValues values(const BatchShape& shape, const Precision& precision) const = 0;

  /// Computes `output` and `saved` (last unit: loss_sum).
  virtual void forward(UnitTensors& t) const = 0;
  /// Computes `saved` again from `input`; `output` is not written.
  virtual void recompute(UnitTensors& t) const { forward(t); }
  /// Writes `gradients` and turns d_boundary from d_output into d_input.
  virtual void backward(UnitTensors& t) const = 0;

  virtual bool reads_parameters_in_backward() const { return true; }
  /// True for the head: backward computes the loss too, so that training lays down no forward for it.
  virtual bool backward_includes_forward() const { return false; }
  /// Multiply-add pairs x 2 of one forward; the costs of backward are twice that.
  virtual double forward_flops(const BatchShape& shape) const = 0;
};

}  // namespace trireme::model
