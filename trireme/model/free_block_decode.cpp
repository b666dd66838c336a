// Generation with a FreeBlock. The encoder reads a prompt, all its tokens at once; later tokens get the codes that they
// are given. The cache holds keys and values of X + R, so a token keeps its code.
#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/dropout.h"
#include "trireme/model/free_block.h"
#include "trireme/model/free_block_values.h"
#include "trireme/ops/attention/attention.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {

// The codes that the encoder draws for tokens that begin a text: by the forward of training.
at::Tensor FreeBlock::prompt_codes(const DecodeTensors& d) const {
  const Precision precision{d.x.scalar_type(), ops::statistics_dtype(d.x.scalar_type())};
  UnitTensors t;
  t.shape = {1, d.x.size(0)};
  t.parameters = d.parameters;
  t.input = d.x;
  t.ranks = d.ranks;
  t.random.step_key = d.latent_seed;
  t.random.first_sequence = d.position;
  const UnitValues values = this->values(t.shape, precision);
  const auto allocate = [](const TensorSpec& spec) {
    return spec.name.empty() ? at::Tensor() : at::empty(spec.shape, at::TensorOptions().dtype(spec.dtype));
  };
  for (const TensorSpec& spec : values.saved) t.saved.push_back(allocate(spec));
  for (const TensorSpec& spec : values.forward_work) t.work.push_back(allocate(spec));
  encode(t);
  draw(t);
  return t.saved[FreeSaved::codes];
}

// X + R
at::Tensor FreeBlock::injected(const DecodeTensors& d) const {
  const at::Tensor codes = d.latent.defined() ? d.latent : prompt_codes(d), r = at::empty_like(d.x);
  const at::Tensor& sampler = d.parameters[p_.sampler];
  if (has_table()) {
    UnitTensors t;
    t.saved.resize(FreeSaved::codes + 1);
    t.saved[FreeSaved::codes] = codes;
    t.work.resize(FreeWork::local_codes + 1);
    t.work[FreeWork::local_codes] = at::empty_like(codes);
    ops::embedding_forward(r, local_codes(t), sampler, at::Tensor(), codes.size(0));
    TensorParallel(parallel_, d.ranks).sum(r);
  } else {
    const at::Tensor signs = at::empty({codes.size(0), config_.free.latent_bits}, d.x.options());
    ops::latent_signs(signs, codes);
    ops::multiply(r, signs, sampler.t());
  }
  ops::add_forward(r, r, d.x);
  return r;
}

void FreeBlock::decode(const DecodeTensors& d) const {
  check_invariant(parallel_.cp_size == 1 && !sequence_parallel(), "generation knows tensor and pipeline ranks only");
  const TensorParallel tp(parallel_, d.ranks);
  const auto& p = d.parameters;
  const BlockLayout& l = p_.block;
  const at::Tensor& x = d.x;
  const int64_t rows = x.size(0), position = d.position;
  const double eps = config_.norm_eps;
  const at::TensorOptions options = x.options();
  const at::Tensor normed = at::empty_like(x), qkv = at::empty({rows, widths_.qkv_width()}, options),
                   attended = at::empty({rows, widths_.q_width()}, options), mid = at::empty_like(x),
                   hidden = at::empty({rows, 2 * widths_.mlp}, options),
                   activated = at::empty({rows, widths_.mlp}, options),
                   rstd = at::empty({rows}, options.dtype(ops::statistics_dtype(x.scalar_type())));
  const auto branch = [&](const Product& product, const at::Tensor& y, const at::Tensor& input) {
    product_forward(product, y, input, p);
    tp.sum(y);
  };
  norm_forward(l.norm1, normed, {{}, rstd}, x, p, eps);
  ops::multiply(queries(qkv), normed, p[l.qkv.weight].t());
  norm_forward(l.norm1, normed, {{}, rstd}, injected(d), p, eps);
  ops::multiply(keys_values(qkv), normed, joined(p, l.qkv.weight + 1, 2).t());
  const auto table = rotary_->of(config_.longest_generation());
  ops::rotary_forward(qkv, table.cosine.narrow(0, position, rows), table.sine.narrow(0, position, rows), widths_.heads,
                      widths_.kv_heads);
  const at::Tensor kv = keys_values(qkv);
  d.k_cache.narrow(0, position, rows).copy_(kv.narrow(1, 0, widths_.kv_width()));
  d.v_cache.narrow(0, position, rows).copy_(kv.narrow(1, widths_.kv_width(), widths_.kv_width()));
  ops::attention_decode(attended, queries(qkv), d.k_cache.unsqueeze(0), d.v_cache.unsqueeze(0),
                        at::full({1}, position + rows, at::kLong), attention_shape(1, rows, widths_, {}));
  branch(l.out, normed, attended);
  add_norm_forward(l.norm2, mid, normed, {{}, rstd}, normed, x, p, eps);
  product_forward(l.up, hidden, normed, p);
  ops::swiglu_forward(activated, hidden);
  branch(l.down, x, activated);
  ops::add_forward(x, x, mid);
}

}  // namespace trireme::model
