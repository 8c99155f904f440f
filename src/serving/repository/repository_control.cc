// SPDX-License-Identifier: Apache-2.0
// Repository: models that are loaded and unloaded while the server runs
// (docs/reference/repositories.md, "Loading while the server runs").
#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/ensemble/ensemble_graph.h"
#include "serving/llm/llm_model.h"
#include "serving/repository/repository.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;

// The models that it holds as steps. Those of a BLS are found by each request.
std::vector<std::string> StepsOf(const ModelEntry& entry) {
  if (entry.model == nullptr) return {};
  std::vector<std::string> names;
  for (const auto& step : entry.model->config().ensemble_scheduling().step()) {
    names.push_back(step.model_name());
  }
  return names;
}

bool Uses(const ModelEntry& entry, const std::string& name) {
  const std::vector<std::string> steps = StepsOf(entry);
  return std::find(steps.begin(), steps.end(), name) != steps.end();
}

Status CannotPoll(const std::string& name, const Status& why) {
  logging::Error("model cannot be polled", {{"model", name}, {"reason", why.message()}});
  return Internal("failed to load '" + name + "', failed to poll from model repository");
}

Status LoadFailed(const std::string& name, const std::string& why, Reason reason = Reason::kNone) {
  const std::string message = "load failed for model '" + name + "': " + why + "\n";
  return reason == Reason::kOutOfMemory ? OutOfMemory(message) : InvalidArgument(message);
}

std::string VersionFailed(const std::string& version, const Status& why) {
  return "version " + version + " is at UNAVAILABLE state: " + ReasonText(why) + ";";
}

// What failed for the lack of memory, or of room for files, stays that for those that it was loaded
// for.
Reason LoadReason(Reason so_far, const Status& failure) {
  return failure.code() == StatusCode::kResourceExhausted ? Reason::kOutOfMemory : so_far;
}

// Of a version that leaves.
void EndSleepOf(const ModelEntry& entry) {
  if (auto* const llm = dynamic_cast<LlmModel*>(entry.model.get())) llm->EndSleep();
}

}  // namespace

Status Repository::Load(const std::string& name, const LoadOverride& override) {
  RETURN_IF_ERROR(CheckModelName(name));
  std::unique_lock lock(control_mutex_);
  std::set<std::string> fetched;
  if (!override.files.empty()) fetched.insert(name);  // it brings its files
  while (true) {
    std::set<std::string> claimed;
    const ModelClaims::Scope claim(claims_, lock, ModelClaims::Kind::kLoad,
                                   [&] { return claimed = ConnectedWith(name, override); });
    if (mirrors_.empty()) return LoadClaimed(name, override);
    const Status status = FetchFiles(name, claimed, fetched);
    if (!status.ok()) return CannotPoll(name, status);
    // The files may name models that nobody knew of.
    if (std::ranges::includes(claimed, ConnectedWith(name, override)))
      return LoadClaimed(name, override);
  }
}

Status Repository::LoadClaimed(const std::string& name, const LoadOverride& override) {
  loader_.ForgetTokenizers();  // their files may have changed; models of one load share them
  Loading loading;
  Status status = LoadOne(name, override, loading);
  Publish();
  return status;
}

Status Repository::LoadOne(const std::string& name, const LoadOverride& override,
                           Loading& loading) {
  if (!loading.in_progress.insert(name).second) {
    return LoadFailed(name, CircularEnsembles(name, name).message());
  }
  if (loading.failed.contains(name)) return LoadFailed(name, "it has failed already");
  Status status;
  try {
    status = TryLoad(name, override, loading);
  } catch (const std::bad_alloc& e) {
    status = LoadFailed(name, e.what(), Reason::kOutOfMemory);
  } catch (const std::exception& e) {  // threads, files
    status = LoadFailed(name, e.what());
  }
  if (!status.ok()) loading.failed.insert(name);
  return status;
}

