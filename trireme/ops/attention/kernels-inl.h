// Blocked attention, forward and backward, for one instruction set.
//
// A job is one key/value head of one batch row. Its K and V are packed once for all query heads of the group. Scores of
// 64 queries x 128 keys are in cache at a time. Between forward and backward only the log-sum-exp of each row is kept
// (Dao, FlashAttention-2, 2023).
//
// There is one mask: a query sees the keys from its first visible one to itself. The first visible key is the start of
// its document or of the sliding window, whichever is later. Blocks of keys that no query of a block sees are skipped.
// In a partly visible block every product is trimmed to its visible part, 4 rows at a time.
//
// If the first query is not at a multiple of a register tile's rows, `skip` empty rows go before it.
//
// Without a mask (ring attention) the same code runs with an `offset` to the right of every block. It starts from the
// maximum, sum and weighted sum that follow from the out and lse of earlier blocks.
//
// This file and those it includes are compiled once per instruction set. All of it is in an anonymous namespace: no
// symbol leaves its file.
#pragma once

#include "trireme/ops/attention/backward-inl.h"
#include "trireme/ops/attention/paged-inl.h"
