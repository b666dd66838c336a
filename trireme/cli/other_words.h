// What people type who come from LitGPT, torchrun or Hugging Face, and what it is called here.
#pragma once

#include <string>
#include <string_view>

namespace trireme::cli {

/// A sentence for a subcommand that does not exist: "trireme pretrain trains"; empty where the word is nobody's.
std::string way_out_for(std::string_view subcommand);

}  // namespace trireme::cli
