#include "trireme/train/cache_room.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/comm/communicator.h"

namespace trireme::train {
namespace {

/// Of the available memory; the rest is for the program's own needs and for files that are being read.
constexpr double kShare = 0.9;

/// Bytes on this host of a plan with as little cache as can be, and of each further page.
struct CacheBytes {
  int64_t without_cache = 0, page = 0;
};

CacheBytes cache_bytes(const Settings& settings, const launch::RankEnvironment& environment, const Inference& in,
                       generate::Room room) {
  room.cache_tokens = 1;
  const InferencePlan planned =
      plan_inference(settings, in.config, environment.world_size, environment.global_rank, room, in.adapters);
  const bool shared_memory =
      settings.comm.backend == comm::Backend::automatic || settings.comm.backend == comm::Backend::shm;
  const int64_t ranks = environment.local_world_size;
  CacheBytes bytes{.without_cache = plan::bytes_on_host(planned.plan, ranks, shared_memory)};
  for (const schedule::Value& v : planned.plan.lists[schedule::List::generate].values)
    if (v.cause == schedule::Cause::cache) bytes.page += ranks * v.bytes;
  bytes.page /= planned.plan.request.generation.pages;
  return bytes;
}

}  // namespace

CacheWish wish_to_write(const model::ModelConfig& config, const std::vector<std::vector<int64_t>>& prompts,
                        int64_t samples, int64_t max_new_tokens, int64_t texts) {
  std::vector<int64_t> needs;  // pages
  int64_t longest = 1;
  for (const std::vector<int64_t>& prompt : prompts) {
    longest = std::max(longest, std::ssize(prompt));
    const int64_t most = std::min(config.longest_generation(), std::ssize(prompt) + max_new_tokens - 1);
    needs.insert(needs.end(), static_cast<size_t>(std::min(samples, texts)),
                 (most + ops::kAttentionPage - 1) / ops::kAttentionPage);
  }
  std::ranges::sort(needs, std::greater<>());
  int64_t wanted = 0;
  for (size_t i = 0; i < std::min<size_t>(needs.size(), static_cast<size_t>(texts)); ++i) wanted += needs[i];
  return {.room = {.texts = std::min<int64_t>(texts, std::ssize(needs)),
                   .tokens = config.is_free() ? std::max<int64_t>(512, longest) : 512,
                   .cache_tokens = wanted * ops::kAttentionPage},
          .needed_tokens = needs.front() * ops::kAttentionPage};
}

void check_longest_text(const CacheWish& wish) {
  constexpr int64_t kPage = ops::kAttentionPage;
  const auto whole_pages = [](int64_t tokens) { return (tokens + kPage - 1) / kPage * kPage; };
  const int64_t holds = whole_pages(wish.room.cache_tokens), needs = whole_pages(wish.needed_tokens);
  if (holds < needs)
    throw UsageError(
        fmt::format("the cache holds {} tokens, and a text needs {}; make generate.cache_tokens larger, or "
                    "generate.max_new_tokens smaller",
                    holds, needs));
}

generate::Room fitting_room(const Settings& settings, const launch::RankEnvironment& environment, const Inference& in,
                            const CacheWish& wish, int64_t available) {
  constexpr int64_t kPage = ops::kAttentionPage;
  const CacheBytes bytes = cache_bytes(settings, environment, in, wish.room);
  const auto usable = static_cast<int64_t>(kShare * double(available));
  int64_t fits = 1 + (usable - bytes.without_cache) / std::max<int64_t>(1, bytes.page);  // the plan had one
  if (usable < bytes.without_cache) fits = 0;
  if (in.world != nullptr) {
    const at::Tensor most = at::full({1}, -double(fits), at::kDouble);  // the least of all ranks
    in.world->all_reduce(most, most, {.op = comm::ReduceOp::max})->wait();
    fits = -static_cast<int64_t>(most.item<double>());
  }
  const auto pages = [](int64_t tokens) { return (tokens + kPage - 1) / kPage; };
  const int64_t wanted = pages(wish.room.cache_tokens);
  if (fits >= wanted) return wish.room;
  if (fits < pages(wish.needed_tokens) && !wish.is_given)
    throw UsageError(fmt::format(
        "a text of {} needs a cache of {} beside {} of weights and work on this host, and {} are available; use more "
        "hosts, --quantize bnb.nf4 or fewer new tokens",
        base::plural(wish.needed_tokens, "token"), base::human_bytes(pages(wish.needed_tokens) * bytes.page),
        base::human_bytes(bytes.without_cache), base::human_bytes(available)));
  if (wish.is_given)
    throw UsageError(fmt::format(
        "generate.cache_tokens {} needs {} beside {} of weights and work on this host, and {} are available; {} fit",
        wish.room.cache_tokens, base::human_bytes(wanted * bytes.page), base::human_bytes(bytes.without_cache),
        base::human_bytes(available), base::plural(fits * kPage, "token")));
  if (in.is_first_rank)
    base::info("the cache holds {}, as {} are available; more texts wait", base::plural(fits * kPage, "token"),
               base::human_bytes(available));
  generate::Room room = wish.room;
  room.cache_tokens = fits * kPage;
  return room;
}

generate::Room fitting_room(const Settings& settings, const launch::RankEnvironment& environment, const Inference& in,
                            const CacheWish& wish) {
  return fitting_room(settings, environment, in, wish, base::available_memory().bytes);
}

}  // namespace trireme::train
