// SPDX-License-Identifier: Apache-2.0
#include "protocol/tls/server_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include <boost/asio/buffer.hpp>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "protocol/tls/server_names.h"

namespace inflight::tls {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;

constexpr uint64_t kMaxPemBytes = 1 << 20;
constexpr int64_t kLookNs = 1'000'000'000;

Result<std::string> ReadPem(const PemFile& file) {
  if (file.path.empty()) return InvalidArgument(file.option + ": a PEM file is needed for TLS");
  auto content = ReadFile(file.path, kMaxPemBytes);
  if (!content.ok()) return content.status().WithPrefix(file.option);
  if (content->find("-----BEGIN ") == std::string::npos) {
    return InvalidArgument(file.option + ": '" + file.path + "' is no PEM file");
  }
  return content;
}

Status Wrong(const PemFile& file, const boost::system::error_code& ec) {
  return InvalidArgument(file.option, "'" + file.path + "': " + ec.message());
}

int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void* wanted) {
  const auto& protocol = *static_cast<const std::string*>(wanted);
  for (unsigned int at = 0; at < offered_size; at += 1U + offered[at]) {
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
    if (name != protocol) continue;
    *out = offered + at + 1;
    *out_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

// With one certificate of the options. `protocol` outlives the result.
Result<std::shared_ptr<ssl::context>> MakeContext(const ServerTlsOptions& options,
                                                  const CertificateFiles& files) {
  ASSIGN_OR_RETURN(const std::string cert, ReadPem(files.cert));
  ASSIGN_OR_RETURN(const std::string key, ReadPem(files.key));
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);  // which costs the server most
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);    // of idle connections
  // Sessions of mutual TLS go on where they are this port's.
  static constexpr unsigned char kSessions[] = "inflight";
  SSL_CTX_set_session_id_context(native, kSessions, sizeof(kSessions) - 1);
  boost::system::error_code ec;
  context->use_certificate_chain(asio::buffer(cert), ec);
  if (ec) return Wrong(files.cert, ec);
  context->use_private_key(asio::buffer(key), ssl::context::pem, ec);
  if (ec.value() == static_cast<int>(ERR_PACK(ERR_LIB_X509, 0, X509_R_KEY_VALUES_MISMATCH)) ||
      (!ec && SSL_CTX_check_private_key(context->native_handle()) != 1)) {
    return InvalidArgument("do " + files.cert.option + " and " + files.key.option +
                           " belong to each other? got '" + files.cert.path + "' and '" +
                           files.key.path + "'");
  }
  if (ec) return Wrong(files.key, ec);
  // Without mutual TLS nothing is verified by it; start commands of Triton's have it all the same.
  if (options.wants_client_cert || !options.root.path.empty()) {
    ASSIGN_OR_RETURN(const std::string root, ReadPem(options.root));
    context->add_certificate_authority(asio::buffer(root), ec);
    if (ec) return Wrong(options.root, ec);
  }
  if (options.wants_client_cert) {
    context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }
  SSL_CTX_set_alpn_select_cb(context->native_handle(), SelectProtocol,
                             const_cast<std::string*>(&options.protocol));
  return context;
}

Result<std::shared_ptr<ssl::context>> MakeContexts(const ServerTlsOptions& options) {
  std::vector<std::shared_ptr<ssl::context>> contexts;
  for (const CertificateFiles& files : options.certificates) {
    ASSIGN_OR_RETURN(contexts.emplace_back(), MakeContext(options, files));
  }
  return ChooseByName(std::move(contexts));
}

}  // namespace

Result<std::shared_ptr<ServerTls>> ServerTls::Make(ServerTlsOptions options) {
  std::shared_ptr<ServerTls> made(new ServerTls(std::move(options)));
  made->times_ = made->FileTimes();
  ASSIGN_OR_RETURN(made->current_, MakeContexts(made->options_));
  return made;
}

std::shared_ptr<ssl::context> ServerTls::current() {
  const std::lock_guard lock(mutex_);
  const int64_t now_ns = Clock::System().NowNs();
  if (now_ns - looked_ns_ < kLookNs) return current_;
  looked_ns_ = now_ns;
  Times times = FileTimes();
  if (times == times_) return current_;
  times_ = std::move(times);
  auto made = MakeContexts(options_);
  if (made.ok()) {
    current_ = *std::move(made);
    logging::Info("certificates were read again",
                  {{"file", options_.certificates.front().cert.path}});
  } else {
    logging::Error("certificates have changed and cannot be used; those before stay in use",
                   {{"reason", made.status().message()}});
  }
  return current_;
}

ServerTls::Times ServerTls::FileTimes() const {
  Times times;
  const auto look = [&](const PemFile& file) {
    std::error_code ec;
    const auto time = std::filesystem::last_write_time(file.path, ec);
    times.push_back(ec ? std::filesystem::file_time_type() : time);
  };
  for (const CertificateFiles& files : options_.certificates) {
    look(files.cert);
    look(files.key);
  }
  look(options_.root);
  return times;
}

}  // namespace inflight::tls
