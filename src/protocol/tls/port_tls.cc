// SPDX-License-Identifier: Apache-2.0
#include "protocol/tls/port_tls.h"

#include <utility>

namespace inflight::tls {

Result<std::shared_ptr<ServerTls>> MakePortTls(const PortTlsOptions& options,
                                               const std::string& protocol) {
  const std::string prefix = "--" + options.port;
  const std::string cert_option = prefix + "-server-cert";
  const std::string key_option = prefix + "-server-key";
  std::vector<std::string> certs = options.server_certs;
  std::vector<std::string> keys = options.server_keys;
  std::erase(certs, "");  // as command lines have them that leave it open
  std::erase(keys, "");
  if (!options.is_on()) {
    if (certs.empty() && keys.empty()) return std::shared_ptr<ServerTls>();
    return InvalidArgument(certs.empty() ? key_option : cert_option,
                           "the port would open without TLS; add " + prefix + "-use-ssl=true");
  }
  if (certs.empty()) return InvalidArgument(cert_option, "a PEM file is needed for TLS");
  if (keys.empty()) return InvalidArgument(key_option, "a PEM file is needed for TLS");
  if (certs.size() != keys.size()) {
    return InvalidArgument(key_option, "got " + std::to_string(keys.size()) + " where " +
                                           cert_option + " has " + std::to_string(certs.size()) +
                                           "; each certificate has a key, in the same order");
  }
  ServerTlsOptions made{.root = {options.root_cert, prefix + "-root-cert"},
                        .wants_client_cert = options.wants_client_cert,
                        .protocol = protocol};
  for (size_t i = 0; i < certs.size(); ++i)
    made.certificates.push_back({.cert = {certs[i], cert_option}, .key = {keys[i], key_option}});
  return ServerTls::Make(std::move(made));
}

}  // namespace inflight::tls
