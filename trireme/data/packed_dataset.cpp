#include "trireme/data/packed_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "trireme/base/error.h"

namespace trireme::data {

PackedDataset::PackedDataset(TokenRange tokens, PackingOptions options)
    : tokens_(std::move(tokens)), options_(options) {
  const std::vector<Piece> pieces = cut();
  if (pieces.empty() && (options_.long_documents != LongDocuments::dropped || num_long_ == 0))
    throw UsageError(fmt::format("{} has no document of two tokens or more with something to learn", tokens_.name()));
  // Row of each piece; rows are numbered as they are opened.
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (options_.share_rows)
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pieces[a].count > pieces[b].count; });
  std::vector<std::vector<size_t>> rows, rows_with_room(static_cast<size_t>(options_.sequence) + 1);
  std::set<size_t> rooms;  // that some row has
  for (const size_t piece : order) {
    const auto count = static_cast<size_t>(pieces[piece].count);
    size_t row = rows.size(), room = static_cast<size_t>(options_.sequence);
    if (const auto best = rooms.lower_bound(count); options_.share_rows && best != rooms.end()) {
      room = *best;
      row = rows_with_room[room].back();
      rows_with_room[room].pop_back();
      if (rows_with_room[room].empty()) rooms.erase(best);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(piece);
    if (room == count) continue;
    rows_with_room[room - count].push_back(row);
    rooms.insert(room - count);
  }
  for (const auto& row : rows) {
    first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
    for (const size_t piece : row) {
      pieces_.push_back(pieces[piece]);
      num_places_ += pieces[piece].count;
    }
  }
  first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
}

std::vector<PackedDataset::Piece> PackedDataset::cut() {
  std::vector<Piece> pieces;
  if (tokens_.size() == 0) return pieces;
  for (int64_t d = tokens_.document_of(0), begin = 0; begin < tokens_.size(); ++d) {
    const int64_t end = tokens_.document_begin(d + 1);
    const bool is_long = end - begin > options_.sequence + 1;
    num_long_ += is_long ? 1 : 0;
    int64_t last = end;  // of the tokens that stay
    if (is_long && options_.long_documents == LongDocuments::cut) last = begin + options_.sequence + 1;
    if (is_long && options_.long_documents == LongDocuments::dropped) last = begin;
    for (int64_t first = begin; first + 1 < last; first += options_.sequence) {
      const Piece piece{first, std::min(options_.sequence, last - 1 - first)};
      if (!tokens_.has_mask() || count_targets(tokens_, first, piece.count, /*apart=*/false) > 0)
        pieces.push_back(piece);
    }
    begin = end;
  }
  return pieces;
}

std::span<const PackedDataset::Piece> PackedDataset::pieces_of(int64_t row) const {
  const auto first = static_cast<size_t>(first_piece_[static_cast<size_t>(row)]),
             end = static_cast<size_t>(first_piece_[static_cast<size_t>(row) + 1]);
  return std::span(pieces_).subspan(first, end - first);
}

void PackedDataset::sample(int64_t /*epoch*/, int64_t index, SampleView out) const {
  size_t at = 0;
  for (const Piece& piece : pieces_of(index)) {
    const auto count = static_cast<size_t>(piece.count);
    const std::span<int64_t> targets = out.targets.subspan(at, count);
    tokens_.copy(piece.first, out.inputs.subspan(at, count));
    tokens_.copy(piece.first + 1, targets);
    mask_targets(tokens_, piece.first, targets, /*apart=*/false);
    std::ranges::fill(out.document_starts.subspan(at, count), static_cast<int64_t>(at));
    at += count;
  }
  pad(out, at);
}

int64_t PackedDataset::supervised_tokens(int64_t /*epoch*/, int64_t index) const {
  int64_t learned = 0;
  for (const Piece& piece : pieces_of(index)) learned += count_targets(tokens_, piece.first, piece.count, false);
  return learned;
}

std::vector<SampleOrigin> PackedDataset::describe(int64_t /*epoch*/, int64_t index) const {
  std::vector<SampleOrigin> origins;
  for (const Piece& piece : pieces_of(index)) {
    const int64_t document = tokens_.document_of(piece.first);
    origins.push_back({.source = tokens_.name(),
                       .first_document = document,
                       .last_document = document,
                       .first_token = tokens_.token_in_set(piece.first),
                       .num_tokens = piece.count});
  }
  return origins;
}

}  // namespace trireme::data
