// The slots (Slots in unit.h) of a FreeBlock's values; private to free_block*.cpp. T, D, F, R: ops/ops.h; H: bits.
#pragma once

namespace trireme::model {

/// Names of the masks of branches.
struct FreeBranch {
  static constexpr const char *attention = "attention.output", *mlp = "mlp.output";
};

/// Of each of the two blocks, behind Half::saved.
struct HalfSaved {
  enum Slot { qkv, attended, lse, mid, rstd_mid, hidden, num_block_saved };
};

struct FreeSaved {
  enum Slot {
    encoder = 0,                         ///< HalfSaved
    block = encoder + HalfSaved::num_block_saved,   ///< HalfSaved
    rstd_input = block + HalfSaved::num_block_saved, ///< of X, read by the encoder's keys
    rstd_zeta,
    encoded,                             ///< Y
    rstd_encoded,
    logits,
    codes,
    injected,                            ///< X + R
    rstd_queries,
    rstd_injected,
  };
};

struct FreeWork {
  enum Slot {
    normed,       ///< [T,D]; backward: gradients of norms' outputs
    activated,    ///< [T,F]
    attention,    ///< bytes
    reduced_rows,  ///< [rows,D], sequence parallel
    zeta_normed,   ///< [1,D]
    zeta_query,    ///< [1,q]
    keys,         ///< [T] int32, counters
    local_codes,   ///< [T] int64, rows in this rank's part of the table
    signs,        ///< [T,H]
    d_qkv,         ///< backward
    d_attended,
    d_qkv_wide,     ///< narrow compute dtypes: sums of the attention to all
    d_injected,    ///< [rows,D]
    d_encoded,     ///< [rows,D]
    d_logits,      ///< [T,H]
    d_logits_narrow,
    scores,       ///< [chunk, codes of this rank]
    order,        ///< [T] int64
    parts,        ///< [num_parts, D], gradients of vectors, by FreePart
    d_zeta_query_wide,
    d_zeta_query,
    d_zeta_normed,
    d_zeta,
    readout_gradient,  ///< sequence parallel: [H,D] of this rank's rows
    sampler_gradient,  ///< likewise [D,H]
  };
};

struct FreePart {
  enum Row {
    of_queries,   ///< the block's first norm, from queries
    of_injected,  ///< the same, from keys and values
    of_mid,
    of_input,     ///< the encoder's first norm, from keys and values
    of_encoder_mid,
    of_encoded,
    of_zeta,      ///< zeta as residual stream
    num_summed,   ///< the parts before this one are of a rank's rows
    of_zeta_norm = num_summed,  ///< the encoder's first norm, from the query
    of_zeta_query,
    num_parts,
  };
};

}  // namespace trireme::model
