// SPDX-License-Identifier: Apache-2.0
#include "object_store/digest.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <unistd.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cerrno>
#include <functional>
#include <memory>

#include "base/base64.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::object_store {
namespace {

using Crc32c = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;

struct Free {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};

// A hash that grows; MD5 is one that FIPS builds of OpenSSL refuse.
class Hash {
 public:
  Status Begin(const EVP_MD* kind) {
    if (context_ != nullptr && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1)
      return Status::Ok();
    return FailedPrecondition("OpenSSL refuses to compute a checksum");
  }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string End() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
    digest.resize(size);
    return digest;
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, Free> context_{EVP_MD_CTX_new()};
};

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// The digests of a file as its bytes come.
class Digester {
 public:
  explicit Digester(const WantedDigests& wanted) : wanted_(wanted) {}

  Status Begin() {
    if (wanted_.md5) RETURN_IF_ERROR(md5_.Begin(EVP_md5()));
    if (wanted_.part_bytes == 0) return Status::Ok();
    RETURN_IF_ERROR(parts_.Begin(EVP_md5()));
    return part_.Begin(EVP_md5());
  }
  Status Add(std::string_view bytes) {
    if (wanted_.md5) md5_.Add(bytes);
    if (wanted_.crc32c) crc_.process_bytes(bytes.data(), bytes.size());
    while (wanted_.part_bytes > 0 && !bytes.empty()) {
      const size_t taken = std::min<uint64_t>(bytes.size(), wanted_.part_bytes - in_part_);
      part_.Add(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      in_part_ += taken;
      if (in_part_ < wanted_.part_bytes) break;
      RETURN_IF_ERROR(EndPart());
    }
    return Status::Ok();
  }
  Result<FileDigests> End() {
    FileDigests digests;
    if (wanted_.md5) digests.md5 = md5_.End();
    if (wanted_.crc32c) digests.crc32c = static_cast<uint32_t>(crc_.checksum());
    if (in_part_ > 0) RETURN_IF_ERROR(EndPart());
    if (wanted_.part_bytes > 0) digests.md5_of_parts = parts_.End();
    return digests;
  }

 private:
  Status EndPart() {
    parts_.Add(part_.End());
    in_part_ = 0;
    return part_.Begin(EVP_md5());
  }

  const WantedDigests wanted_;
  Hash md5_;
  Hash parts_;
  Hash part_;
  uint64_t in_part_ = 0;
  Crc32c crc_;
};

// Hands over the bytes of a file, a MiB at a time.
Status ForEachPart(const std::filesystem::path& path,
                   const std::function<Status(std::string_view)>& take) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return SystemError(path, "open", errno);
  std::string buffer(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t count = read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, "read", errno);
    if (count == 0) return Status::Ok();
    RETURN_IF_ERROR(take(std::string_view(buffer.data(), static_cast<size_t>(count))));
  }
}

}  // namespace

std::string Sha256(std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
             EVP_sha256(), nullptr);
  digest.resize(size);
  return digest;
}

std::string HmacSha256(std::string_view key, std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(text), text.size(),
       reinterpret_cast<unsigned char*>(digest.data()), &size);
  digest.resize(size);
  return digest;
}

std::string Base64Url(std::string_view bytes) {
  std::string text = EncodeBase64(bytes);
  while (text.ends_with('=')) text.pop_back();
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

Result<std::string> SignRs256(const std::string& pem, std::string_view text) {
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const auto no_password = [](char*, int, int, void*) { return -1; };  // and nobody is asked for it
  const std::unique_ptr<EVP_PKEY, Free> key(
      bio == nullptr ? nullptr : PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (key == nullptr || EVP_PKEY_base_id(key.get()) != EVP_PKEY_RSA)
    return InvalidArgument("private_key is no RSA key in PEM");
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  size_t size = 0;
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, Bytes(text), text.size()) != 1)
    return Internal("OpenSSL does not sign");
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Bytes(text), text.size()) != 1)
    return Internal("OpenSSL does not sign");
  signature.resize(size);
  return signature;
}

Result<std::string> HashFile(const std::filesystem::path& path, HashKind kind,
                             std::string_view prefix) {
  Hash hash;
  RETURN_IF_ERROR(hash.Begin(kind == HashKind::kSha1 ? EVP_sha1() : EVP_sha256()));
  hash.Add(prefix);
  RETURN_IF_ERROR(ForEachPart(path, [&](std::string_view bytes) {
    hash.Add(bytes);
    return Status::Ok();
  }));
  return hash.End();
}

Result<FileDigests> DigestFile(const std::filesystem::path& path, const WantedDigests& wanted) {
  Digester digester(wanted);
  RETURN_IF_ERROR(digester.Begin());
  RETURN_IF_ERROR(ForEachPart(path, [&](std::string_view bytes) { return digester.Add(bytes); }));
  return digester.End();
}

}  // namespace inflight::object_store
