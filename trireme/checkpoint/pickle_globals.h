// The fixed list of names that a pickle may use.
#pragma once

#include "trireme/checkpoint/pickle.h"

namespace trireme::checkpoint {

/// The known global, or nullptr when a checkpoint has no business with it.
const PickleGlobal* find_pickle_global(std::string_view module, std::string_view name);

}  // namespace trireme::checkpoint
