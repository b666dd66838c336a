#include "trireme/data/ledger.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme::data {

std::string ledger_json(const SampleStream& samples, int64_t global_index) {
  const Draw draw = samples.draw(global_index);
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const SampleOrigin& o : samples.describe(global_index))
    parts.push_back({{"source", o.source},
                     {"documents", {o.first_document, o.last_document}},
                     {"first_token", o.first_token},
                     {"tokens", o.num_tokens}});
  return base::json_text(nlohmann::ordered_json{
      {"sample", global_index}, {"epoch", draw.epoch}, {"index", draw.index}, {"parts", std::move(parts)}});
}

std::string ledger_text(const SampleStream& samples, int64_t global_index) {
  std::string text, head = fmt::format("{:>10}  epoch {}", global_index, samples.draw(global_index).epoch);
  for (const SampleOrigin& o : samples.describe(global_index)) {
    const std::string documents = o.first_document == o.last_document
                                      ? fmt::format("document {}", base::human_count(o.first_document))
                                      : fmt::format("documents {} to {}", base::human_count(o.first_document),
                                                    base::human_count(o.last_document));
    text += fmt::format("{}  {}  {}  tokens {} to {}\n", head, o.source, documents, base::human_count(o.first_token),
                        base::human_count(o.first_token + o.num_tokens - 1));
    head.assign(head.size(), ' ');
  }
  return text;
}

}  // namespace trireme::data
