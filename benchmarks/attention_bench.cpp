// Attention alone: every kernel this processor has, checked against the portable one, then timed beside
// LibTorch's flash attention and the register-loop peak of the same run.
//   ninja attention_bench && ./attention_bench [batch sequence heads kv_heads head_dim repeats [window]] [--best]
//   [--bf16] [--threads N] [--json FILE]
// --best: the best kernel only. GFLOP/s count the causal half: 2 b s^2 H d forward (two products), 2.5 times that
// backward (five); with a window, what it leaves of that half. LibTorch's peer has no window: it is timed causal, with
// the heads of keys and values repeated and laid out as it likes them before the clock starts. Kernels and peer take
// turns. Times are processor time of the thread, with several threads wall time; the peak is that of all threads.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trireme/machine/limits.h"
#include "trireme/ops/attention/attention.h"

using trireme::ops::AttentionKernel;
using trireme::ops::AttentionShape;

namespace {

/// With one thread its processor time, which other processes do not influence; else wall time.
double now_ms() {
  timespec t{};
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

struct Subject {
  std::string name;
  std::function<void()> forward, backward;
  bool causal = false;  ///< has no window
  double out_differs = 0, gradient_differs = 0;
  std::vector<double> forward_ms, backward_ms;
};

double median(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kFloat) - b.to(at::kFloat)).abs().max() / b.to(at::kFloat).abs().max()).item<double>();
}

/// LibTorch's flash attention on q, k, v [b, H, s, d].
Subject libtorch(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& d_out) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const at::Tensor x = qkv.view({shape.batch, shape.sequence, -1, shape.head_dim}).transpose(1, 2);
  const at::Tensor q = x.slice(1, 0, shape.num_heads).contiguous();
  const auto heads = [&](int64_t first) {
    return x.slice(1, first, first + shape.num_kv_heads).repeat_interleave(group, 1).contiguous();
  };
  const at::Tensor k = heads(shape.num_heads), v = heads(shape.num_heads + shape.num_kv_heads);
  const at::Tensor d = d_out.view({shape.batch, shape.sequence, shape.num_heads, -1}).transpose(1, 2).contiguous();
  const auto result = std::make_shared<std::tuple<at::Tensor, at::Tensor>>();
  return {"LibTorch", [=] { *result = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true); },
          [=] {
            const auto& [out, lse] = *result;
            at::_scaled_dot_product_flash_attention_for_cpu_backward(d, q, k, v, out, lse, 0.0, true);
          },
          true};
}

struct Options {
  AttentionShape shape;
  int64_t repeats = 21;
  bool best = false;
  std::string json;
};

/// Twice the number of pairs of a query and a key that it sees: s^2 if only the causal mask hides keys.
double visible_pairs(const AttentionShape& shape, bool causal) {
  const auto s = static_cast<double>(shape.sequence), w = static_cast<double>(shape.window);
  return causal || shape.window == 0 || w >= s ? s * s : s * s - (s - w) * (s - w);
}

std::string json_line(const Subject& x, const AttentionShape& shape, at::ScalarType dtype, double peak,
                      double forward_flops) {
  char line[512];
  std::snprintf(line, sizeof line,
                "{\"name\": \"%s\", \"dtype\": \"%s\", \"batch\": %ld, \"sequence\": %ld, \"heads\": %ld, "
                "\"kv_heads\": %ld, \"head_dim\": %ld, \"window\": %ld, \"threads\": %d, \"forward_ms\": %.4f, "
                "\"backward_ms\": %.4f, \"forward_of_peak\": %.4f, \"backward_of_peak\": %.4f, \"peak_flops\": %.4g}",
                x.name.c_str(), c10::toString(dtype), shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads,
                shape.head_dim, x.causal ? 0 : shape.window, at::get_num_threads(), median(x.forward_ms),
                median(x.backward_ms), forward_flops / median(x.forward_ms) * 1e3 / peak,
                2.5 * forward_flops / median(x.backward_ms) * 1e3 / peak, peak);
  return line;
}

void print(const Subject& x, const Subject& peer, at::ScalarType dtype, double peak, double forward_flops) {
  const double f = median(x.forward_ms), b = median(x.backward_ms);
  std::printf(
      "%-11s %-8s forward %8.2f ms %4.0f GFLOP/s %3.0f %%   backward %8.2f ms %4.0f GFLOP/s %3.0f %%   both %5.2f x "
      "LibTorch   differs from portable by %.1e, %.1e\n",
      x.name.c_str(), c10::toString(dtype), f, forward_flops / f / 1e6, forward_flops / f * 1e5 / peak, b,
      2.5 * forward_flops / b / 1e6, 2.5 * forward_flops / b * 1e5 / peak,
      (median(peer.forward_ms) + median(peer.backward_ms)) / (f + b), x.out_differs, x.gradient_differs);
}

