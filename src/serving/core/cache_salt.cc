// SPDX-License-Identifier: Apache-2.0
#include "serving/core/cache_salt.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <string>

namespace inflight::serving {
namespace {

constexpr size_t kMaxSaltBytes = 1024;

// "" where it is no text.
std::string_view SaltText(const Request& request) {
  const auto found = request.parameters.find(kCacheSalt);
  if (found == request.parameters.end()) return {};
  const auto* text = std::get_if<std::string>(&found->second);
  return text != nullptr ? std::string_view(*text) : std::string_view();
}

}  // namespace

Result<uint64_t> CacheSaltOf(const Request& request, std::string_view contents) {
  const auto found = request.parameters.find(kCacheSalt);
  if (found != request.parameters.end() && !std::holds_alternative<std::string>(found->second))
    return InvalidArgument(kCacheSalt, "the parameter has another type, must be a string");
  const std::string_view text = SaltText(request);
  if (text.size() > kMaxSaltBytes) {
    return InvalidArgument(kCacheSalt, "got " + std::to_string(text.size()) +
                                           " bytes, must be at most " +
                                           std::to_string(kMaxSaltBytes));
  }
  const Identity identity = request.identity();
  if (text.empty() && identity == Identity{} && contents.empty()) return uint64_t{0};
  std::string hashed(identity.begin(), identity.end());  // of a fixed length
  hashed += text;
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  const auto hash = [&digest](const std::string& bytes) {
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  };
  hash(hashed);
  if (!contents.empty()) hash(std::string(digest.begin(), digest.end()) + std::string(contents));
  uint64_t salt = 0;
  for (size_t i = 0; i < sizeof(salt); ++i) salt = salt << 8 | digest[i];
  return std::max<uint64_t>(salt, 1);  // 0 is that of all who have none
}

}  // namespace inflight::serving
