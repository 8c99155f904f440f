// SPDX-License-Identifier: Apache-2.0
#include "object_store/mirror.h"

#include <fcntl.h>
#include <stdio.h>  // NOLINT: renameat2 is of Linux

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/control_bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "object_store/download.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;

// Whether files could be of a model: others, of whatever size, are not downloaded.
bool IsModel(const LocalTree& tree) {
  if (tree.files.contains("config.pbtxt")) return true;
  for (const std::string& name : tree.FirstFolders()) {
    const bool is_version =
        std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }) && name[0] != '0';
    if (is_version || name == "configs") return true;
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<Mirror>> Mirror::Make(const std::string& text, const Options& options) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
  ASSIGN_OR_RETURN(auto store, Store::Open(address, options));
  ASSIGN_OR_RETURN(const fs::path folder, Cache::FolderFor(address.kind, options));
  ASSIGN_OR_RETURN(auto cache, Cache::Open(folder));
  ASSIGN_OR_RETURN(auto tree, cache->MakeTree());
  std::shared_ptr<Mirror> mirror(new Mirror(std::move(store), std::move(cache), std::move(tree)));
  RETURN_IF_ERROR(MakeFolder(mirror->dir_));
  return mirror;
}

// As the original says it, with what the store says.
Status Mirror::Refused(const Status& status) const {
  if (status.code() == StatusCode::kCancelled) return status;
  return status.WithMessage(address() + ": Unable to create " +
                            std::string(ServiceOf(store_->address().kind)) +
                            " filesystem client. Check account credentials. " + status.message());
}

std::string Mirror::IdOf(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::string() : found->second;
}

void Mirror::RemoveAllBut(const std::set<std::string>& names) {
  std::error_code error;
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(dir_, error)) {
    if (!names.contains(entry.path().filename().string())) gone.push_back(entry.path());
  }
  for (const fs::path& path : gone) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
    const std::lock_guard lock(mutex_);
    ids_.erase(path.filename().string());
  }
}

Status Mirror::FetchNames() {
  ASSIGN_OR_RETURN(const auto client, store_->MakeClient());
  const auto listing = store_->List(*client, "", /*is_recursive=*/false);
  if (!listing.ok()) return Refused(listing.status());
  const std::string& prefix = store_->address().prefix;
  const size_t skipped = prefix.empty() ? 0 : prefix.size() + 1;
  std::set<std::string> names;
  for (const std::string& folder : listing->folders) {
    if (folder.size() <= skipped) continue;
    std::string name = folder.substr(skipped);
    if (name.starts_with('.') || name.find('/') != std::string::npos) continue;
    RETURN_IF_ERROR(MakeFolder(dir_ / name));
    names.insert(std::move(name));
  }
  RemoveAllBut(names);
  return Status::Ok();
}

Status Mirror::Fetch(const std::string& name) {
  const auto fetch = [&]() -> Status {
    try {
      return ListAndTake(name);
    } catch (const std::exception& e) {
      return Caught(address(), e);
    }
  };
  Status status = fetch();
  for (int i = 1; status.code() == StatusCode::kAborted && i < kMaxListings; ++i) {
    logging::Info("a store is listed once more", {{"reason", status.message()}});
    status = fetch();
  }
  return status;
}

Result<std::map<std::string, Status>> Mirror::FetchAll() {
  try {
    return ListAndTake();
  } catch (const std::exception& e) {  // memory, files
    return Caught(address(), e);
  }
}

Status Mirror::ListAndTake(const std::string& name) {
  const bool is_name = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos && !HasControlBytes(name);
  if (!is_name) return InvalidArgument("'" + name + "' is no name of a folder");
  ASSIGN_OR_RETURN(const auto client, store_->MakeClient());
  const auto listing = store_->List(*client, name, /*is_recursive=*/true);
  if (!listing.ok()) return Refused(listing.status());
  const auto tree = ToLocalTree(*listing, Join(store_->address().prefix, name));
  if (!tree.ok()) return tree.status().WithPrefix(address());
  return Take(name, *tree).WithPrefix(address());
}

Result<std::map<std::string, Status>> Mirror::ListAndTake() {
  ASSIGN_OR_RETURN(const auto client, store_->MakeClient());
  const auto listing = store_->List(*client, "", /*is_recursive=*/true);
  if (!listing.ok()) return Refused(listing.status());
  const auto all = ToLocalTree(*listing, store_->address().prefix);
  if (!all.ok()) return all.status().WithPrefix(address());
  std::set<std::string> names = all->FirstFolders();
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::map<std::string, Status> failures;
  for (const std::string& name : names) {
    Status status = Take(name, all->Below(name));
    if (status.code() == StatusCode::kCancelled) return status;
    if (status.code() == StatusCode::kAborted) {
      status = Fetch(name);
    } else {
      status = status.WithPrefix(address());
    }
    if (!status.ok()) failures.emplace(name, std::move(status));
  }
  RemoveAllBut(names);
  return failures;
}

Status Mirror::Take(const std::string& name, const LocalTree& tree) {
  const bool is_there = !tree.empty();
  const std::string id = is_there ? tree.Id() : std::string();
  if (id == IdOf(name)) return Status::Ok();
  if (!is_there) {
    std::error_code error;
    fs::remove_all(dir_ / name, error);
    const std::lock_guard lock(mutex_);
    ids_.erase(name);
    return Status::Ok();
  }
  const bool is_model = IsModel(tree);
  if (is_model) {
    const std::vector<Object> objects = tree.objects();
    RETURN_IF_ERROR(Download(*store_, *cache_, objects));
  }
  const fs::path made = tree_->path() / cache_->PartialName().filename();
  RETURN_IF_ERROR(MakeFolder(made));
  Status status = is_model ? Write(tree, *cache_, store_->address(), made) : Status::Ok();
  if (status.ok()) status = Exchange(name, made);
  std::error_code error;
  fs::remove_all(made, error);  // what was there before, or what could not be used
  RETURN_IF_ERROR(status);
  const std::lock_guard lock(mutex_);
  ids_[name] = id;
  return Status::Ok();
}

Status Mirror::Exchange(const std::string& name, const fs::path& made) {
  const fs::path place = dir_ / name;
  if (!FileExists(place)) {
    if (std::rename(made.c_str(), place.c_str()) == 0) return Status::Ok();
    return SystemError(place, "rename onto", errno);
  }
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0)
    return Status::Ok();
  if (errno != EINVAL && errno != ENOSYS) return SystemError(place, "rename onto", errno);
  fs::path old = made;  // a file system that exchanges nothing
  old += ".old";
  std::error_code error;
  if (std::rename(place.c_str(), old.c_str()) != 0 || std::rename(made.c_str(), place.c_str()) != 0)
    return SystemError(place, "rename onto", errno);
  fs::remove_all(old, error);
  return Status::Ok();
}

}  // namespace inflight::object_store
