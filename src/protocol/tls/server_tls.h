// SPDX-License-Identifier: Apache-2.0
// TLS of a listener: certificates and keys from PEM files, which are read again when they change.
// TLS 1.2 and 1.3. Of several certificates a client is shown that of the name by which it calls the
// server (server_names.h).
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::tls {

// A PEM file and the option that names it.
struct PemFile {
  std::string path;
  std::string option;
};

// A certificate of the server, with those that sign it, and its key.
struct CertificateFiles {
  PemFile cert;
  PemFile key;
};

struct ServerTlsOptions {
  std::vector<CertificateFiles> certificates = {};  // at least one
  PemFile root;                                     // who signs the clients' certificates
  bool wants_client_cert = false;                   // mutual: a client without one is refused
  std::string protocol;                             // ALPN: clients have to offer it
};

// Threads: current() is thread-safe.
class ServerTls {
 public:
  // kInvalidArgument names option and file.
  static Result<std::shared_ptr<ServerTls>> Make(ServerTlsOptions options);

  // For a new connection. Looks at the files once a second at most; where they have changed and one
  // makes no certificate and key, all of the old ones stay and a line is logged.
  std::shared_ptr<boost::asio::ssl::context> current();

 private:
  using Times = std::vector<std::filesystem::file_time_type>;

  explicit ServerTls(ServerTlsOptions options) : options_(std::move(options)) {}

  Times FileTimes() const;

  const ServerTlsOptions options_;
  std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> current_;
  Times times_;  // of the files that current_ was made of
  int64_t looked_ns_ = 0;
};

}  // namespace inflight::tls
