#include "trireme/comm/call_descriptor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/flight_recorder.h"

namespace trireme::comm {
namespace {
int8_t dtype_code(const at::Tensor& t) {
  return static_cast<int8_t>(t.defined() ? t.scalar_type() : at::ScalarType::Undefined);
}

int64_t* counts_of(void* descriptor) {
  return reinterpret_cast<int64_t*>(static_cast<std::byte*>(descriptor) + sizeof(CallDescriptor));
}

// The first eight counts are enough to recognise a call, and do not fill the screen.
std::string show_counts(std::span<const int64_t> counts) {
  if (counts.size() <= 8) return fmt::format("{}", counts);
  return fmt::format("[{}, ... {} in all]", fmt::join(counts.first(8), ", "), counts.size());
}

bool undefined(int8_t dtype) { return dtype == static_cast<int8_t>(at::ScalarType::Undefined); }
bool clash(int8_t a, int8_t b) { return a != b && !undefined(a) && !undefined(b); }
bool clash(int64_t a, int64_t b) { return a != b && a >= 0 && b >= 0; }

// Each number is multiplied and shifted in, so that changes to two numbers do not cancel out.
uint64_t fingerprint(const Call& checked) {
  const Collective& call = checked.collective;
  uint64_t h = 0x9e3779b97f4a7c15;
  const auto add = [&](int64_t number) {
    h = (h ^ static_cast<uint64_t>(number)) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  };
  add(call.extent);
  for (const int64_t n : call.counts) add(n);
  for (const int64_t n : call.input_counts) add(n);
  if (checked.action) add(static_cast<int64_t>(checked.action->hash));
  return h;
}

// Operations whose tensors must have one size on all ranks; the others have counts.
bool same_elements(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::broadcast || operation == Operation::reduce;
}

bool folds(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce || operation == Operation::reduce_scatter;
}
}  // namespace

void write_descriptor(void* to, const Call& checked, uint64_t sequence, SharedPlace input, SharedPlace output,
                      int size) {
  const Collective& call = checked.collective;
  CallDescriptor d{};
  d.number = sequence + 1;
  d.fingerprint = fingerprint(checked);
  d.input_elements = call.input.defined() ? call.input.numel() : -1;
  d.output_elements = call.output.defined() ? call.output.numel() : -1;
  d.extent = call.extent;
  d.input_offset = input.offset;
  d.output_offset = output.offset;
  d.input_region = input.region;
  d.output_region = output.region;
  d.root = call.root;
  d.operation = call.operation;
  d.input_dtype = dtype_code(call.input);
  d.output_dtype = dtype_code(call.output);
  d.op = call.options.op;
  d.accumulate = call.options.accumulate;
  d.has_counts = !call.counts.empty();
  d.has_input_counts = !call.input_counts.empty();
  if (checked.action) checked.action->text.copy(d.action, sizeof d.action - 1);
  std::memcpy(to, &d, sizeof d);
  if (d.has_counts) std::copy(call.counts.begin(), call.counts.end(), counts_of(to));
  if (d.has_input_counts) std::copy(call.input_counts.begin(), call.input_counts.end(), counts_of(to) + size);
}

CallView read_descriptor(const void* from, int size) {
  const auto* fixed = static_cast<const CallDescriptor*>(from);
  const auto* counts = reinterpret_cast<const int64_t*>(fixed + 1);
  const size_t n = fixed->has_counts ? size : 0, m = fixed->has_input_counts ? size : 0;
  return {fixed, {counts, n}, {counts + size, m}};
}

std::string describe(const CallView& call) {
  const CallDescriptor& d = *call.fixed;
  std::vector<std::string> parts;
  const auto tensor = [&](std::string_view what, int8_t dtype, int64_t elements) {
    if (!undefined(dtype))
      parts.push_back(fmt::format("{} {}[{}]", what, dtype_name(static_cast<at::ScalarType>(dtype)), elements));
  };
  if (d.operation == Operation::allocate_shared) {
    parts.push_back(fmt::format("{} bytes, {}", d.extent, d.root ? "host_shared" : "symmetric"));
  } else {
    tensor("input", d.input_dtype, d.input_elements);
    tensor("output", d.output_dtype, d.output_elements);
    if (d.has_input_counts) parts.push_back("input_counts " + show_counts(call.input_counts));
    if (d.has_counts) parts.push_back((d.has_input_counts ? "output_counts " : "counts ") + show_counts(call.counts));
    if (d.root >= 0) parts.push_back(fmt::format("root {}", d.root));
    if (folds(d.operation)) parts.push_back(d.op == ReduceOp::sum ? "sum" : "max");
    if (d.accumulate) parts.push_back("accumulate");
  }
  const std::string_view action(d.action, strnlen(d.action, sizeof d.action));
  return fmt::format("{}({}){}{}", to_string(d.operation), fmt::join(parts, ", "), action.empty() ? "" : " for ",
                     action);
}

std::string difference(const CallView& mine, int my_rank, const CallView& theirs, int their_rank) {
  const CallDescriptor &a = *mine.fixed, &b = *theirs.fixed;
  if (a.operation != b.operation) return "different operations";
  const bool may_differ = a.fingerprint != b.fingerprint;
  if (may_differ && a.extent != b.extent) return "different sizes";
  if (clash(a.input_dtype, b.input_dtype) || clash(a.output_dtype, b.output_dtype)) return "different dtypes";
  if (a.root != b.root) return "different roots";
  if (a.op != b.op || a.accumulate != b.accumulate) return "different reductions";
  if (same_elements(a.operation) && clash(a.input_elements, b.input_elements)) return "different sizes";
  if (may_differ && std::strncmp(a.action, b.action, sizeof a.action) != 0) return "different actions";
  if (a.operation == Operation::all_to_all) {
    const bool fits = mine.input_counts[their_rank] == theirs.counts[my_rank] &&
                      mine.counts[their_rank] == theirs.input_counts[my_rank];
    return fits ? "" : "the slices exchanged differ in size";
  }
  if (!may_differ) return "";
  return std::ranges::equal(mine.counts, theirs.counts) ? "different actions" : "different counts";  // beyond their cut
}

std::optional<Mismatch> find_mismatch(const Group& group, std::span<const CallView> calls) {
  const CallView& mine = calls[group.rank];
  int other = -1;
  std::string what;
  for (int k = 0; k < group.size && other < 0; ++k) {
    if (calls[k].fixed) what = difference(mine, group.rank, calls[k], k);
    if (!what.empty()) other = k;
  }
  if (other < 0) return std::nullopt;
  constexpr const char* kRule = "all ranks must make the same calls in the same order";
  // Ranks whose calls match form a camp; the largest camp comes first.
  std::vector<std::vector<int>> camps;
  for (int k = 0; k < group.size; ++k) {
    if (!calls[k].fixed) continue;
    const auto alike = std::ranges::find_if(
        camps, [&](const std::vector<int>& camp) { return difference(calls[camp[0]], camp[0], calls[k], k).empty(); });
    alike == camps.end() ? camps.push_back({k}) : alike->push_back(k);
  }
  std::ranges::stable_sort(camps, std::greater(), &std::vector<int>::size);
  if (camps.size() < 2 || camps[0].size() == camps[1].size()) {
    // Without a majority, all ranks name the same two ranks where possible.
    const int one = camps.size() < 2 ? group.rank : camps[0][0], two = camps.size() < 2 ? other : camps[1][0];
    return Mismatch{two == group.rank ? one : two,
                    fmt::format("{}: {} calls {} but {} calls {}; {}", what, name_rank(group, one),
                                describe(calls[one]), name_rank(group, two), describe(calls[two]), kRule)};
  }
  const int usual = camps[0][0], odd = camps[1][0];
  std::vector<int> others;
  for (const int k : camps[0]) others.push_back(group.global_rank(k));
  const std::string where = others.size() > 8 ? fmt::format("{} ranks", others.size())
                                              : fmt::format("global ranks {}", fmt::join(others, ", "));
  return Mismatch{
      odd, fmt::format("{}: expected {} as on {}, found {} on {}; {}", difference(calls[usual], usual, calls[odd], odd),
                       describe(calls[usual]), where, describe(calls[odd]), name_rank(group, odd), kRule)};
}

}  // namespace trireme::comm
