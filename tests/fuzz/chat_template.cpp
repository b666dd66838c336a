#include <string>

#include "targets.h"
#include "trireme/text/chat_template.h"

namespace trireme::fuzz {

/// A tokenizer_config.json: the family of the chat template in it is one that there is.
void fuzz_chat_template(std::string_view bytes) {
  for (const std::string& jinja : {text::chat_template_in(bytes), std::string(bytes)})
    if (const auto family = text::chat_family_of_template(jinja))
      require(*family == text::find_chat_family(*family).name, "a family that is found has a name");
}

}  // namespace trireme::fuzz
