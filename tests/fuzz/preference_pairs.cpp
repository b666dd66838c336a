#include "trireme/data/preference_pairs.h"
#include "targets.h"
#include "trireme/data/conversation.h"

namespace trireme::fuzz {

/// A file of pairs of replies, JSONL or a list.
void fuzz_preference_pairs(std::string_view bytes) {
  data::RecordReader records(bytes, "pairs.jsonl");
  while (const auto record = records.next()) {
    const data::PreferencePair pair = data::parse_preference_pair(record->text, records.place(*record));
    if (pair.same()) continue;
    require(!pair.is_conversation || !(pair.chosen.empty() && pair.rejected.empty()),
            "replies that differ say something");
    require(pair.is_conversation || pair.chosen_text != pair.rejected_text, "replies that differ stay different");
  }
}

}  // namespace trireme::fuzz
