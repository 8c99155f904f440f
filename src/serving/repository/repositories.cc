// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/repositories.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/log_table.h"
#include "base/status_macros.h"
#include "base/text_table.h"
#include "object_store/address.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {

namespace fs = std::filesystem;

namespace {

// Each takes a part of what the one before it left of a device's memory.
EngineLoader OneByOne(EngineLoader load) {
  return [load = std::move(load), mutex = std::make_shared<std::mutex>()](
             const fs::path& dir, const std::string& owner, const ExecutorOptions& options,
             const AskedPlace& place) {
    const std::lock_guard lock(*mutex);
    return load(dir, owner, options, place);
  };
}

}  // namespace

Repositories::Repositories(const ServerOptions& options, EngineLoader load,
                           std::shared_ptr<WorkerPool> text_pool)
    : options_(WithExit(options, is_exiting_)),
      load_(OneByOne(std::move(load))),
      text_pool_(std::move(text_pool)),
      first_(std::make_shared<Repository>(options_, load_, text_pool_, "")),
      members_{first_} {}

ServerOptions Repositories::WithExit(ServerOptions options,
                                     const std::shared_ptr<std::atomic<bool>>& is_exiting) {
  options.remote.is_cancelled = [is_exiting, before = std::move(options.remote.is_cancelled)] {
    return *is_exiting || (before && before());
  };
  return options;
}

Repositories::Member Repositories::AddNameSpace(const std::string& root) {
  auto member = std::make_shared<Repository>(options_, load_, text_pool_, root);
  const std::lock_guard lock(mutex_);
  members_.push_back(member);
  return member;
}

std::vector<Repositories::Member> Repositories::members() const {
  const std::lock_guard lock(mutex_);
  return members_;
}

std::vector<Repositories::Member> Repositories::Holding(const std::string& name) const {
  std::vector<Member> holding = members();
  std::erase_if(holding, [&](const Member& member) { return !member->Knows(name); });
  return holding;
}

std::vector<Repositories::Member> Repositories::Rooted(const fs::path& root) const {
  std::vector<Member> rooted = members();
  std::erase_if(rooted, [&](const Member& member) { return !member->HasRoot(root); });
  return rooted;
}

HeldTable Repositories::table() const {
  if (!options_.model_namespacing) return first_->table();  // each request asks: one lock is enough
  const std::lock_guard lock(mutex_);
  return table_ ? table_ : first_->table();
}

std::vector<ModelEntry> Repositories::entries() const {
  std::vector<ModelEntry> entries;
  for (const Member& member : members()) {
    const HeldTable table = member->table();
    for (const auto& [name, versions] : table->entries()) {
      entries.insert(entries.end(), versions.begin(), versions.end());
    }
  }
  return entries;
}

void Repositories::Publish() {
  if (!options_.model_namespacing) return;
  const std::lock_guard order(publishing_);
  HeldTable table(entries());
  const std::lock_guard lock(mutex_);
  std::swap(table_, table);  // what it held ends after the lock
}

std::vector<IndexEntry> Repositories::Index(bool ready_only) const {
  std::vector<IndexEntry> index;
  for (const Member& member : members()) {
    for (IndexEntry& entry : member->Index(ready_only)) index.push_back(std::move(entry));
  }
  std::ranges::stable_sort(index, {}, &IndexEntry::name);
  return index;
}

Status Repositories::Load(const std::string& name, const LoadOverride& override) {
  std::vector<Member> holding = Holding(name);
  if (holding.empty()) {  // a store may have got it since it was listed
    for (const Member& member : members()) member->FetchNames();
    holding = Holding(name);
  }
  if (holding.size() > 1) {
    logging::Error("model cannot be polled",
                   {{"model", name}, {"reason", AmbiguousName(name, holding.size()).message()}});
    return Internal("failed to load '" + name + "', failed to poll from model repository");
  }
  const Member member = holding.empty() ? first_ : holding.front();
  Status status = member->Load(name, override);
  Publish();
  return status;
}

Status Repositories::Unload(const std::string& name, bool with_steps) {
  const std::vector<Member> holding = Holding(name);  // none for a name that no model has
  if (holding.size() > 1) return AmbiguousName(name, holding.size());
  for (const Member& member : holding) member->Unload(name, with_steps);
  Publish();
  return Status::Ok();
}

void Repositories::Rescan() {
  for (const Member& member : members()) member->Rescan();
  Publish();
}

Status Repositories::AddRepository(const AddedRepository& added) {
  if (!options_.model_namespacing) return first_->AddRepository(added);
  const std::lock_guard one_by_one(adding_);
  if (const auto known = Rooted(added.root); !known.empty()) {
    return known.front()->AddRepository(added);  // which refuses it
  }
  if (!Holding(added.model).empty()) {
    return AlreadyExists("failed to register '" + added.model + "', there is such a model");
  }
  auto member = std::make_shared<Repository>(options_, load_, text_pool_, added.root);
  RETURN_IF_ERROR(member->AddRepository(added));
  const std::lock_guard lock(mutex_);
  members_.push_back(std::move(member));
  return Status::Ok();
}

