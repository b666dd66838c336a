// Blocked attention, forward and backward, for one instruction set.
//
// A job is one key/value head of one batch row. Its K and V are packed once and shared by the query heads of the
// group; 64 queries x 128 keys of scores live in cache at a time. Only the log-sum-exp of each row is kept between
// forward and backward (Dao, FlashAttention-2, 2023).
//
// There is one mask: a query sees the keys from its first visible one to itself. The first one is the start of its
// document, or of the sliding window, whichever comes later. Blocks that no query of the block sees are skipped, and
// inside a partly visible block every product is trimmed to what is visible, 4 rows at a time.
//
// Queries that come after keys of a cache start where a register tile of the triangle would: `skip` empty rows go
// first.
//
// Without a mask (ring attention) the same code runs with an `offset` that lies right of every block, and starts from
// the maximum, sum and weighted sum that the out and lse of earlier blocks stand for.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/attention_backward-inl.h"
#include "trireme/ops/attention_decode-inl.h"
#include "trireme/ops/attention_forward-inl.h"
