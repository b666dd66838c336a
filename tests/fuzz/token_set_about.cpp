#include "targets.h"
#include "trireme/data/token_set.h"
#include "trireme/data/tokenize_note.h"

namespace trireme::fuzz {

/// The sidecar of a tokenized set: what is read can be written and read again. The note of an unfinished one likewise.
void fuzz_token_set_about(std::string_view bytes) {
  if (bytes.find("\"job\"") != std::string_view::npos) {
    const data::TokenizeNote note = data::parse_tokenize_note(bytes, "x.part");
    require(data::to_json(data::parse_tokenize_note(data::to_json(note), "x.part")) == data::to_json(note),
            "a note that was read can be written");
    return;
  }
  const data::TokenSetAbout about = data::parse_token_set_about(bytes, "x.json");
  const std::string written = data::to_json(about);
  require(data::to_json(data::parse_token_set_about(written, "x.json")) == written,
          "a sidecar that was read can be written");
}

}  // namespace trireme::fuzz
