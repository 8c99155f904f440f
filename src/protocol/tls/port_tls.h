// SPDX-License-Identifier: Apache-2.0
// What a port asks of its clients before they may speak: nothing, TLS, or TLS with a certificate of
// theirs. The options of a port begin with its name: --http-use-ssl, --metrics-use-ssl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "protocol/tls/server_tls.h"

namespace inflight::tls {

// PEM files.
struct PortTlsOptions {
  std::string port = "http";       // the name: http, grpc or metrics
  bool is_enabled = false;         // --<port>-use-ssl
  bool wants_client_cert = false;  // --<port>-use-ssl-mutual, which enables TLS too
  // --<port>-server-cert and --<port>-server-key: the key of each certificate, in their order.
  std::vector<std::string> server_certs;
  std::vector<std::string> server_keys;
  std::string root_cert;  // --<port>-root-cert: who signs the clients' certificates

  bool is_on() const { return is_enabled || wants_client_cert; }
};

// Null: without TLS. A key or a certificate is an error then, since a port that its operator takes
// for encrypted must not open in plain text. `protocol`: as of ServerTlsOptions.
Result<std::shared_ptr<ServerTls>> MakePortTls(const PortTlsOptions& options,
                                               const std::string& protocol);

}  // namespace inflight::tls
