// SPDX-License-Identifier: Apache-2.0
// TLS of a client of gRPC, between bytes and a socket that somebody else reads and writes: OpenSSL
// over memory, so that no call waits. Server certificates have to be signed by an authority that
// this machine trusts (SSL_CERT_FILE names another file of them), for the host that is called.
//
// Threads: one.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <string_view>

namespace inflight::grpc_client {

class TlsPipe {
 public:
  explicit TlsPipe(const std::string& host);

  enum class State { kShaking, kReady, kFailed };

  // Goes on with the handshake; what is to be sent is appended to `out`.
  State Shake(std::string* out);
  // Why it failed.
  std::string error() const;

  // What came from the socket. False: it is no TLS, or the server has ended it.
  bool Receive(std::string_view bytes, std::string* plain);
  // Encrypts what is to be sent; once it is ready.
  bool Send(std::string_view plain, std::string* out);

 private:
  void TakeOut(std::string* out);

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
  BIO* in_ = nullptr;   // the SSL's own
  BIO* out_ = nullptr;  // the same
};

}  // namespace inflight::grpc_client
