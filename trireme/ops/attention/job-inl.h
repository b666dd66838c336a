// The rows of one attention task, and which keys its queries see.
#pragma once

#include "trireme/ops/attention/product-inl.h"

namespace trireme::ops {
namespace {

/// A whole block's width as a type, so that loops have a constant length; the last block's width is an int64_t.
template <class M>
struct WholeBlock {
  constexpr operator int64_t() const { return kKeyBlock<M>; }
};

/// Calls body(width), with WholeBlock for a whole block.
template <class M, class Body>
inline __attribute__((always_inline)) void with_width(int64_t width, const Body& body) {
  if (width == kKeyBlock<M>)
    body(WholeBlock<M>{});
  else
    body(width);
}

/// Which columns of a block of scores each of its rows sees: row r sees begin(r) .. end(r) - 1. From one row to the
/// next, neither moves left. A row may see no column of the block; then begin may be beyond the block, or end be 0.
struct Visible {
  int64_t offset;  ///< the last column that row 0 sees
  const int64_t* first = nullptr;  ///< first visible key of every row; null: every row sees the block's first column
  int64_t first_column = 0;  ///< the key of the block's first column
  const int64_t* last = nullptr;  ///< one beyond the last visible key of every row; null: row r sees up to r + offset

  /// Whether every row sees all of the `keys` columns.
  bool all(int64_t keys) const { return offset + 1 >= keys && first == nullptr; }
  int64_t begin(int64_t row) const { return first == nullptr ? 0 : larger(0, first[row] - first_column); }
  int64_t end(int64_t row) const { return last == nullptr ? row + offset + 1 : larger(0, last[row] - first_column); }
  /// Number of leading rows whose begin is not beyond `column`.
  int64_t rows_from(int64_t column, int64_t rows) const {
    return first == nullptr ? rows : rows_up_to(first, column + first_column, rows);
  }
  /// Number of leading rows that end before `column`.
  int64_t rows_before(int64_t column, int64_t rows) const {
    return last == nullptr ? larger(0, column - offset) : rows_up_to(last, column + first_column, rows);
  }

 private:
  /// Number of leading rows whose key is at most `key`.
  static int64_t rows_up_to(const int64_t* keys, int64_t key, int64_t rows) {
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] <= key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

/// The columns [first, end) that must be filled in row `r` of a partly visible block, because its register tile reads
/// them. Both rows of a pair (r even, r + 1) have the same columns.
struct Columns {
  int64_t first, end;
};
template <class M>
Columns columns_of_row(const Visible& visible, int64_t r) {
  constexpr int64_t kStep = larger(kTile, M::kLanes);
  const int64_t tile = r / kTile * kTile;
  return {visible.begin(tile) / kStep * kStep, smaller(kKeyBlock<M>, round_up(visible.end(tile + kTile - 1), kStep))};
}

/// The rows and sizes of one job.
template <class M, class Storage>
struct Job {
  static constexpr int64_t kQueries = kAttentionQueryBlock, kKeys = kKeyBlock<M>;
  const AttentionCall& call;
  const int64_t b, kv, group;  ///< batch row, kv head, query heads per kv head
  /// Empty rows before the first query, so that a register tile of queries starts at a multiple of kTile keys.
  const int64_t skip;
  const int64_t queries;  ///< with the empty rows
  const int64_t keys, d, dim, padded_keys;  ///< d: head dim; dim: d in multiples of 16; padded_keys: in whole blocks
  char* cursor;  ///< the scratch that take() has not yet handed out

  Job(const AttentionCall& call_, int64_t job, void* scratch)
      : call(call_),
        b(job / call.num_kv_heads),
        kv(job % call.num_kv_heads),
        group(call.num_heads / call.num_kv_heads),
        skip(call.first_query % kTile),
        queries(call.queries + skip),
        keys(call.keys),
        d(call.head_dim),
        dim(round_up(d, 16)),
        padded_keys(round_up(keys, kKeys)),
        cursor(static_cast<char*>(scratch)) {}

