// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "base/check.h"

namespace inflight {

struct Sha256::Context {
  Context() : of_openssl(EVP_MD_CTX_new()) {}
  ~Context() { EVP_MD_CTX_free(of_openssl); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_MD_CTX* const of_openssl;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  CHECK_EQ(EVP_DigestInit_ex(context_->of_openssl, EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(context_->of_openssl, bytes.data(), bytes.size()), 1);
}

std::string Sha256::End() {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  CHECK_EQ(EVP_DigestFinal_ex(context_->of_openssl, reinterpret_cast<unsigned char*>(digest.data()),
                              nullptr),
           1);
  return digest;
}

}  // namespace inflight
