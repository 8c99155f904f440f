// SPDX-License-Identifier: Apache-2.0
// The table of contents of a zip file whose entries are stored as they are, such as torch.save
// writes: their bytes are used where they lie in the mapping.
//
//   per entry: local header | name | extra | data        (APPNOTE 4.3.7)
//   central directory: a record per entry                (4.3.12)
//   [zip64 end record | zip64 locator] | end record      (4.3.14 to 4.3.16)
//
// Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT. Stricter than it: compressed
// and encrypted entries, several disks, names that come twice or lead out of a directory, and
// entries that overlap are refused, since readers differ on what they mean. Checksums are not
// compared: torch may write others than CRC-32 (torch.serialization.set_crc32_options).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "inflight/status.h"

namespace inflight::artifact {

struct ZipEntry {
  std::string_view name;  // in the file's bytes, as are the data
  std::span<const std::byte> data;
};

// By the first four bytes, or as many as there are.
bool LooksLikeZip(std::span<const std::byte> bytes);

// The entries in the order of their data. Truncation is kDataLoss, compression
// kUnimplemented, the rest kInvalidArgument.
Result<std::vector<ZipEntry>> ParseZip(std::span<const std::byte> bytes);

}  // namespace inflight::artifact
