#include "trireme/store/channel.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trireme::store {
namespace {

constexpr std::size_t kMostHandshakeBytes = 64 << 10;
constexpr std::size_t kBytesATurn = 256 << 10;  // so that one busy peer does not keep the others waiting
constexpr char kTlsHandshake = 0x16;
constexpr std::string_view kTcpStoreHello("\0\xCE\xF7\x85\x3C", 5);  // c10d: QueryType::VALIDATE and its magic number
constexpr std::size_t kMostIdentityPart = 120;  // two of them fit OpenSSL's identity of 256 bytes

// A peer's words, made safe for a log line.
std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kMostIdentityPart)) result += c >= ' ' && c <= '~' ? c : '?';
  return result;
}

std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

// Give OpenSSL the key and the identity of a connection.
struct Callbacks {
  static Channel& channel_of(SSL* ssl) { return *static_cast<Channel*>(SSL_get_app_data(ssl)); }

  static unsigned copy_token(const Channel& channel, unsigned char* key, unsigned room) {
    const Token& token = channel.credentials_->token;
    if (token.size() > room) return 0;
    std::memcpy(key, token.data(), token.size());
    return static_cast<unsigned>(token.size());
  }

  static unsigned for_client(SSL* ssl, const char*, char* identity, unsigned identity_room, unsigned char* key,
                             unsigned key_room) {
    const Channel& channel = channel_of(ssl);
    const Identity& self = channel.credentials_->self;
    const std::string text = printable(self.job) + '\n' + printable(self.name);
    if (text.size() + 1 > identity_room) return 0;
    std::memcpy(identity, text.c_str(), text.size() + 1);
    return copy_token(channel, key, key_room);
  }

  static unsigned for_server(SSL* ssl, const char* identity, unsigned char* key, unsigned key_room) {
    Channel& channel = channel_of(ssl);
    const std::string_view text = identity == nullptr ? "" : identity;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return 0;
    channel.peer_ = {printable(text.substr(0, end)), printable(text.substr(end + 1))};
    channel.peer_named_itself_ = true;
    return channel.peer_.job == printable(channel.credentials_->self.job) ? copy_token(channel, key, key_room) : 0;
  }
};

namespace {

SSL_CTX* make_context() {
  // Without the host's openssl.cnf, which may allow or forbid anything.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  if (context == nullptr) throw Error(fmt::format("OpenSSL does not start: {}", openssl_reason()));
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_client_callback(context, &Callbacks::for_client);
  SSL_CTX_set_psk_server_callback(context, &Callbacks::for_server);
  return context;
}

}  // namespace

Credentials::Credentials(Token token_, Identity self_)
    : token(std::move(token_)), self(std::move(self_)), context(make_context()) {
  check_invariant(is_token(token), "a token has 32 to 256 bytes");
}

Credentials::~Credentials() { SSL_CTX_free(context); }

Channel::Channel(std::shared_ptr<const Credentials> credentials, base::FileDescriptor socket, Side side)
    : credentials_(std::move(credentials)),
      socket_(std::move(socket)),
      side_(side),
      ssl_(SSL_new(credentials_->context)) {
  if (ssl_ == nullptr) throw Error(fmt::format("OpenSSL makes no connection: {}", openssl_reason()));
  SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_app_data(ssl_, this);
  if (side == Side::server) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  // A server that knows no token could offer a certificate instead: none is trusted.
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
}

Channel::~Channel() { SSL_free(ssl_); }

void Channel::take_from_socket() {
  char buffer[16 << 10];
  for (std::size_t turn = 0; turn < kBytesATurn;) {
    const ssize_t got = recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      ended_ = true;
      return;
    }
    const auto bytes = static_cast<std::size_t>(got);
    if (!proven_ && first_bytes_.size() < 16) first_bytes_.append(buffer, std::min<std::size_t>(bytes, 16));
    BIO_write(SSL_get_rbio(ssl_), buffer, static_cast<int>(got));
    received_ += bytes;
    turn += bytes;
    if (!proven_ && received_ > kMostHandshakeBytes) return;
  }
}

void Channel::take_sealed() {
  char buffer[16 << 10];
  for (int got; (got = BIO_read(SSL_get_wbio(ssl_), buffer, sizeof buffer)) > 0;)
    unsent_.append(buffer, static_cast<std::size_t>(got));
}

void Channel::flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t took = ::send(fd(), unsent_.data() + sent, unsent_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (took < 0 && errno == EINTR) continue;
    if (took < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        ended_ = true;
        sent = unsent_.size();
      }
      break;
    }
    sent += static_cast<std::size_t>(took);
  }
  unsent_.erase(0, sent);
}

// Called before OpenSSL sees the bytes, whose errors say little about peers that do not speak TLS.
void Channel::refuse_strangers_language() {
  if (first_bytes_.empty() || first_bytes_[0] == kTlsHandshake) return;
  if (first_bytes_.starts_with(kTcpStoreHello))
    throw Refused("speaks the language of c10d's TCPStore, which has no password");
  throw Refused(fmt::format("sent something else than a handshake: '{}'", printable(first_bytes_)));
}

std::string Channel::why_refused() const {
  if (side_ == Side::client) {
    const bool was_told = ERR_GET_REASON(ERR_peek_last_error()) >= SSL_AD_REASON_OFFSET;  // by an alert
    return fmt::format("{} ({})",
                       was_told ? "the store does not accept this process' token: it belongs to another job"
                                : "what listens there is not the job's store",
                       openssl_reason());
  }
  if (!peer_named_itself_) return fmt::format("shows no token ({})", openssl_reason());
  if (peer_.job != printable(credentials_->self.job))
    return fmt::format("calls itself {} of another job, '{}'", peer_.name, peer_.job);
  return fmt::format("calls itself {} of this job and has another token", peer_.name);
}

bool Channel::handshake() {
  take_from_socket();
  if (side_ == Side::server) refuse_strangers_language();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_, result);
  take_sealed();
  flush();
  if (result == 1) return proven_ = true;
  // Checked after a completed handshake, because a member's first request may arrive together with its end.
  if (received_ > kMostHandshakeBytes) throw Refused("sent more than a handshake has");
  if (error == SSL_ERROR_WANT_READ) return false;
  throw Refused(why_refused());
}

void Channel::send(std::string_view text) {
  // Into memory, which takes all of it; in parts, since OpenSSL counts in int.
  constexpr std::size_t kPart = 1 << 30;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kPart))) {
    ERR_clear_error();
    const auto part = static_cast<int>(std::min(text.size(), kPart));
    if (SSL_write(ssl_, text.data(), part) != part)
      throw Error(fmt::format("OpenSSL cannot seal a message: {}", openssl_reason()));
  }
  take_sealed();
  flush();
}

void Channel::receive(std::string& text) {
  take_from_socket();
  char buffer[16 << 10];
  ERR_clear_error();
  int got;
  while ((got = SSL_read(ssl_, buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<std::size_t>(got));
  const int error = SSL_get_error(ssl_, got);
  if (error == SSL_ERROR_ZERO_RETURN) ended_ = true;
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_ZERO_RETURN)
    throw Refused(fmt::format("sent bytes that it did not seal ({})", openssl_reason()));
}

}  // namespace trireme::store
