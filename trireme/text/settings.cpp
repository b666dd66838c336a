#include "trireme/text/settings.h"

#include "trireme/text/chat_template.h"

namespace trireme::text {

std::span<const config::Choice<Learn>> choices_of(Learn) {
  static const std::vector<config::Choice<Learn>> kTable = {{Learn::replies, "replies"},
                                                            {Learn::last_reply, "last_reply"},
                                                            {Learn::messages, "messages"},
                                                            {Learn::all, "all"}};
  return kTable;
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const ChatFamily& family : chat_families()) names.emplace_back(family.name);
  return names;
}

}  // namespace trireme::text