void Repositories::RemoveRepository(const std::string& root) {
  const std::lock_guard one_by_one(adding_);
  for (const Member& member : Rooted(root)) {
    member->RemoveRepository(root);
    if (!options_.model_namespacing) continue;
    const std::lock_guard lock(mutex_);
    std::erase(members_, member);
  }
  Publish();
}

// --- at start ---

// A server none of whose models could be loaded is of no use to anybody, but one that will be told
// what to load.
Status Repositories::CheckAllLoaded() const {
  if (!options_.exit_on_error) return Status::Ok();
  std::string reasons;
  bool has_model = false;
  bool has_failure = false;
  for (const Member& member : members()) {
    for (const ModelEntry& entry : member->entries()) {
      has_model |= entry.model != nullptr;
      if (entry.model != nullptr) continue;
      has_failure = true;
      const std::string reason = "'" + entry.name + "': " + ReasonText(entry.status);
      if (entry.required) return entry.status.WithMessage("failed to load all models: " + reason);
      reasons += "; " + reason;
    }
  }
  const bool is_enough = has_model || !has_failure;  // an empty repository is none at all
  if (is_enough || options_.control_mode != ControlMode::kNone) return Status::Ok();
  return FailedPrecondition("failed to load all models: none could be loaded" + reasons);
}

Status Repositories::CheckDirectories() const {
  for (const std::string& dir : options_.model_repositories) {
    std::error_code error;
    const bool is_there = object_store::IsAddress(dir) || fs::is_directory(dir, error);
    if (!is_there) return Internal("failed to stat file " + dir);
  }
  return Status::Ok();
}

// Mode explicit: what --load-model names, nothing else.
Status Repositories::LoadNamed() {
  for (const std::string& name : options_.load_models) {
    const Status status = Load(name, {});
    if (status.ok()) continue;
    logging::Error("model not loaded", {{"model", name}, {"reason", status.message()}});
    if (options_.exit_on_error) {
      return status.WithPrefix("failed to load all models");
    }
  }
  return Status::Ok();
}

void Repositories::LogModels() const {
  std::vector<std::vector<std::string>> rows = {{"Model", "Version", "Status"}};
  const HeldTable table = this->table();
  for (const auto& [name, versions] : table->entries()) {
    for (const ModelEntry& entry : versions) {
      const std::string reason = ReasonOf(entry);
      rows.push_back({name, entry.version.empty() ? "-" : entry.version,
                      std::string(StateOf(entry)) + (reason.empty() ? "" : ": " + reason)});
    }
  }
  logging::Table("models", TextTable(rows));
}

Status Repositories::LoadAtStart() {
  if (const Status found = CheckDirectories(); !found.ok()) {
    if (options_.exit_on_error) return found.WithPrefix("creating server");
    logging::Error("a model repository is not there; the server serves no model",
                   {{"reason", found.message()}});
    is_usable_ = false;
    return Status::Ok();
  }
  const bool is_explicit = options_.control_mode == ControlMode::kExplicit;
  const bool loads_named = is_explicit && options_.load_models != std::vector<std::string>{"*"};
  for (const std::string& dir : options_.model_dirs) {
    if (FindRepository(dir)) first_->AddRepository(dir);
  }
  std::vector<std::pair<std::string, Member>> places;
  for (const std::string& dir : options_.model_repositories) {
    const bool is_remote = object_store::IsAddress(dir);
    const auto has_it = [&](const Member& member) { return member->HasRemote(dir); };
    const bool is_known = is_remote ? std::ranges::any_of(members(), has_it) : !Rooted(dir).empty();
    if (options_.model_namespacing && is_known) continue;
    const Member member = options_.model_namespacing ? AddNameSpace(dir) : first_;
    if (!is_remote) {
      member->AddRepository(fs::path(dir));
      places.emplace_back(dir, member);
    } else if (const auto root = member->AddRemote(dir, /*with_files=*/!loads_named)) {
      places.emplace_back(root->string(), member);
    }
  }
  for (const std::string& dir : options_.model_dirs) {
    if (FindRepository(dir)) {
      first_->LoadRepository(dir);
    } else {
      first_->LoadModelDir(dir);
    }
  }
  Status loaded;
  if (loads_named) {
    loaded = LoadNamed();
  } else {
    for (const auto& [dir, member] : places) member->LoadRepository(dir);
  }
  Publish();
  LogModels();
  RETURN_IF_ERROR(loaded);
  return CheckAllLoaded();
}

}  // namespace inflight::serving
