// AdamW8bit for adamw8bit_judge.py: reads lines "ROWS COLUMNS STEPS LR WEIGHT_DECAY FILE" from the standard input. FILE
// holds float32 values of the weights, and then of the gradient of each step; FILE.out gets the weights after each
// step, and FILE.state the state after the last.
#include <ATen/ATen.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "trireme/optim/adamw8bit.h"

namespace {

namespace model = trireme::model;
namespace optim = trireme::optim;

at::Tensor read(std::ifstream& file, int64_t n) {
  const at::Tensor values = at::empty({n});
  file.read(static_cast<char*>(values.mutable_data_ptr()), n * 4);
  return values;
}

void write(std::ofstream& file, const at::Tensor& values) {
  file.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
}

void answer(int64_t rows, int64_t columns, int64_t steps, double lr, double decay, const std::string& path) {
  const int64_t n = rows * columns;
  const model::ParameterSpec parameter{.name = "p", .shape = {rows, columns}, .init = {}};
  const optim::DecaySegment segment{.begin = 0, .end = n, .decay = true, .parameter = &parameter};
  const std::vector<at::Tensor> state = {
      at::zeros({optim::whole_state_elements(optim::Rule::adamw8bit, {&segment, 1})})};
  std::ifstream in(path, std::ios::binary);
  std::ofstream out(path + ".out", std::ios::binary), kept(path + ".state", std::ios::binary);
  const at::Tensor master = read(in, n);
  for (int64_t step = 1; step <= steps; ++step) {
    const optim::OptimizerOptions options{
        .rule = optim::Rule::adamw8bit, .lr = lr, .weight_decay = decay, .step = step};
    optim::step_adamw8bit({master, state, read(in, n), {}, {}}, {&segment, 1}, options);
    write(out, master);
  }
  write(kept, state[0]);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    int64_t rows = 0, columns = 0, steps = 0;
    double lr = 0, decay = 0;
    std::string path;
    words >> rows >> columns >> steps >> lr >> decay >> path;
    answer(rows, columns, steps, lr, decay, path);
  }
}
