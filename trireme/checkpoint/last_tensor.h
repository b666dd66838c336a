// Quantized tensors that are made when they are asked for. The last one is kept, because readers take it in pieces.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "trireme/checkpoint/quantized_tensors.h"

namespace trireme::checkpoint {

class LastTensor : public QuantizedTensors {
 public:
  std::shared_ptr<const ops::Quantized> whole(const std::string& tensor) const override {
    const std::lock_guard lock(mutex_);
    if (last_ == nullptr || tensor != name_) {
      last_ = nullptr;  // before the next one, so that only one stands in memory
      last_ = std::make_shared<const ops::Quantized>(make(tensor));
      name_ = tensor;
    }
    return last_;
  }

 private:
  virtual ops::Quantized make(const std::string& tensor) const = 0;
  mutable std::mutex mutex_;
  mutable std::string name_;
  mutable std::shared_ptr<const ops::Quantized> last_;
};

}  // namespace trireme::checkpoint