Status Repository::TryLoad(const std::string& name, const LoadOverride& override,
                           Loading& loading) {
  if (!override.files.empty() && !override.config_json) {
    return CannotPoll(name, InvalidArgument("files need a config beside them"));
  }
  std::shared_ptr<const OverrideDir> files;
  std::optional<fs::path> dir = places_.Find(name);
  if (!override.files.empty()) {
    auto written = OverrideDir::Write(name, override.files);
    if (!written.ok()) return CannotPoll(name, written.status());
    files = *std::move(written);
    dir = files->path();
  }
  if (!dir) return CannotPoll(name, NotFound("no repository has it"));
  if (files == nullptr && places_.IsAmbiguous(name))
    return CannotPoll(name, InvalidArgument(kAmbiguous));
  const auto running = sources_.find(name);
  if (override.empty() && running != sources_.end() && IsLoaded(name) &&
      running->second.dir == *dir && NewestChange(*dir) <= running->second.changed) {
    return Status::Ok();
  }
  auto candidate = Poll(name, *dir, override);
  if (!candidate.ok()) return CannotPoll(name, candidate.status());
  candidate->files = std::move(files);
  const bool is_same_copy = ChangesOnlyInstances(*candidate);
  if (!is_same_copy) {
    RETURN_IF_ERROR(LoadCopy(*candidate, loading));
  } else if (const Status changed = ChangeInstances(*candidate); !changed.ok()) {
    return LoadFailed(name, VersionFailed(candidate->versions.front(), changed),
                      LoadReason(Reason::kNone, changed));
  }
  Remember(*candidate);
  loaded_configs_.erase(name);
  if (override.config_json) loaded_configs_[name] = *override.config_json;
  if (!is_same_copy) ReloadUsersOf(name, loading);
  return Status::Ok();
}

Status Repository::LoadCopy(const Candidate& candidate, Loading& loading) {
  RETURN_IF_ERROR(LoadSteps(candidate, loading));
  std::vector<Candidate> candidates = {candidate};
  loader_.FindPartners(candidates);
  return Install(candidate.parsed.config.name(), LoadVersions(candidates.front()));
}

// An ensemble needs its steps' models, and fits them.
Status Repository::LoadSteps(const Candidate& candidate, Loading& loading) {
  if (candidate.kind != ModelKind::kEnsemble) return Status::Ok();
  const auto& config = candidate.parsed.config;
  if (const Status status = CheckNoCycle(config); !status.ok()) {
    return LoadFailed(config.name(), status.message());
  }
  std::string missing;
  Reason reason = Reason::kNone;
  for (const auto& step : config.ensemble_scheduling().step()) {
    const std::string& name = step.model_name();
    if (IsLoaded(name)) continue;
    const Status status = LoadOne(name, {}, loading);
    if (status.ok()) continue;
    reason = LoadReason(reason, status);
    if (missing.find(name) == std::string::npos) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) {
    return LoadFailed(config.name(),
                      "ensemble " + config.name() +
                          " contains models that are not available or ambiguous: " + missing,
                      reason);
  }
  const Status fits = CheckSteps(
      config, [this](const std::string& name, int64_t version) { return Find(name, version); });
  return fits.ok() ? fits : LoadFailed(config.name(), fits.message());
}

// Takes the place of what runs, unless it failed and something runs.
Status Repository::Install(const std::string& name, std::vector<ModelEntry> entries) {
  std::string failures;
  Reason reason = Reason::kNone;
  for (const ModelEntry& entry : entries) {
    if (entry.model != nullptr) continue;
    reason = LoadReason(reason, entry.status);
    if (entry.version.empty()) {
      failures += entry.status.message();
    } else {
      failures += VersionFailed(entry.version, entry.status);
    }
  }
  if (!failures.empty() && IsLoaded(name)) {
    logging::Error("model goes on with the old copy", {{"model", name}, {"reason", failures}});
    return LoadFailed(name, failures, reason);
  }
  // All versions or none.
  for (ModelEntry& entry : entries) {
    if (failures.empty() || entry.model == nullptr) continue;
    entry.model = nullptr;
    entry.is_unloaded = true;
  }
  std::erase_if(entries_, [&](ModelEntry& old) {
    if (old.name != name) return false;
    EndSleepOf(old);
    const bool is_replaced = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.version == old.version;
    });
    if (is_replaced || old.version.empty()) return true;
    if (old.model == nullptr) return false;
    old.is_unloaded = true;
    old.model = nullptr;
    return false;
  });
  for (ModelEntry& entry : entries) Add(std::move(entry));
  return failures.empty() ? Status::Ok() : LoadFailed(name, failures, reason);
}

