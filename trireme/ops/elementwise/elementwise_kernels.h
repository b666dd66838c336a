// Row kernels of ops/elementwise/elementwise.cpp, bias.cpp, rotary.cpp and embedding.cpp, chosen for the processor at
// run time. Pointers are to whole tensors; rows first..last-1 are computed.
#pragma once

#include <cstdint>

#include "trireme/ops/storage.h"

namespace trireme::ops {

struct AddArguments {
  Storage dtype;
  int64_t width;
  void* y;
  const void* a;
  const void* b;
  int64_t b_stride;  ///< elements from one row of b to the next; 0: all rows add one row of b
  bool past_caches = false;  ///< as ops/simd/past_caches.h says
};
void add_rows(const AddArguments& arguments, int64_t first, int64_t last);

struct AccumulateArguments {
  Storage dtype;  ///< of x
  int64_t width;
  void* sum;  ///< of the wide type: x is added
  const void* x;
};
void accumulate_rows(const AccumulateArguments& arguments, int64_t first, int64_t last);

struct ColumnSum {
  Storage dtype;
  int64_t width;
  const void* x;
  void* sum;  ///< [width] of the wide type: rows are added
};
void column_sum_rows(const ColumnSum& arguments, int64_t first, int64_t last);

struct Gather {
  Storage dtype;
  int64_t width;
  void* y;              ///< row t = scale table[ids[t]] + addends[place of t]
  const void* table;
  const int64_t* ids;   ///< negative: zeros instead of a row of the table
  const void* addends;  ///< null: none
  const int64_t* places;  ///< rows of addends; null: t % sequence
  int64_t sequence;
  double scale;
};
void gather_rows(const Gather& arguments, int64_t first, int64_t last);

struct GatherSum {
  Storage dtype;
  int64_t width;
  void* out;  ///< row v = scale times the sum over k = first[v] .. first[v + 1] - 1 of rows[order[k]], in order of k
  bool wide;        ///< out is of the wide type
  bool accumulate;  ///< added to out
  const void* rows;
  const int64_t* order;
  const int64_t* first;
  int64_t count;  ///< of order, over all v
  double scale;
};
void gather_sum_rows(const GatherSum& arguments, int64_t first, int64_t last);

struct RotaryArguments {
  Storage dtype;
  void* qkv;
  int64_t row_width;
  int64_t num_rotated_heads;
  int64_t half_dim;
  int64_t sequence;
  const int64_t* positions;  ///< of each row; null: t % sequence
  const void* cosine;
  const void* sine;
  bool inverse;  ///< rotate by the negative angle: the backward
  int64_t head_dim;  ///< at least 2 half_dim; a head's other elements are left alone (processors only)
};
void rotary_rows(const RotaryArguments& arguments, int64_t first, int64_t last);

}  // namespace trireme::ops
