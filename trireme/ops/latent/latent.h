// The latent of the Free Transformer: bits of each token, drawn from logits, their divergence from the uniform prior,
// and the gradients of both. Processors only.
//
// Legend    T tokens, H bits, C = 2^H codes. Bit h of code d is (d >> h) & 1; its probability is p_h = sigmoid(L_h).
// dtypes    logits and their gradients have the statistics dtype; sums are float64
// Numerics  each token is computed by itself in float64; bits do not depend on threads
// Source    Fleuret, The Free Transformer (2025), equations 4 to 8
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::ops {

/// codes [T] int64: bit h is 1 if u < p_h, where u in (0, 1) is a hash of keys[t] (int32, model/dropout.h) and h.
void latent_sample(const at::Tensor& codes, const at::Tensor& logits, const at::Tensor& keys);

/// Writes sums [3] float64 over the tokens whose target is not -100: the divergence KL of their bits from uniform ones
/// in nats, max(0, KL - free_nats), and the number of tokens with KL > free_nats.
void latent_divergence(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& targets, double free_nats);

/// d_logits [T,H] += the gradient of scale x the second of these sums.
void latent_divergence_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& targets,
                                double free_nats, double scale);

/// d_logits [T,H] += sum over codes d of G_d (bit_h(d) - p_h) scores[t, d - first], where G_d is the probability of d:
/// the paper's gradient for a table of codes, exactly. scores [T,N] holds <table row d, gradient of the looked-up row>
/// for the codes first .. first + N - 1, and is overwritten; N is a power of two that divides `first`.
///
/// Cost      4 N operations a token: the probabilities are a Kronecker product, so one bit is folded at a time
void latent_table_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& scores,
                           int64_t first);

/// signs [T,H] = 2 bit - 1, in a compute dtype.
void latent_signs(const at::Tensor& signs, const at::Tensor& codes);

/// d_logits [T,H] += 2 p (1 - p) d_signs: bits pass gradients straight through (B + p - stop_gradient(p)).
void latent_signs_backward(const at::Tensor& d_logits, const at::Tensor& logits, const at::Tensor& d_signs);

}  // namespace trireme::ops
