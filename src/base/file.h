// SPDX-License-Identifier: Apache-2.0
// Whole-file reads and writes, and read-only mappings. Errors name the path and the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "inflight/status.h"

namespace inflight {

bool FileExists(const std::filesystem::path& path);  // false where that cannot be told

// "<path>: cannot <what>: <the system's reason>"; kNotFound where `error` (errno) says so.
Status SystemError(const std::filesystem::path& path, std::string_view what, int error);

// kNotFound when there is none; kInvalidArgument when larger than `max_bytes`.
Result<std::string> ReadFile(const std::filesystem::path& path,
                             uint64_t max_bytes = uint64_t{1} << 30);
// Of a file that is open; `path` is for errors.
Result<std::string> ReadOpenFile(const Descriptor& file, const std::filesystem::path& path,
                                 uint64_t max_bytes);

// Writes beside `path` and renames over it (create_file.h), so that readers see the old or the new
// content.
Status WriteFile(const std::filesystem::path& path, std::string_view content);

// Read-only private mapping of a whole file; empty files map to an empty span. What reads bytes
// that were cut off the file since gets SIGBUS (mapped_places.h).
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Copies a part of the mapping by reading the file, which is faster than the first touch of
  // mapped pages, and where the file was cut short meanwhile an error (kDataLoss) and not a signal.
  // Thread-safe.
  Status Read(std::span<const std::byte> part, std::byte* target) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace inflight
