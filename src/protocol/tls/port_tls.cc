// SPDX-License-Identifier: Apache-2.0
#include "protocol/tls/port_tls.h"

namespace inflight::tls {

Result<std::shared_ptr<ServerTls>> MakePortTls(const PortTlsOptions& options,
                                               const std::string& protocol) {
  const std::string prefix = "--" + options.port;
  const PemFile cert = {options.server_cert, prefix + "-server-cert"};
  const PemFile key = {options.server_key, prefix + "-server-key"};
  if (options.is_on()) {
    return ServerTls::Make({.cert = cert,
                            .key = key,
                            .root = {options.root_cert, prefix + "-root-cert"},
                            .wants_client_cert = options.wants_client_cert,
                            .protocol = protocol});
  }
  for (const PemFile& file : {cert, key}) {
    if (file.path.empty()) continue;
    return InvalidArgument(file.option + ": the port would open without TLS; add " + prefix +
                           "-use-ssl=true");
  }
  return std::shared_ptr<ServerTls>();
}

}  // namespace inflight::tls
