// run_message of exchange.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/gloo/exchange.h"

namespace trireme::comm {
namespace {
constexpr int kMessageTag = gloo_tag(GlooStream::message, 0);
constexpr int64_t kInlineBytes = 16 << 10;

struct Header {
  int64_t elements, dtype;
  std::byte data[kInlineBytes];
};
constexpr int64_t kFixedBytes = sizeof(Header) - kInlineBytes;

// Calls f(begin, bytes, tag) for each message of a tensor.
template <typename F>
void for_each_piece(int64_t bytes, F&& f) {
  for (int64_t begin = 0; begin < bytes; begin += GlooChannel::kMaxBytes) {
    const int64_t n = std::min(GlooChannel::kMaxBytes, bytes - begin);
    f(begin, n, gloo_tag(GlooStream::message, n));
  }
}

void send(GlooChannel& channel, const at::Tensor& tensor, int peer) {
  const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
  const bool fits = bytes <= kInlineBytes;
  Header header;
  header.elements = tensor.numel();
  header.dtype = static_cast<int64_t>(tensor.scalar_type());
  if (fits && bytes > 0) std::memcpy(header.data, tensor.const_data_ptr(), bytes);
  std::vector<GlooChannel::Transfer> transfers;
  transfers.push_back(channel.send(&header, kFixedBytes + (fits ? bytes : 0), peer, kMessageTag));
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  if (!fits)
    for_each_piece(bytes, [&](int64_t begin, int64_t n, int tag) {
      transfers.push_back(channel.send(data + begin, n, peer, tag));
    });
  channel.wait(transfers);
}

void check_header(const GlooChannel& channel, const Header& header, const at::Tensor& tensor, int peer) {
  const int64_t dtype = static_cast<int64_t>(tensor.scalar_type());
  if (header.elements == tensor.numel() && header.dtype == dtype) return;
  const Group& group = channel.group();
  throw TransportFailure(
      peer, fmt::format("{} sends {}[{}] but {} receives {}[{}]; both must name the same size and dtype",
                        name_rank(group, peer), dtype_name(static_cast<at::ScalarType>(header.dtype)), header.elements,
                        name_rank(group, group.rank), dtype_name(tensor.scalar_type()), tensor.numel()));
}

void receive(GlooChannel& channel, const at::Tensor& tensor, int peer) {
  const int64_t bytes = static_cast<int64_t>(tensor.nbytes());
  const bool fits = bytes <= kInlineBytes;
  auto* to = static_cast<std::byte*>(tensor.mutable_data_ptr());
  Header header;
  std::vector<GlooChannel::Transfer> headers, data;
  headers.push_back(channel.receive(&header, sizeof header, peer, kMessageTag));
  if (!fits)
    for_each_piece(
        bytes, [&](int64_t begin, int64_t n, int tag) { data.push_back(channel.receive(to + begin, n, peer, tag)); });
  channel.wait(headers);
  check_header(channel, header, tensor, peer);
  if (fits && bytes > 0) std::memcpy(to, header.data, bytes);
  channel.wait(data);
}
}  // namespace

void run_message(GlooChannel& channel, const Collective& call) {
  if (call.operation == Operation::send) return send(channel, call.input, call.root);
  receive(channel, call.output, call.root);
}

}  // namespace trireme::comm