// Ensembles hold the models that they use.
void Repository::ReloadUsersOf(const std::string& name, Loading& loading) {
  std::set<std::string> seen = {name};
  std::vector<std::string> users;
  AddUsersOf(name, seen, users);
  for (const std::string& user : users) {
    const auto source = sources_.find(user);
    const auto files = source == sources_.end() ? nullptr : source->second.files;
    const std::optional<fs::path> dir = files ? files->path() : places_.Find(user);
    if (!dir || !loading.in_progress.insert(user).second) continue;
    LoadOverride override;
    const auto running = loaded_configs_.find(user);
    if (running != loaded_configs_.end()) override.config_json = running->second;
    auto candidate = Poll(user, *dir, override);
    Status status = candidate.status();
    if (status.ok()) candidate->files = files;
    if (status.ok()) status = LoadSteps(*candidate, loading);
    if (status.ok()) status = Install(user, LoadVersions(*candidate));
    if (status.ok()) {
      Remember(*candidate);
    } else {
      logging::Error("model goes on with the old copy of one that it uses",
                     {{"model", user}, {"uses", name}, {"reason", status.message()}});
    }
  }
}

// Those that use it, through others too, each behind those of them that it uses itself.
void Repository::AddUsersOf(const std::string& name, std::set<std::string>& seen,
                            std::vector<std::string>& users) const {
  for (const std::string& user : LoadedUsersOf(name)) {
    if (!seen.insert(user).second) continue;
    AddUsersOf(user, seen, users);
    users.insert(users.begin(), user);
  }
}

void Repository::Unload(const std::string& name, bool with_steps) {
  std::unique_lock lock(control_mutex_);
  const ModelClaims::Scope claim(claims_, lock, ModelClaims::Kind::kUnload,
                                 [&] { return ConnectedWith(name, {}); });
  std::set<std::string> steps;
  for (const ModelEntry& entry : entries_) {
    if (!with_steps || entry.name != name || entry.model == nullptr) continue;
    for (const auto& step : entry.model->config().ensemble_scheduling().step()) {
      steps.insert(step.model_name());
    }
  }
  UnloadOne(name);
  for (const std::string& step : steps) {
    if (LoadedUsersOf(step).empty()) UnloadOne(step);
  }
  Publish();
}

// Those that use it cannot run without it.
void Repository::UnloadOne(const std::string& name) {
  for (const std::string& user : LoadedUsersOf(name)) {
    if (user != name) UnloadOne(user);
  }
  for (ModelEntry& entry : entries_) {
    if (entry.name != name || entry.model == nullptr) continue;
    EndSleepOf(entry);
    entry.model = nullptr;
    entry.is_unloaded = true;
    logging::Info("model unloaded", {{"model", name}, {"version", entry.version}});
  }
  sources_.erase(name);
  loaded_configs_.erase(name);
  loader_.ForgetLlm(name);
}

