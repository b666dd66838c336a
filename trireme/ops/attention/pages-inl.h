// The pages of the cache: kAttentionPage keys or values of one kv head, in blocks of kKeyBlock<M> as products read
// them.
//
//   keys     the block's transpose, [d / kPair units][keys]: the right operand of Q K^T
//   values   [keys / kPair units][d]: the right operand of P V
//
// A unit is a pair of neighbouring elements of a key, and of an element of neighbouring values, where the kernel
// multiplies pairs. The last element of a key of odd d has no partner. Elements keep their type: where it is not that
// of units, they are widened as they are read.
#pragma once

#include "trireme/ops/attention/pack-inl.h"

namespace trireme::ops {
namespace {

template <class M, class Storage>
struct PageOrder {
  static constexpr int64_t kKeys = kKeyBlock<M>;
  static_assert(kAttentionPage % kKeys == 0);
  /// Blocks of whole vectors hold the units that products read.
  static constexpr bool kHoldsUnits = M::kPair == 2 || __is_same(Storage, typename M::Unit);

  /// The first element of the block of `key`, from the first of its page and head on.
  static int64_t block(int64_t key, int64_t d) { return key / kKeys * kKeys * d; }
  /// The places of element j of a key and of a value in their block.
  static int64_t key_element(int64_t key, int64_t j, int64_t d) {
    const bool alone = j == d - 1 && d % M::kPair != 0;
    return alone ? j * kKeys + key : (j / M::kPair * kKeys + key) * M::kPair + j % M::kPair;
  }
  static int64_t value_element(int64_t key, int64_t j, int64_t d) {
    return (key / M::kPair * d + j) * M::kPair + key % M::kPair;
  }

  /// Widens a block of keys to units [dim / kPair][keys], with zeros from d on. `later`: what is fetched beside.
  static void unpack_keys(typename M::Unit* to, const Storage* block, int64_t d, int64_t dim, const Storage* later) {
    const int64_t whole = d / M::kPair;
    for (int64_t u = 0; u < dim / M::kPair; ++u, to += kKeys) {
      if (u < whole) {
        fetch(later, u * kKeys * M::kPair, kKeys * M::kPair);
        unpack_units(to, block + u * kKeys * M::kPair, kKeys);
      } else {
        for (int64_t key = 0; key < kKeys; ++key)
          to[key] = u == whole && d % M::kPair != 0 ? unit_of(block[(d - 1) * kKeys + key]) : 0;
      }
    }
  }
  /// Widens the first values of a block to units [keys / kPair][dim].
  static void unpack_values(typename M::Unit* to, const Storage* block, int64_t keys, int64_t d, int64_t dim,
                            const Storage* later) {
    for (int64_t key = 0; key < keys; key += M::kPair, to += dim, block += d * M::kPair) {
      fetch(later, key * d, d * M::kPair);
      unpack_units(to, block, d);
      for (int64_t j = d; j < dim; ++j) to[j] = 0;
    }
  }

 private:
  static typename M::Unit unit_of(Storage x) {
    if constexpr (M::kPair == 2)
      return M::unit(x, Storage{});
    else
      return widen(x);
  }
  static void unpack_units(typename M::Unit* to, const Storage* from, int64_t count) {
    if constexpr (M::kPair == 2) {
      __builtin_memcpy(to, from, static_cast<uint64_t>(count) * sizeof(*to));
    } else {
      const int64_t vectors = count / M::kLanes;
      for (int64_t i = 0; i < vectors; ++i) M::store(to + i * M::kLanes, M::widen_load(from + i * M::kLanes));
      for (int64_t u = vectors * M::kLanes; u < count; ++u) to[u] = widen(from[u]);
    }
  }
};

/// Writes rows to their places (CacheWritePass). Head by head: neighbouring tokens of a head share lines.
template <class M, class Storage>
void write_rows(const CacheWrite& call, int64_t first, int64_t last) {
  using Order = PageOrder<M, Storage>;
  const int64_t d = call.head_dim, pairs = d / M::kPair * M::kPair;
  for (int64_t head = 0; head < call.heads; ++head)
    for (int64_t row = first; row < last; ++row) {
      const int64_t place = call.places[row], token = place % kAttentionPage, key = token % Order::kKeys;
      const int64_t block = (place / kAttentionPage * call.heads + head) * kAttentionPage * d + Order::block(token, d);
      const Storage* const k = static_cast<const Storage*>(call.k) + row * call.k_stride + head * d;
      const Storage* const v = static_cast<const Storage*>(call.v) + row * call.v_stride + head * d;
      Storage* const keys = static_cast<Storage*>(call.k_pages) + block;
      Storage* const values = static_cast<Storage*>(call.v_pages) + block;
      for (int64_t j = 0; j < pairs; j += M::kPair)
        __builtin_memcpy(keys + Order::key_element(key, j, d), k + j, M::kPair * sizeof(Storage));
      if (pairs < d) keys[Order::key_element(key, pairs, d)] = k[pairs];
      if constexpr (M::kPair == 1) {
        __builtin_memcpy(values + key * d, v, static_cast<uint64_t>(d) * sizeof(Storage));
      } else {
        for (int64_t j = 0; j < d; ++j) values[Order::value_element(key, j, d)] = v[j];
        // A weight of zero times what an earlier text has left beside the last value would be NaN if that is.
        const bool partner_follows = row + 1 < call.rows && call.places[row + 1] == place + 1;
        if (key % 2 == 0 && !partner_follows)
          for (int64_t j = 0; j < d; ++j) values[Order::value_element(key + 1, j, d)] = Storage{};
      }
    }
}

}  // namespace
}  // namespace trireme::ops
