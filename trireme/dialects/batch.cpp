#include "trireme/dialects/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/choices.h"
#include "trireme/optim/settings_lr.h"

namespace trireme::dialects {

using config::Given;

void set_batch(Reading& r, std::string_view batch, std::string_view micro, std::string_view accumulation) {
  const auto entry = [&](std::string_view key) { return key.empty() ? nullptr : r.find(key); };
  const Given *b = entry(batch), *m = entry(micro), *g = entry(accumulation);
  for (const Given* one : {b, m, g})
    if (one != nullptr && base::parse_count(one->text).value_or(0) < 1) {
      if (base::parse_count(one->text))
        r.refuse(*one, fmt::format("{} must be at least 1, not {}", one->key, one->text), "");
      return;
    }
  const auto value = [](const Given* one) { return one == nullptr ? int64_t{0} : *base::parse_count(one->text); };
  const int64_t ranks = r.data_ranks();
  constexpr int64_t kMost = int64_t{1} << 40;  // so that products fit
  if (value(b) > kMost || value(m) > kMost / ranks || value(g) > kMost / ranks / std::max<int64_t>(value(m), 1))
    return r.refuse(*(b != nullptr ? b : m != nullptr ? m : g), "a batch of more than 2^40 sequences is too large", "");
  const std::string ranks_text = fmt::format("{} data-parallel rank{}", ranks, ranks == 1 ? "" : "s");
  if (b != nullptr) {
    const int64_t global = value(b), steps = std::max<int64_t>(value(g), m == nullptr ? 1 : 0);
    r.set("train.global_batch_size", std::to_string(global), *b);
    if (m != nullptr) {
      r.set("train.micro_batch_size", std::to_string(value(m)), *m);
      const int64_t whole = value(m) * ranks;
      if (g != nullptr && global != whole * value(g)) {
        return r.refuse_both(*b, *g,
                             fmt::format("{} {} is not {} {} x {} {} x {}", batch, global, micro, value(m),
                                         accumulation, value(g), ranks_text),
                             "give two of the three, or another number of --devices");
      }
      if (global % whole != 0)
        return r.refuse_both(
            *b, *m, fmt::format("{} {} cannot be divided into {} {} x {}", batch, global, micro, value(m), ranks_text),
            fmt::format("{} {} fits, or another number of --devices", batch, base::near_multiples(global, whole)));
      if (g != nullptr) r.ignore(*g, fmt::format("it follows from the batches and {}", ranks_text));
      return;
    }
    if (g == nullptr && (r.is_left(micro) || r.is_left(accumulation))) return;  // the run's own counts
    if (global % (steps * ranks) != 0)
      return r.refuse(
          *b,
          fmt::format("{} {} cannot be divided into {} micro-batches on each of {}", batch, global, steps, ranks_text),
          fmt::format("{} {} fits, or another number of --devices", batch,
                      base::near_multiples(global, steps * ranks)));
    r.set("train.micro_batch_size", std::to_string(global / (steps * ranks)), g != nullptr ? *g : *b);
    return;
  }
  if (m != nullptr) r.set("train.micro_batch_size", std::to_string(value(m)), *m);
  if (g == nullptr && (m == nullptr || r.is_left(batch) || r.is_left(accumulation))) return;
  const int64_t size = m != nullptr ? value(m) : r.known_count("train.micro_batch_size").value_or(1);
  const int64_t steps = g != nullptr ? value(g) : 1;
  if (size > kMost / ranks / steps) return r.refuse(*g, "a batch of more than 2^40 sequences is too large", "");
  r.set("train.global_batch_size", std::to_string(size * steps * ranks), g != nullptr ? *g : *m);
}

void set_warmup_share(Reading& r, const config::Given& share, std::string_view lengths, PartOfStep part) {
  if (r.counts_more("train.lr_warmup_steps")) return r.ignore(share, "train.lr_warmup_steps says it");
  const auto steps = r.known_count("train.max_steps");
  if (!steps)
    return r.refuse(share, "a warm-up as a share of the run needs the run's length",
                    fmt::format("give {} in the file, or --train.max_steps or --train.lr_warmup_steps", lengths));
  const double warmup = std::clamp(r.number(share.key).value_or(0), 0.0, 1.0) * static_cast<double>(*steps);
  const double whole = part == PartOfStep::a_step    ? std::ceil(warmup)
                       : part == PartOfStep::nothing ? std::floor(warmup)
                                                     : warmup;
  r.set("train.lr_warmup_steps", std::to_string(std::llround(whole)), share);
}

void suggest_first_step_0(Reading& r) {
  const std::string schedule = r.known("train.lr_decay").value_or("");
  for (const config::Choice<optim::LrDecay>& choice : choices_of(optim::LrDecay::cosine))
    if (choice.name == schedule && optim::reads_first_step(choice.value)) r.suggest("lr_schedule.first_step", "0");
}

}  // namespace trireme::dialects
