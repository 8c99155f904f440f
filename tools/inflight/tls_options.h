// SPDX-License-Identifier: Apache-2.0
// The options of TLS that each port has under its name (protocol/tls/port_tls.h).
#pragma once

#include <string>

#include "config/schema.h"

namespace inflight::tool {

// `tls` maps Options& to the port's tls::PortTlsOptions.
template <typename Options, typename Tls>
void AddTlsOptions(config::Schema<Options>& schema, const std::string& port, Tls tls) {
  schema.Add(
      port + "_use_ssl", [tls](Options& o) -> auto& { return tls(o).is_enabled; },
      "TLS, 1.2 and 1.3; files are read again when they change.");
  schema.Add(
      port + "_use_ssl_mutual", [tls](Options& o) -> auto& { return tls(o).wants_client_cert; },
      "TLS, and clients need a certificate too.");
  schema.Add(
      port + "_server_cert", [tls](Options& o) -> auto& { return tls(o).server_certs; },
      "PEM file of the server's certificate, with those between it and its root; of several a "
      "client is shown that of the name by which it calls the server, else the first.");
  schema.Add(
      port + "_server_key", [tls](Options& o) -> auto& { return tls(o).server_keys; },
      "PEM file of its private key; of several in the order of their certificates.");
  schema.Add(
      port + "_root_cert", [tls](Options& o) -> auto& { return tls(o).root_cert; },
      "PEM file of the roots that sign the clients' certificates.");
}

}  // namespace inflight::tool
