// SPDX-License-Identifier: Apache-2.0
// The server's own prompt tables: files of a directory, which requests name.
//
//   NAME.npy           one array [num_rows, hidden_size], float16 or float32 (numpy.save)
//   NAME.safetensors   the tensor `prompt_embeddings`, as PEFT writes it, or the only one there is;
//                      [num_rows, hidden_size], float16, bfloat16 or float32
//
// Files are read when a request first names them, and again when they have changed. Those used last
// are kept, up to kMaxBytes; what running requests hold is theirs.
//
// Threads: any.
// Errors:  kInvalidArgument names the parameter and the table, never the directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/memory_account.h"
#include "contract/prompt_table.h"

namespace inflight::serving {

class PromptTableDir {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;      // of all tables that are kept
  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;  // of a file

  explicit PromptTableDir(std::filesystem::path dir) : dir_(std::move(dir)) {}

  // kNotFound where `dir` is no directory.
  static Result<std::shared_ptr<PromptTableDir>> Open(const std::filesystem::path& dir);

  // `name` is of letters, digits, '-', '_' and '.', and does not begin with '.'. What reading its
  // file takes is charged to `memory` meanwhile: kResourceExhausted where that has no room.
  Result<contract::KnownTable> Get(const std::string& name,
                                   const std::shared_ptr<AccountShare>& memory = nullptr);
  // Whether Get would read a file, of up to kMaxFileBytes: no work for an I/O thread.
  bool HasToRead(const std::string& name) const;

  uint64_t kept_bytes() const;

 private:
  // Changes when the file is replaced or written.
  struct Version {
    uint64_t device = 0, inode = 0, size = 0;
    int64_t mtime_ns = 0;
    bool operator==(const Version&) const = default;
  };
  struct Located {
    std::filesystem::path path;
    Version version;
  };
  struct Entry {
    std::string name;
    Version version;
    contract::KnownTable known;
    uint64_t bytes = 0;
  };

  Result<Located> Locate(const std::string& name) const;
  Result<contract::KnownTable> Read(const std::filesystem::path& path) const;
  void Keep(Entry entry);

  const std::filesystem::path dir_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last first
  uint64_t kept_bytes_ = 0;
};

}  // namespace inflight::serving