void Repository::Rescan() {
  FetchAll();
  std::set<std::string> present;
  std::set<std::string> models;
  std::map<fs::path, FileTime> found;
  for (const fs::path& root : places_.roots()) {
    for (const fs::path& dir : Subdirectories(root)) {
      present.insert(dir.filename().string());
      if (!IsModel(dir)) continue;
      models.insert(dir.filename().string());
      found[dir] = NewestChange(dir);
    }
  }
  std::set<std::string> gone;
  const HeldTable table = this->table();
  for (const auto& [name, versions] : table->entries()) {
    const bool may_go = std::any_of(versions.begin(), versions.end(), [](const ModelEntry& entry) {
      return entry.model != nullptr && entry.is_from_repository;
    });
    if (may_go && !present.contains(name)) gone.insert(name);
  }
  for (const std::string& name : gone) Unload(name, /*with_steps=*/false);
  if (found == scanned_) return;  // what failed would fail again
  scanned_ = std::move(found);
  std::unique_lock lock(control_mutex_);
  loader_.ForgetTokenizers();
  Loading loading;
  for (const std::string& name : models) {
    if (loading.failed.contains(name)) continue;  // as a step
    loading.in_progress.clear();
    const ModelClaims::Scope claim(claims_, lock, ModelClaims::Kind::kLoad,
                                   [&] { return ConnectedWith(name, {}); });
    const Status status = LoadOne(name, {}, loading);
    Publish();
    if (status.ok()) continue;
    logging::Error("model of the polled repository not loaded",
                   {{"model", name}, {"reason", status.message()}});
  }
}

// Directories that nobody asked for are names alone; models whose directory has gone are left out.
std::vector<IndexEntry> Repository::Index(bool ready_only) const {
  const HeldTable table = this->table();
  const ModelPlaces places = this->places();
  std::set<std::string> names = places.Names();
  for (const auto& [name, versions] : table->entries()) {
    if (!versions.front().is_from_repository) names.insert(name);
  }
  std::vector<IndexEntry> index;
  for (const std::string& name : names) {
    const auto found = table->entries().find(name);
    const bool is_served =
        found != table->entries().end() &&
        std::any_of(found->second.begin(), found->second.end(),
                    [](const ModelEntry& entry) { return StateOf(entry) != "UNAVAILABLE"; });
    if (!is_served && places.IsAmbiguous(name)) {
      if (ready_only) continue;
      index.push_back({.name = name, .version = {}, .state = "UNAVAILABLE", .reason = kAmbiguous});
      continue;
    }
    if (found == table->entries().end() || !found->second.front().is_registered) {
      if (!ready_only) index.push_back({.name = name, .version = {}, .state = {}, .reason = {}});
      continue;
    }
    for (const ModelEntry& entry : found->second) {
      const std::string state(StateOf(entry));
      if (entry.version.empty() || (ready_only && state != "READY")) continue;
      index.push_back(
          {.name = name, .version = entry.version, .state = state, .reason = ReasonOf(entry)});
    }
  }
  return index;
}

std::vector<std::string> Repository::LoadedUsersOf(const std::string& name) const {
  std::vector<std::string> names;
  for (const ModelEntry& entry : entries_) {
    if (Uses(entry, name)) names.push_back(entry.name);
  }
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::set<std::string> Repository::ConnectedWith(const std::string& name,
                                                const LoadOverride& override) const {
  std::set<std::string> names;
  std::vector<std::string> left = {name};
  while (!left.empty()) {
    const std::string next = std::move(left.back());
    left.pop_back();
    if (!names.insert(next).second) continue;
    const auto add = [&left](const std::vector<std::string>& more) {
      left.insert(left.end(), more.begin(), more.end());
    };
    add(MembersInFile(next, next == name ? override : LoadOverride()));
    add(LoadedUsersOf(next));
    for (const ModelEntry& entry : entries_) {
      if (entry.name == next) add(StepsOf(entry));
    }
  }
  return names;
}

std::shared_ptr<Model> Repository::Find(const std::string& name, int64_t version) const {
  std::shared_ptr<Model> latest;
  for (const ModelEntry& entry : entries_) {
    if (entry.name != name || entry.model == nullptr) continue;
    if (version > 0 && entry.version != std::to_string(version)) continue;
    latest = entry.model;
  }
  return latest;
}

bool Repository::IsLoaded(const std::string& name) const { return Find(name) != nullptr; }

void Repository::Guard(ModelEntry& entry) {
  if (entry.model == nullptr) return;
  entry.leaving = entry.model;
  entry.model = Retirement::Guard(retirement_, std::move(entry.model));
}

void Repository::Publish() { published_->Set(HeldTable(entries_)); }

}  // namespace inflight::serving
