#include "trireme/engine/copy_state.h"

#include <algorithm>

#include "trireme/ops/parallel.h"

namespace trireme::engine {

void copy_on_all_threads(char* to, const void* from, int64_t bytes, CopyPiece piece) {
  constexpr int64_t kPiece = 1 << 20, kLeastPieces = 4;  // a thread's while
  ops::parallel_rows((bytes + kPiece - 1) / kPiece, kLeastPieces, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kPiece;
    piece(to + at, static_cast<const char*>(from) + at, std::min(end * kPiece, bytes) - at);
  });
}

}  // namespace trireme::engine
