// Small token sets for tests of what is cut from them.
#pragma once

#include <memory>
#include <vector>

#include "temporary_folder.h"
#include "trireme/data/dataset.h"
#include "trireme/data/token_range.h"

namespace trireme::data {

struct TestDocument {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask = {};
};

/// Writes the documents to a set in `folder` and opens it.
inline std::shared_ptr<const TokenSet> make_set(const std::filesystem::path& folder,
                                                const std::vector<TestDocument>& documents, bool with_mask = false,
                                                const std::string& name = "set") {
  TokenSetWriter writer(folder / name, 1'000'000, with_mask);
  for (const TestDocument& d : documents) writer.append_document(d.ids, d.mask);
  writer.commit({});
  return std::make_shared<const TokenSet>(TokenSet::open(folder / name));
}

/// Documents of these lengths; token i of the set is i.
inline std::vector<TestDocument> counting_documents(const std::vector<int64_t>& lengths) {
  std::vector<TestDocument> documents;
  int32_t next = 0;
  for (const int64_t length : lengths) {
    TestDocument d;
    for (int64_t i = 0; i < length; ++i) d.ids.push_back(next++);
    documents.push_back(std::move(d));
  }
  return documents;
}

inline TokenRange whole(const std::shared_ptr<const TokenSet>& set) { return {set, 0, set->num_tokens(), "set"}; }

/// `count` tokens that tell their own position, as one document.
inline TokenRange counting_tokens(const std::filesystem::path& folder, int64_t count) {
  return whole(make_set(folder, counting_documents({count}), false, "counting" + std::to_string(count)));
}

struct TestRow {
  explicit TestRow(int64_t sequence) : inputs(static_cast<size_t>(sequence)), targets(inputs), starts(inputs) {}
  TestRow(const Dataset& dataset, int64_t index, int64_t epoch = 0) : TestRow(dataset.sequence()) {
    dataset.sample(epoch, index, view());
  }
  SampleView view() { return {inputs, targets, starts}; }
  std::vector<int64_t> inputs, targets, starts;
};

}  // namespace trireme::data
