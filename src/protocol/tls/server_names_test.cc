// SPDX-License-Identifier: Apache-2.0
#include "protocol/tls/server_names.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

namespace inflight::tls {
namespace {

namespace ssl = boost::asio::ssl;

void AddText(X509* certificate, int kind, const std::string& text) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, text.c_str());
  ASSERT_NE(extension, nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// With a certificate that signs itself: "DNS:a.example,DNS:*.b.example".
std::shared_ptr<ssl::context> ContextOf(const std::string& names, const std::string& common_name) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_pubkey(certificate, key);
  if (!names.empty()) AddText(certificate, NID_subject_alt_name, names);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  EXPECT_EQ(SSL_CTX_use_certificate(context->native_handle(), certificate), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context->native_handle(), key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return context;
}

class ServerNamesTest : public testing::Test {
 protected:
  size_t Find(const std::string& name) const { return FindCertificate(contexts_, name); }

  const std::vector<std::shared_ptr<ssl::context>> contexts_ = {
      ContextOf("DNS:first.example", "server"),
      ContextOf("DNS:*.wild.example", "server"),
      ContextOf("DNS:one.example,DNS:two.wild.example,IP:127.0.0.1", "server"),
      ContextOf("", "old.example"),
      ContextOf("DNS:one.example,DNS:*.deep.wild.example", "server"),
  };
};

TEST_F(ServerNamesTest, ANameThatACertificateHasAsItIsComesFirst) {
  EXPECT_EQ(Find("first.example"), 0U);
  EXPECT_EQ(Find("one.example"), 2U);  // the first of two
  EXPECT_EQ(Find("ONE.Example"), 2U);
  EXPECT_EQ(Find("two.wild.example"), 2U);  // not the wildcard, which stands before
  EXPECT_EQ(Find("old.example"), 3U);       // of a certificate without other names
}

TEST_F(ServerNamesTest, AWildcardStandsForOneLabel) {
  EXPECT_EQ(Find("three.wild.example"), 1U);
  EXPECT_EQ(Find("three.deep.wild.example"), 4U);
  EXPECT_EQ(Find("deep.wild.example"), 1U);
  EXPECT_EQ(Find("a.three.wild.example"), 0U);
  EXPECT_EQ(Find("wild.example"), 0U);
}

TEST_F(ServerNamesTest, AnUnknownNameGetsTheFirst) {
  for (const char* name : {"", "elsewhere.test", "example", "server", "127.0.0.1", "*"})
    EXPECT_EQ(Find(name), 0U) << name;
}

TEST_F(ServerNamesTest, TheFirstStandsForAll) {
  EXPECT_EQ(ChooseByName(contexts_), contexts_.front());
  EXPECT_EQ(ChooseByName({contexts_[1]}), contexts_[1]);
}

}  // namespace
}  // namespace inflight::tls
