// SPDX-License-Identifier: Apache-2.0
// The models of a server at one moment: an immutable picture that every request reads without a
// lock, while loads and unloads prepare the next one.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/core/model.h"

namespace inflight::serving {

class LlmModel;

// One version of one model, loaded or not. "" = a model of which no version is known.
struct ModelEntry {
  std::string name;
  std::string version;
  std::string name_space = {};     // empty unless repositories are namespaces
  std::shared_ptr<Model> model;    // null = not loaded
  Status status;                   // why not
  bool required = true;            // its failure makes the server not ready
  bool is_registered = true;       // false: its configuration could not be used
  bool is_from_repository = true;  // false: generated for a model directory
  // Unloaded on purpose. What still runs keeps `leaving` alive: until then the version is
  // UNLOADING.
  bool is_unloaded = false;
  std::weak_ptr<Model> leaving;
  std::filesystem::path dir;  // empty for what is no model of a repository
};

// "READY", "UNLOADING" or "UNAVAILABLE".
std::string_view StateOf(const ModelEntry& entry);
// Why it is not ready: "unloaded", "Invalid argument: ...", of a loaded one that it sleeps; empty
// when it is.
std::string ReasonOf(const ModelEntry& entry);
// "Invalid argument: ...": how the index prints a status.
std::string ReasonText(const Status& status);

// A bare name that `count` namespaces have.
Status AmbiguousName(std::string_view name, size_t count);

class ModelTable {
 public:
  explicit ModelTable(const std::vector<ModelEntry>& entries);

  // kNotFound, kUnavailable and kInvalidArgument: docs/reference/protocol/common.md has the texts.
  // Empty version = the latest that is ready. A name of several namespaces is kInvalidArgument.
  Result<std::shared_ptr<Model>> Find(std::string_view name, std::string_view version) const;
  bool ready() const;  // every required version is
  using Entries = std::map<std::string, std::vector<ModelEntry>, std::less<>>;
  const Entries& entries() const { return entries_; }  // versions ascending

  const std::vector<std::shared_ptr<Model>>& models() const { return models_; }  // by name, version
  const std::vector<std::shared_ptr<LlmModel>>& llms() const { return llms_; }
  // The LLM that an ensemble or a BLS, by its configuration, joins a text model with; empty if
  // none.
  std::string_view PartnerOf(std::string_view text_model) const;

 private:
  void FindPartners();

  Entries entries_;
  std::vector<std::shared_ptr<Model>> models_;
  std::vector<std::shared_ptr<LlmModel>> llms_;
  std::map<std::string, std::string, std::less<>> partners_;
};

// A table that lives as long as this. Only one with a name may be looked into: behind a temporary,
// what `for (... : table()->llms())` reads would be gone with the next load.
class HeldTable {
 public:
  HeldTable() = default;  // of none
  explicit HeldTable(const std::vector<ModelEntry>& entries)
      : table_(std::make_shared<const ModelTable>(entries)) {}

  explicit operator bool() const { return table_ != nullptr; }
  const ModelTable* operator->() const& { return table_.get(); }
  const ModelTable* operator->() const&& = delete;

 private:
  std::shared_ptr<const ModelTable> table_;
};

// The newest table, for whoever may outlive its repository, as a model does that a request holds.
//
// Threads: all methods are thread-safe.
class PublishedTable {
 public:
  HeldTable Get() const {
    const std::lock_guard lock(mutex_);
    return table_;
  }
  void Set(HeldTable table) {
    const std::lock_guard lock(mutex_);
    std::swap(table_, table);  // what it held ends after the lock
  }

 private:
  // A lock, held for a copy of the pointer: the loads of std::atomic<std::shared_ptr> of libstdc++
  // 12 do not order themselves before the next store.
  mutable std::mutex mutex_;
  HeldTable table_;
};

}  // namespace inflight::serving
