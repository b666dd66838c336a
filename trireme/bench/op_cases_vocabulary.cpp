// What reads or writes a row for each word of the vocabulary: embedding, and the cut cross-entropy.
#include <ATen/ATen.h>

#include "trireme/bench/op_cases.h"
#include "trireme/ops/ops.h"

namespace trireme::bench {
namespace {

constexpr double kId = 8;

double width(const Widths& w) { return static_cast<double>(w.D) * w.E(); }
double logits(const Widths& w) { return static_cast<double>(w.V) * w.E(); }

constexpr MemoryCase kVocabularyCases[] = {
    // A table as long as y, so that it lies where y does and each of its rows is read about once: a shorter one would
    // be counted as read once, while what comes of it from a cache and what from memory is up to the neighbours.
    {"embedding_forward", [](const Widths& w) { return 2 * width(w) + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = p.values({T, w.D}, w.dtype), table = p.values({T, w.D}, w.dtype), ids = p.ids(T, T);
       return Calls{[=] { ops::embedding_forward(y, ids, table, {}, 1); }};
     }},
    {"embedding_backward", [](const Widths& w) { return width(w) + 3 * kId; },
     [](const Widths& w) { return static_cast<double>(w.V) * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dy = p.values({T, w.D}, w.dtype), dtable = p.values({w.V, w.D}, w.dtype), ids = p.ids(T, w.V),
                  order = p.ids(T, T);
       return Calls{[=] { ops::embedding_backward(dtable, {}, dy, ids, order, 1); }};
     }},
    {"softcap_forward", [](const Widths& w) { return 2 * logits(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype);
       return Calls{[=] { ops::softcap_forward(x, 30); }};
     },
     Access::kInPlace},
    {"cross_entropy_shard_max", [](const Widths& w) { return logits(w) + w.W(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = p.values({T}, w.wide());
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_max(highest, x, 0, V); }};
     },
     Access::kRead},
    {"cross_entropy_shard_sum", [](const Widths& w) { return logits(w) + 3 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = p.positive({T}, w.wide()), sum = p.values({T}, w.wide()),
                  logit = p.values({T}, w.wide()), targets = p.ids(T, w.V);
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_sum(sum, logit, x, highest, targets, 0, V); }};
     },
     Access::kRead},
    {"cross_entropy_shard_loss", [](const Widths& w) { return 3 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto highest = p.positive({T}, w.wide()), sum = p.positive({T}, w.wide()), logit = p.values({T}, w.wide()),
                  targets = p.ids(T, w.V), loss = p.values({1}, at::kDouble);
       return Calls{[=] { ops::cross_entropy_shard_loss(loss, highest, sum, logit, targets); }};
     }},
    {"cross_entropy_shard_backward", [](const Widths& w) { return 2 * logits(w) + 2 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = p.positive({T}, w.wide()),
                  sum = p.positive({T}, w.wide()).mul_(1000), targets = p.ids(T, w.V), before = x.clone();
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_backward(x, highest, sum, targets, 1, 0, V); },
                    [=] { x.copy_(before); }};
     },
     Access::kInPlace},
};

}  // namespace

std::span<const MemoryCase> vocabulary_cases() { return kVocabularyCases; }

}  // namespace trireme::bench
