// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) by name: folders that peft made, which requests choose by the parameter
// `lora_name` (docs/reference/adapters.md, "By name"). A folder is read when a request first names
// it, and again when its files have changed.
//
// Threads: all methods are thread-safe. Errors of requests name no path; the log does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "inflight/adapter.h"
#include "serving/core/generation.h"
#include "serving/core/request.h"

namespace inflight::serving {

// What of them an executor has in memory.
struct LoadedAdapters {
  std::vector<std::string> names;  // the newest use first
  int max = 0;                     // for how many there is room (AdapterStats)
};

class NamedAdapters final : public AdapterNames {
 public:
  using Reader = std::function<Result<LoraTensors>(const std::filesystem::path&)>;

  // `modules` are "name=folder", which must be there; each folder in `dir` is one under its own
  // name, also those that come later; "" is none.
  static Result<std::shared_ptr<NamedAdapters>> Make(const std::vector<std::string>& modules,
                                                     const std::string& dir, Reader reader);

  std::vector<std::string> Names() const override;
  Result<FoundAdapter> Find(const std::string& name) override;

  // Whose ids these are, in their order; an id of files that have changed since is nobody's.
  std::vector<std::string> NamesOf(std::span<const uint64_t> ids);

 private:
  using Files = std::vector<std::pair<int64_t, uint64_t>>;  // when written, size
  struct Version {
    uint64_t id = 0;
    Files files;
  };

  NamedAdapters(std::filesystem::path dir, Reader reader)
      : dir_(std::move(dir)), reader_(std::move(reader)) {}
  std::filesystem::path FolderOf(const std::string& name) const;

  const std::filesystem::path dir_;
  const Reader reader_;
  std::map<std::string, std::filesystem::path, std::less<>> modules_;
  std::mutex mutex_;  // of what is below
  std::map<std::string, Version, std::less<>> versions_;
  uint64_t last_id_ = 0;
};

// What it reads is charged to `memory`, which may be null, while somebody has it.
// kResourceExhausted of the read where that has no room.
LoraUse ChargedUse(const FoundAdapter& found, const std::shared_ptr<AccountShare>& memory);

// The name that a request gives; "" where it gives none. kInvalidArgument where it is no text.
Result<std::string> LoraNameOf(const Request& request);

}  // namespace inflight::serving
