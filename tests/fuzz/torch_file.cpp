#include <algorithm>
#include <vector>

#include "targets.h"
#include "trireme/formats/torch/file.h"

namespace trireme::fuzz {

/// A .pth file: zip directory, pickle and tensors, of which the first and last values are read.
void fuzz_torch_file(std::string_view bytes) {
  using namespace checkpoint;
  using namespace formats;
  ReadBudget budget(static_cast<int64_t>(bytes.size()), "x.pth");
  const TorchArchive archive(std::as_bytes(std::span(bytes)), budget);
  for (const FlatTensor& tensor : flatten_tensors(archive, budget)) {
    const int64_t elements = num_elements(tensor.view.shape), some = std::min<int64_t>(elements, 100);
    std::vector<char> values(static_cast<size_t>(some * size_of(tensor.view.dtype)));
    read_strided(tensor.view, 0, some, values.data(), tensor.view.dtype);
    read_strided(tensor.view, elements - some, elements, values.data(), tensor.view.dtype);
  }
}

}  // namespace trireme::fuzz