  int64_t element(AttentionStride stride, int64_t head, int64_t position) const {
    return b * stride.batch + position * stride.row + head * d;
  }
  const Storage* q(int64_t head, int64_t position) const {
    return static_cast<const Storage*>(call.q) + element(call.q_stride, head, position - skip);
  }
  const Storage* k(int64_t position) const {
    return static_cast<const Storage*>(call.k) + element(call.kv_stride, kv, position);
  }
  const Storage* v(int64_t position) const {
    return static_cast<const Storage*>(call.v) + element(call.kv_stride, kv, position);
  }
  Storage* out(int64_t head, int64_t position) const {
    return static_cast<Storage*>(call.out) + element(call.out_stride, head, position - skip);
  }
  const Storage* d_out(int64_t head, int64_t position) const {
    return static_cast<const Storage*>(call.d_out) + element(call.d_out_stride, head, position - skip);
  }
  typename M::Acc* lse(int64_t head, int64_t position) const {
    return static_cast<typename M::Acc*>(call.lse) + b * call.lse_batch + head * call.lse_head + position - skip;
  }
  /// Adds to `ahead` the rows of the block of queries after (head, q0); of(head, query) is a row's address.
  template <class Of>
  void next_queries(Ahead& ahead, int64_t head, int64_t q0, AttentionStride stride, const Of& of) const {
    const bool wraps = q0 + kQueries >= queries;
    if (wraps && head + 1 == first_head() + group) return;
    const int64_t next = wraps ? 0 : q0 + kQueries;
    ahead.add(of(wraps ? head + 1 : head, next), stride.row, queries_of_block(next));
  }
  int64_t first_head() const { return kv * group; }
  int64_t queries_of_block(int64_t q0) const { return smaller(kQueries, queries - q0); }
  int64_t keys_of_block(int64_t k0) const { return smaller(kKeys, keys - k0); }

  bool hides_early_keys() const { return call.causal && (call.window > 0 || call.starts != nullptr); }
  /// The key that is query i's own.
  int64_t position(int64_t i) const { return call.first_query - skip + i; }
  /// The first key that query i sees.
  int64_t first_key(int64_t i) const {
    const int64_t start = call.starts == nullptr ? 0 : call.starts[b * queries + i];
    return call.window > 0 ? larger(start, position(i) - call.window + 1) : start;
  }
  /// One beyond the last key that query i sees, if it sees whole documents.
  int64_t last_key(int64_t i) const {
    if (call.starts == nullptr) return keys;
    const int64_t* const starts = call.starts + b * queries;
    int64_t low = i + 1, high = queries;  // the first query of a later document
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (starts[middle] <= starts[i])
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  /// The first block of keys that the queries from q0 on see.
  int64_t first_block(int64_t q0) const { return hides_early_keys() ? first_key(q0) / kKeys * kKeys : 0; }
  /// The first block of queries that sees some of the keys from k0 on: that of the query k0 itself, or, with whole
  /// documents, that of the first query of its document.
  int64_t first_queries(int64_t k0) const {
    if (!call.causal || (call.whole_documents && call.starts == nullptr)) return 0;
    return call.whole_documents ? call.starts[b * queries + k0] / kQueries * kQueries : k0;
  }
  /// Writes the first key of `rows` queries from q0 on, and one beyond their last; rows beyond the sequence get those
  /// of the last query.
  void key_ranges(int64_t q0, int64_t rows, int64_t* first, int64_t* last) const {
    for (int64_t r = 0; r < rows && hides_early_keys(); ++r) first[r] = first_key(smaller(q0 + r, queries - 1));
    for (int64_t r = 0; r < rows && call.whole_documents; ++r) {
      const bool continues = r > 0 && (q0 + r < last[r - 1] || q0 + r >= queries);
      last[r] = continues ? last[r - 1] : last_key(q0 + r);
    }
  }
  /// One beyond the last key that a block of `rows` queries from q0 on can see.
  int64_t reach(int64_t q0, int64_t rows) const {
    if (!call.causal) return keys;
    return call.whole_documents ? last_key(smaller(q0 + rows, queries) - 1) : position(q0) + rows;
  }
  /// What is visible of the block (q0, k0), given its queries' first and last keys.
  Visible visible(int64_t q0, int64_t k0, int64_t rows, const int64_t* first, const int64_t* last) const {
    if (!call.causal) return {kKeys};
    const int64_t* const begins = hides_early_keys() && first[rows - 1] > k0 ? first : nullptr;
    if (call.whole_documents) return {last[0] - 1 - k0, begins, k0, last};
    return {position(q0) - k0, begins, k0};
  }
  /// How many columns of a block are computed. In causal calls all of them, because padding is beyond the diagonal.
  int64_t columns(int64_t k0) const {
    return call.causal ? kKeys : smaller(kKeys, round_up(keys - k0, larger(kTile, M::kLanes)));
  }
  template <class T>
  T* take(int64_t count) {
    char* p = cursor;
    cursor += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(p);
  }
};

/// Whether item `i` of a list belongs to `task`. Items are dealt to the parts in alternating directions, because their
/// costs rise or fall steadily.
inline bool is_mine(int64_t i, const AttentionTask& task) {
  const int64_t round = i / task.parts, place = i % task.parts;
  return (round % 2 == 0 ? place : task.parts - 1 - place) == task.part;
}

}  // namespace
}  // namespace trireme::ops
