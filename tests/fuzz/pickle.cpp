#include "trireme/formats/torch/pickle.h"
#include "targets.h"

namespace trireme::fuzz {

/// A bare pickle, every value of which is then looked at.
void fuzz_pickle(std::string_view bytes) {
  checkpoint::ReadBudget budget(static_cast<int64_t>(bytes.size()), "data.pkl");
  const formats::Pickle pickle(std::string(bytes), budget);
  for (formats::PickleId id = 0; id < pickle.size(); ++id) {
    for (const formats::PickleId item : pickle.items(id)) require(item < pickle.size(), "items are values");
    require(pickle.find(id, "model") < pickle.size(), "a found value is one");
    require(pickle.state_of(id) < pickle.size(), "a state is a value");
    (void)pickle.integers(id);
  }
}

}  // namespace trireme::fuzz
