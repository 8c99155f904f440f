// SPDX-License-Identifier: Apache-2.0
#include "protocol/tls/server_names.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <utility>

namespace inflight::tls {
namespace {

namespace ssl = boost::asio::ssl;

using Contexts = std::vector<std::shared_ptr<ssl::context>>;

bool HasName(ssl::context& context, const std::string& name, unsigned int flags) {
  X509* const certificate = SSL_CTX_get0_certificate(context.native_handle());
  return X509_check_host(certificate, name.data(), name.size(), flags, nullptr) == 1;
}

int SelectCertificate(SSL* connection, int*, void* of) {
  const auto& contexts = *static_cast<const Contexts*>(of);
  const char* const name = SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name);
  if (name == nullptr) return SSL_TLSEXT_ERR_NOACK;
  const size_t place = FindCertificate(contexts, name);
  if (place > 0) SSL_set_SSL_CTX(connection, contexts[place]->native_handle());
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

size_t FindCertificate(const Contexts& contexts, const std::string& name) {
  for (const unsigned int flags :
       {X509_CHECK_FLAG_NO_WILDCARDS, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS}) {
    for (size_t place = 0; place < contexts.size(); ++place)
      if (HasName(*contexts[place], name, flags)) return place;
  }
  return 0;
}

std::shared_ptr<ssl::context> ChooseByName(Contexts contexts) {
  if (contexts.size() == 1) return contexts.front();
  const auto owner = std::make_shared<const Contexts>(std::move(contexts));
  ssl::context& first = *owner->front();
  SSL_CTX_set_tlsext_servername_callback(first.native_handle(), SelectCertificate);
  SSL_CTX_set_tlsext_servername_arg(first.native_handle(), const_cast<Contexts*>(owner.get()));
  return {owner, &first};
}

}  // namespace inflight::tls
