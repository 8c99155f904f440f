// SPDX-License-Identifier: Apache-2.0
// Hashes that stores and their signatures use, over OpenSSL; results are bytes, not text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::object_store {

std::string Sha256(std::string_view text);
std::string HmacSha256(std::string_view key, std::string_view text);
std::string Base64Url(std::string_view bytes);  // RFC 4648, section 5, without padding

// RS256 of RFC 7518: `pem` is a private key. kInvalidArgument where it is none; nothing of the key
// is told.
Result<std::string> SignRs256(const std::string& pem, std::string_view text);

enum class HashKind : uint8_t { kSha1, kSha256 };

// The hash of `prefix` and then the bytes of a file.
Result<std::string> HashFile(const std::filesystem::path& path, HashKind kind,
                             std::string_view prefix = {});

struct FileDigests {
  std::string md5;
  uint32_t crc32c = 0;  // RFC 3720, appendix B.4
  // The MD5 of the MD5s of each `part_bytes` bytes, where that is not 0: the ETag of an S3 upload
  // in parts.
  std::string md5_of_parts;
};

struct WantedDigests {
  bool md5 = false;
  bool crc32c = false;
  uint64_t part_bytes = 0;
};

Result<FileDigests> DigestFile(const std::filesystem::path& path, const WantedDigests& wanted);

}  // namespace inflight::object_store
