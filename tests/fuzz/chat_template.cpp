#include <string>

#include "targets.h"
#include "trireme/data/chat_template.h"

namespace trireme::fuzz {

/// A tokenizer_config.json: the family of the chat template in it is one that there is.
void fuzz_chat_template(std::string_view bytes) {
  using namespace trireme::data;
  for (const std::string& jinja : {chat_template_in(bytes), std::string(bytes)})
    if (const auto family = chat_family_of_template(jinja))
      require(*family == find_chat_family(*family).name, "a family that is found has a name");
}

}  // namespace trireme::fuzz
