#include "trireme/checkpoint/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

struct Range {
  int64_t tensor;
  int64_t begin;
  int64_t end;
  int rank;
};

[[noreturn]] void refuse_tensor(const std::string& tensor, const std::string& problem) {
  throw CheckpointError(fmt::format("cannot save tensor '{}': {}", tensor, problem), "", tensor);
}

}  // namespace

void check_piece(const Piece& piece, const std::map<std::string, TensorPlace>& tensors) {
  const auto found = tensors.find(piece.tensor);
  if (found == tensors.end())
    refuse_tensor(piece.tensor, "a piece of it is given, but the checkpoint is to hold no such tensor");
  const TensorPlace& place = found->second;
  if (piece.begin < 0 || piece.begin > piece.end || piece.end > place.elements) {
    refuse_tensor(piece.tensor, fmt::format("a piece has elements {} to {}, but its shape is {}", piece.begin,
                                            piece.end, shape_text(place.spec.shape)));
  }
  if (!convertible(piece.dtype, place.spec.dtype)) {
    refuse_tensor(piece.tensor,
                  fmt::format("{} in memory does not convert to {} in the file: only F64, F32, F16 and BF16 "
                              "convert into each other",
                              dtype_name(piece.dtype), dtype_name(place.spec.dtype)));
  }
}

std::vector<int64_t> pack_pieces(std::span<const Piece> pieces, const std::map<std::string, TensorPlace>& tensors) {
  std::map<std::string_view, int64_t> positions;
  for (const auto& [name, place] : tensors) positions.emplace(name, static_cast<int64_t>(positions.size()));
  std::vector<int64_t> packed;
  for (const Piece& piece : pieces) {
    if (piece.begin == piece.end) continue;
    packed.insert(packed.end(), {positions.at(piece.tensor), piece.begin, piece.end});
  }
  return packed;
}

void check_exactly_once(const std::map<std::string, TensorPlace>& tensors, std::span<const int64_t> packed,
                        std::span<const int64_t> counts) {
  std::vector<Range> ranges;
  for (size_t rank = 0, at = 0; rank < counts.size(); ++rank) {
    for (const size_t end = at + static_cast<size_t>(counts[rank]); at < end; at += 3) {
      ranges.push_back({packed[at], packed[at + 1], packed[at + 2], static_cast<int>(rank)});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tuple(a.tensor, a.begin, a.rank) < std::tuple(b.tensor, b.begin, b.rank);
  });
  auto range = ranges.begin();
  int64_t number = 0;
  for (const auto& [name, place] : tensors) {
    int64_t covered = 0;
    int last_rank = 0;
    for (; range != ranges.end() && range->tensor == number; ++range) {
      if (range->begin > covered) break;
      if (range->begin < covered) {
        refuse_tensor(name,
                      fmt::format("elements {} to {} are given by rank {} and by rank {}; each element must come from "
                                  "exactly one",
                                  range->begin, std::min(covered, range->end), last_rank, range->rank));
      }
      covered = range->end;
      last_rank = range->rank;
    }
    if (covered < place.elements) {
      const bool more = range != ranges.end() && range->tensor == number;
      refuse_tensor(name,
                    fmt::format("no rank gives elements {} to {}", covered, more ? range->begin : place.elements));
    }
    ++number;
  }
}

}  // namespace trireme::checkpoint
