#include <set>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/formats/dcp/dcp.h"

namespace trireme::formats {
namespace {

constexpr const char* kDataName = "__0_0.distcp";

std::string tensor_pickle(const TensorSpec& tensor) {
  PickleWriter pickle;
  write_tensor(pickle, tensor, 0);
  return pickle.finish();
}

void write_size(PickleWriter& pickle, const std::vector<int64_t>& values) {
  pickle.global("torch", "Size").mark().integers(values).tuple().call();
}

/// An object without arguments; its state follows.
PickleWriter& create(PickleWriter& pickle, const char* name) {
  return pickle.global(kDcpModule, name).empty_tuple().create();
}

/// dtype, layout, requires_grad, memory format (0 is contiguous), pin_memory
void write_properties(PickleWriter& pickle, Dtype dtype) {
  create(pickle, "TensorProperties").mark().global("torch", torch_name(dtype));
  pickle.global("torch.serialization", "_get_layout").mark().text("torch.strided").tuple().call().boolean(false);
  pickle.global(kDcpModule, "_MEM_FORMAT_ENCODING").integers(std::vector<int64_t>{0}).call().boolean(false);
  pickle.tuple().build();
}

/// One chunk: the whole tensor.
void write_description(PickleWriter& pickle, const TensorSpec& tensor) {
  create(pickle, "TensorStorageMetadata").empty_dict().mark().text("properties");
  write_properties(pickle, tensor.dtype);
  write_size(pickle.text("size"), tensor.shape);
  create(pickle.text("chunks").empty_list(), "ChunkStorageMetadata").empty_dict().mark();
  write_size(pickle.text("offsets"), std::vector<int64_t>(tensor.shape.size(), 0));
  write_size(pickle.text("sizes"), tensor.shape);
  pickle.set_items().build().append().set_items().build();
}

void write_place(PickleWriter& pickle, const TensorSpec& tensor, int64_t begin, int64_t bytes) {
  create(pickle, "MetadataIndex")
      .empty_dict()
      .mark()
      .text("fqn")
      .text(tensor.name)
      .text("index")
      .integer(0)
      .text("offset");
  write_size(pickle, std::vector<int64_t>(tensor.shape.size(), 0));
  pickle.set_items().build();
  pickle.global("torch.distributed.checkpoint.filesystem", "_StorageInfo").empty_tuple().create();
  pickle.empty_dict().mark().text("relative_path").text(kDataName).text("offset").integer(begin);
  pickle.text("length").integer(bytes).set_items().build();
}

}  // namespace

DcpSink::DcpSink(const std::filesystem::path& folder, std::vector<TensorSpec> tensors)
    : folder_(folder), tensors_(std::move(tensors)) {
  std::set<std::string> names;
  int64_t end = 0;
  for (const TensorSpec& tensor : tensors_) {
    if (!names.insert(tensor.name).second)
      throw CheckpointError(folder.string() + " would hold two tensors called '" + tensor.name + "'", folder.string(),
                            tensor.name);
    begins_.push_back(end);
    archives_.emplace_back(tensor_pickle(tensor), std::span(&tensor, 1), end);
    end += archives_.back().bytes();
  }
  file_ = checkpoint::create_file(folder_ / kDataName, end);
}

void DcpSink::write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  archives_[tensor].write(file_, folder_ / kDataName, 0, tensors_[tensor], begin, end, data, dtype);
}

void DcpSink::finish() {
  for (const TorchArchiveWriter& archive : archives_) archive.finish(file_, folder_ / kDataName);
  checkpoint::flush(file_, folder_ / kDataName);

  PickleWriter pickle;
  create(pickle, "Metadata").empty_dict().mark();
  pickle.text("state_dict_metadata").empty_dict().mark();
  for (const TensorSpec& tensor : tensors_) write_description(pickle.text(tensor.name), tensor);
  pickle.set_items().text("planner_data").empty_dict().mark();
  for (const TensorSpec& tensor : tensors_) pickle.text(tensor.name).mark().text(tensor.name).tuple();
  pickle.set_items().text("storage_data").empty_dict().mark();
  for (size_t i = 0; i < tensors_.size(); ++i) write_place(pickle, tensors_[i], begins_[i], archives_[i].bytes());
  pickle.set_items().text("storage_meta").none().text("version").text("1.0.0").set_items().build();
  checkpoint::write_new_file(folder_ / kDcpMetadataName, pickle.finish());
}

}  // namespace trireme::formats
