// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/tls.h"

#include <utility>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;

Result<std::string> ReadPem(const char* flag, const std::string& path) {
  if (path.empty()) {
    return InvalidArgument(std::string(flag) + ": a PEM file is needed for TLS");
  }
  auto content = ReadFile(path, kMaxPemBytes);
  if (!content.ok()) return content.status().WithPrefix(flag);
  if (content->find("-----BEGIN ") == std::string::npos) {
    return InvalidArgument(std::string(flag) + ": '" + path + "' is no PEM file");
  }
  return content;
}

Status CheckUnused(const TlsOptions& options) {
  for (const auto& [flag, path] : {std::pair("--grpc-server-cert", &options.server_cert),
                                   std::pair("--grpc-server-key", &options.server_key)}) {
    if (!path->empty()) {
      return InvalidArgument(std::string(flag) +
                             ": the port would open without TLS; add --grpc-use-ssl=true");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<::grpc::ServerCredentials>> MakeCredentials(const TlsOptions& options) {
  if (!options.is_enabled && !options.wants_client_cert) {
    RETURN_IF_ERROR(CheckUnused(options));
    return ::grpc::InsecureServerCredentials();
  }
  ::grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("--grpc-server-cert", options.server_cert));
  ASSIGN_OR_RETURN(pair.private_key, ReadPem("--grpc-server-key", options.server_key));
  ::grpc::SslServerCredentialsOptions ssl(
      options.wants_client_cert ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  ssl.pem_key_cert_pairs.push_back(std::move(pair));
  // Without mutual TLS nothing is verified by it; start commands of Triton's have it all the same.
  if (options.wants_client_cert || !options.root_cert.empty()) {
    ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem("--grpc-root-cert", options.root_cert));
  }
  return ::grpc::SslServerCredentials(ssl);
}

}  // namespace inflight::kserve_grpc
