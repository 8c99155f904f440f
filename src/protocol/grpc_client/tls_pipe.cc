// SPDX-License-Identifier: Apache-2.0
#include "protocol/grpc_client/tls_pipe.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace inflight::grpc_client {
namespace {

constexpr size_t kPieceBytes = 64 * 1024;  // fits OpenSSL's int

// Of the protocol, as ALPN has it: a length before each name.
constexpr unsigned char kH2[] = {2, 'h', '2'};

}  // namespace

TlsPipe::TlsPipe(const std::string& host) : context_(SSL_CTX_new(TLS_client_method())) {
  CHECK(context_ != nullptr);
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
  SSL_CTX_set_default_verify_paths(context_.get());
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  ssl_.reset(SSL_new(context_.get()));
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  CHECK(ssl_ != nullptr && in_ != nullptr && out_ != nullptr);
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_connect_state(ssl_.get());
  SSL_set_alpn_protos(ssl_.get(), kH2, sizeof kH2);
  // An address stands in another field of the certificate, and is no server_name.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str()) == 1) return;
  SSL_set1_host(ssl_.get(), host.c_str());
  SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
}

void TlsPipe::TakeOut(std::string* out) {
  std::array<char, 16 * 1024> piece;
  int count = 0;
  while ((count = BIO_read(out_, piece.data(), static_cast<int>(piece.size()))) > 0)
    out->append(piece.data(), static_cast<size_t>(count));
}

TlsPipe::State TlsPipe::Shake(std::string* out) {
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  TakeOut(out);
  if (done == 1) return State::kReady;
  return SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ ? State::kShaking : State::kFailed;
}

std::string TlsPipe::error() const {
  const int64_t verified = SSL_get_verify_result(ssl_.get());
  if (verified != X509_V_OK) return X509_verify_cert_error_string(verified);
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "the handshake was broken off" : reason;
}

bool TlsPipe::Receive(std::string_view bytes, std::string* plain) {
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kPieceBytes);
    BIO_write(in_, bytes.data(), static_cast<int>(size));
    bytes.remove_prefix(size);
  }
  if (SSL_is_init_finished(ssl_.get()) == 0) return true;  // Shake goes on with it
  std::array<char, 16 * 1024> piece;
  while (true) {
    ERR_clear_error();
    const int count = SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size()));
    if (count <= 0) return SSL_get_error(ssl_.get(), count) == SSL_ERROR_WANT_READ;
    plain->append(piece.data(), static_cast<size_t>(count));
  }
}

bool TlsPipe::Send(std::string_view plain, std::string* out) {
  while (!plain.empty()) {
    const size_t size = std::min(plain.size(), kPieceBytes);
    ERR_clear_error();
    if (SSL_write(ssl_.get(), plain.data(), static_cast<int>(size)) <= 0) return false;
    plain.remove_prefix(size);
  }
  TakeOut(out);
  return true;
}

}  // namespace inflight::grpc_client
