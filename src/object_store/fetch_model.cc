// SPDX-License-Identifier: Apache-2.0
#include "object_store/fetch_model.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "object_store/download.h"
#include "object_store/local_tree.h"
#include "object_store/store.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kKept{1};

// Folders of earlier listings that nobody can be reading any more.
void RemoveOld(const fs::path& snapshot) {
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(snapshot.parent_path(), error)) {
    std::error_code ignored;
    const bool is_old = now - fs::last_write_time(entry.path(), ignored) > kKept;
    if (entry.path() != snapshot && !ignored && is_old) fs::remove_all(entry.path(), ignored);
  }
}

Result<fs::path> FetchOnce(Store& store, const Cache& cache, HttpClient& client) {
  ASSIGN_OR_RETURN(const Listing listing, store.List(client, "", /*is_recursive=*/true));
  auto tree = ToLocalTree(listing, store.address().prefix);
  RETURN_IF_ERROR(tree.status());
  if (tree->files.empty()) return NotFound("no object lies below this address");
  const fs::path snapshot = cache.SnapshotOf(store.address(), tree->Id());
  if (FileExists(snapshot)) return snapshot;
  const std::vector<Object> objects = tree->objects();
  RETURN_IF_ERROR(Download(store, cache, objects));
  const fs::path partial = cache.PartialName();
  RETURN_IF_ERROR(MakeFolder(partial));
  Status written = Write(*tree, cache, store.address(), partial);
  if (written.ok()) written = MakeFolder(snapshot.parent_path());
  if (written.ok() && std::rename(partial.c_str(), snapshot.c_str()) != 0 && errno != EEXIST &&
      errno != ENOTEMPTY)
    written = SystemError(snapshot, "rename onto", errno);
  std::error_code error;
  fs::remove_all(partial, error);
  RETURN_IF_ERROR(written);
  RemoveOld(snapshot);
  return snapshot;
}

}  // namespace

Result<fs::path> FetchModel(const std::string& text, const Options& options) {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
  ASSIGN_OR_RETURN(const auto store, Store::Open(address, options));
  ASSIGN_OR_RETURN(const fs::path folder, Cache::FolderFor(address.kind, options));
  ASSIGN_OR_RETURN(const auto cache, Cache::Open(folder));
  ASSIGN_OR_RETURN(const auto client, store->MakeClient());
  auto fetched = FetchOnce(*store, *cache, *client);
  for (int i = 1; fetched.status().code() == StatusCode::kAborted && i < kMaxListings; ++i) {
    logging::Info("a store is listed once more", {{"reason", fetched.status().message()}});
    fetched = FetchOnce(*store, *cache, *client);
  }
  if (!fetched.ok()) return fetched.status().WithPrefix(address.text);
  return fetched;
}

}  // namespace inflight::object_store
