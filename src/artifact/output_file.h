// SPDX-License-Identifier: Apache-2.0
// A large file being written: it appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/create_file.h"
#include "inflight/status.h"

namespace inflight::artifact {

// Writes to a temporary file beside PATH (base/create_file.h) and renames it in Commit; destroyed
// before that, it leaves nothing behind.
// Threads: one at a time.
class OutputFile {
 public:
  static Result<OutputFile> Create(const std::filesystem::path& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status WriteAt(uint64_t offset, std::span<const std::byte> data);
  Status Commit(uint64_t size_bytes);  // gives the file this size, then its name

 private:
  OutputFile() = default;
  Status Error(const char* what) const;  // of errno

  std::filesystem::path path_;
  TemporaryFile temporary_;
};

}  // namespace inflight::artifact
