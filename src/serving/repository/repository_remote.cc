// SPDX-License-Identifier: Apache-2.0
// Repository: models that lie in object stores. Each such repository has a local copy, which the
// rest of the repository reads as any other.
#include <algorithm>
#include <set>
#include <string>

#include "base/log.h"
#include "base/status_macros.h"
#include "serving/repository/repository.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {

namespace fs = std::filesystem;

std::optional<fs::path> Repository::AddRemote(const std::string& address, bool with_files) {
  const std::lock_guard lock(control_mutex_);
  const auto fail = [&](const std::string& name, const Status& status) {
    Add({.name = name, .version = {}, .status = status, .is_registered = false});
  };
  auto mirror = object_store::Mirror::Make(address, options_.remote);
  if (!mirror.ok()) {
    fail(address, mirror.status());
    return std::nullopt;
  }
  const fs::path root = (*mirror)->dir();
  mirrors_.push_back(*mirror);
  Status listed;
  if (with_files) {
    const auto failures = (*mirror)->FetchAll();
    listed = failures.status();
    for (const auto& [name, status] : failures.ok() ? *failures : std::map<std::string, Status>())
      fail(name, status);
  } else {
    listed = (*mirror)->FetchNames();
  }
  if (!listed.ok()) {
    fail(address, listed);
    places_.AddRoot(root);  // a later look may find it
    return std::nullopt;
  }
  places_.AddRoot(FindRepository(root).value_or(root));
  logging::Info("model repository of an object store is copied as models are loaded",
                {{"repository", address}, {"copy", root.string()}});
  return root;
}

bool Repository::HasRemote(const std::string& address) const {
  const std::lock_guard lock(control_mutex_);
  return std::ranges::any_of(mirrors_,
                             [&](const auto& mirror) { return mirror->address() == address; });
}

void Repository::FetchNames() {
  for (const auto& mirror : mirrors_) {
    if (const Status status = mirror->FetchNames(); !status.ok())
      logging::Error("model repository cannot be listed", {{"reason", status.message()}});
  }
}

Status Repository::FetchFiles(const std::string& name, const std::set<std::string>& connected,
                              std::set<std::string>& fetched) {
  for (const std::string& model : connected) {
    const bool has_files = model != name && IsLoaded(model);
    if (!CheckModelName(model).ok() || has_files || !fetched.insert(model).second) continue;
    for (const auto& mirror : mirrors_) {
      Status status = [&] {
        const Unlocked unlocked(control_mutex_);
        return mirror->Fetch(model);
      }();
      if (status.ok()) continue;
      if (model == name) return status;
      logging::Error("files of a model cannot be fetched",
                     {{"model", model}, {"reason", status.message()}});
    }
  }
  return Status::Ok();
}

void Repository::FetchAll() {
  for (const auto& mirror : mirrors_) {
    const auto failures = mirror->FetchAll();
    if (!failures.ok()) {
      logging::Error("model repository cannot be listed",
                     {{"reason", failures.status().message()}});
      continue;
    }
    for (const auto& [name, status] : *failures) {
      logging::Error("files of a model cannot be fetched",
                     {{"model", name}, {"reason", status.message()}});
    }
    const std::lock_guard lock(control_mutex_);
    const auto is_its_failure = [&](const ModelEntry& e) { return e.name == mirror->address(); };
    if (std::erase_if(entries_, is_its_failure) > 0) Publish();
  }
}

}  // namespace inflight::serving