void time_in_turns(std::vector<Subject>& subjects, int64_t repeats) {
  for (int64_t i = -1; i < repeats; ++i)  // one round to warm up
    for (Subject& x : subjects) {
      const double start = now_ms();
      x.forward();
      const double middle = now_ms();
      x.backward();
      if (i < 0) continue;
      x.forward_ms.push_back(middle - start);
      x.backward_ms.push_back(now_ms() - middle);
    }
}

std::vector<std::string> bench(const Options& options, at::ScalarType dtype) {
  const AttentionShape& shape = options.shape;
  const int64_t tokens = shape.batch * shape.sequence, width = shape.num_heads * shape.head_dim;
  const at::Tensor qkv = at::randn({tokens, width + 2 * shape.num_kv_heads * shape.head_dim}).to(dtype);
  const at::Tensor d_out = at::randn({tokens, width}).to(dtype), out = at::empty_like(d_out),
                   dqkv = at::empty_like(qkv);
  const at::Tensor lse = at::empty({shape.batch, shape.num_heads, shape.sequence});
  const at::Tensor workspace = at::empty({trireme::ops::attention_workspace_bytes(shape, dtype)}, at::kByte);
  std::vector<Subject> subjects;
  for (const AttentionKernel* kernel : trireme::ops::attention_kernels())
    subjects.push_back(
        {kernel->name, [=] { trireme::ops::attention_forward(out, lse, qkv, shape, workspace, {}, kernel); },
         [=] { trireme::ops::attention_backward(dqkv, d_out, out, lse, qkv, shape, workspace, {}, kernel); }});
  subjects.back().forward(), subjects.back().backward();
  const at::Tensor want_out = out.clone(), want_dqkv = dqkv.clone();
  if (options.best) subjects.resize(1);
  for (Subject& x : subjects) {
    x.forward(), x.backward();
    x.out_differs = distance(out, want_out), x.gradient_differs = distance(dqkv, want_dqkv);
  }
  subjects.push_back(libtorch(shape, qkv, d_out));
  time_in_turns(subjects, options.repeats);

  const double peak = trireme::machine::register_loop_flops(dtype, at::get_num_threads());
  std::printf("%s: register-loop peak %.0f GFLOP/s\n", c10::toString(dtype), peak / 1e9);
  std::vector<std::string> json;
  for (const Subject& x : subjects) {
    const double forward_flops = 2.0 * static_cast<double>(shape.batch * width) * visible_pairs(shape, x.causal);
    print(x, subjects.back(), dtype, peak, forward_flops);
    json.push_back(json_line(x, shape, dtype, peak, forward_flops));
  }
  return json;
}

void write_json(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file(path);
  for (size_t i = 0; i < lines.size(); ++i) file << (i == 0 ? "[\n" : ",\n") << lines[i];
  file << "\n]\n";
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  std::vector<int64_t> numbers;
  Options options;
  std::vector<at::ScalarType> dtypes{at::kBFloat16, at::kFloat};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--best")
      options.best = true;
    else if (argument == "--bf16")
      dtypes.pop_back();
    else if (argument == "--threads" && i + 1 < argc)
      at::set_num_threads(std::atoi(argv[++i]));
    else if (argument == "--json" && i + 1 < argc)
      options.json = argv[++i];
    else
      numbers.push_back(std::atoll(argv[i]));
  }
  const auto number = [&](size_t i, int64_t otherwise) { return numbers.size() > i ? numbers[i] : otherwise; };
  options.shape = {number(0, 2), number(1, 512), number(2, 8), number(3, 4), number(4, 64), 0, number(6, 0)};
  options.repeats = number(5, 21);
  const AttentionShape& shape = options.shape;
  std::printf("batch %ld, sequence %ld, heads %ld, kv heads %ld, head dim %ld, window %ld, causal, CPU, %d threads\n",
              shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.window,
              at::get_num_threads());
  std::vector<std::string> json;
  for (const auto dtype : dtypes)
    for (const std::string& line : bench(options, dtype)) json.push_back(line);
  if (!options.json.empty()) write_json(options.json, json);
}
