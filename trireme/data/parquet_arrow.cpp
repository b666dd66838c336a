// The only file that includes Arrow's headers. Texts are read in batches of a few rows through buffered pages, so that
// memory does not grow with the row group.
#include "trireme/data/parquet.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <vector>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

constexpr int64_t kRowsPerBatch = 256;
constexpr int64_t kPageBufferBytes = int64_t{1} << 20;

class ArrowColumn final : public ParquetColumn {
 public:
  ArrowColumn(std::string path, std::string column) : path_(std::move(path)), name_(std::move(column)) {
    auto file = value(arrow::io::ReadableFile::Open(path_));
    parquet::ReaderProperties pages;
    pages.enable_buffered_stream();
    pages.set_buffer_size(kPageBufferBytes);
    parquet::ArrowReaderProperties batches;
    batches.set_batch_size(kRowsPerBatch);
    batches.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file, pages));
    builder.properties(batches);
    reader_ = value(builder.Build());
    metadata_ = reader_->parquet_reader()->metadata();
    find_column();
  }

  int64_t num_row_groups() const override { return metadata_->num_row_groups(); }
  int64_t num_rows(int64_t row_group) const override {
    return metadata_->RowGroup(static_cast<int>(row_group))->num_rows();
  }

  void read(int64_t row_group, const Take& take) const override {
    const auto batches = value(reader_->GetRecordBatchReader({static_cast<int>(row_group)}, {leaf_}));
    std::shared_ptr<arrow::RecordBatch> batch;
    while (true) {
      check(batches->ReadNext(&batch));
      if (!batch) return;
      take_all(*batch->column(0), take);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& rule) const { throw UsageError(fmt::format("{}: {}", path_, rule)); }
  void check(const arrow::Status& status) const {
    if (!status.ok()) refuse(fmt::format("cannot be read as Parquet: {}", status.message()));
  }
  template <typename T>
  T value(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  void find_column() {
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema));
    std::string names;
    for (const auto& field : schema->fields()) names += (names.empty() ? "" : ", ") + field->name();
    const int index = schema->GetFieldIndex(name_);
    if (index < 0)
      refuse(fmt::format(
          "has no column {:?} (or two of that name), there is {}; name the one with the text with --data.text_field",
          name_, names));
    if (!is_text(*value_type(*schema->field(index)->type())))
      refuse(fmt::format("its column {:?} holds {} and no text", name_, schema->field(index)->type()->ToString()));
    leaf_ = metadata_->schema()->ColumnIndex(name_);
  }

  static const arrow::DataType* value_type(const arrow::DataType& type) {
    return type.id() == arrow::Type::DICTIONARY ? static_cast<const arrow::DictionaryType&>(type).value_type().get()
                                                : &type;
  }
  static bool is_text(const arrow::DataType& type) {
    return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING ||
           type.id() == arrow::Type::BINARY;
  }

  void take_all(const arrow::Array& array, const Take& take) const {
    const auto each = [&](const auto& texts) {
      for (int64_t i = 0; i < texts.length(); ++i) texts.IsValid(i) ? take(texts.GetView(i)) : take(std::nullopt);
    };
    if (array.type_id() == arrow::Type::DICTIONARY)
      take_words(static_cast<const arrow::DictionaryArray&>(array), take);
    else if (array.type_id() == arrow::Type::LARGE_STRING)
      each(static_cast<const arrow::LargeStringArray&>(array));
    else if (array.type_id() == arrow::Type::STRING || array.type_id() == arrow::Type::BINARY)
      each(static_cast<const arrow::BinaryArray&>(array));
    else
      refuse(fmt::format("its column {:?} is stored as {}", name_, array.type()->ToString()));
  }

  // Rows that refer to a table of texts.
  void take_words(const arrow::DictionaryArray& array, const Take& take) const {
    std::vector<std::string_view> words(static_cast<size_t>(array.dictionary()->length()));
    const auto fill = [&](const auto& texts) {
      for (int64_t i = 0; i < texts.length(); ++i) words[static_cast<size_t>(i)] = texts.GetView(i);
    };
    if (array.dictionary()->type_id() == arrow::Type::LARGE_STRING)
      fill(static_cast<const arrow::LargeStringArray&>(*array.dictionary()));
    else
      fill(static_cast<const arrow::BinaryArray&>(*array.dictionary()));
    for (int64_t i = 0; i < array.length(); ++i) {
      if (!array.IsValid(i)) {
        take(std::nullopt);
        continue;
      }
      const auto word = static_cast<size_t>(array.GetValueIndex(i));
      if (word >= words.size()) refuse("is damaged: a row refers to a text that is not there");
      take(words[word]);
    }
  }

  std::string path_, name_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  int leaf_ = 0;
};

std::unique_ptr<ParquetColumn> open(const std::filesystem::path& path, const std::string& column) {
  try {
    return std::make_unique<ArrowColumn>(path.string(), column);
  } catch (const trireme::Error&) {
    throw;
  } catch (const std::exception& error) {  // parquet::ParquetException
    throw UsageError(fmt::format("{}: cannot be read as Parquet: {}", path.string(), error.what()));
  }
}

}  // namespace
}  // namespace trireme::data

extern "C" __attribute__((visibility("default"))) std::unique_ptr<trireme::data::ParquetColumn> trireme_open_parquet(
    const std::filesystem::path& path, const std::string& column) {
  return trireme::data::open(path, column);
}
