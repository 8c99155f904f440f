// SPDX-License-Identifier: Apache-2.0
// The folder that holds copies of objects, for its owner alone.
//
//   CACHE/blobs/<of the key>/<of the version>   whole, checked, read-only; the newest of a key
//   CACHE/models/<of an address>/<of a listing> folders of links to blobs, as they were fetched
//   CACHE/trees/<one of a process>/             the same, of a repository that a process serves
//   CACHE/partial/                              what is being written
//
// Links are hard, and copies where the file system has no such links: what runs keeps its files
// when a newer version comes. Several processes may use one cache.
// Errors: name the path and the system's reason.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "inflight/status.h"
#include "object_store/address.h"
#include "object_store/options.h"
#include "object_store/service.h"

namespace inflight::object_store {

// A folder in CACHE/trees, removed with the object; what a process that was killed left behind is
// removed when the cache is opened next.
class WorkTree {
 public:
  WorkTree(std::filesystem::path path, Descriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  ~WorkTree();
  WorkTree(const WorkTree&) = delete;
  WorkTree& operator=(const WorkTree&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
  const Descriptor lock_;
};

class Cache {
 public:
  // Of the options, else of Triton's variable for the kind of store (TRITON_AWS_MOUNT_DIRECTORY,
  // TRITON_GCS_.., TRITON_AZURE_..), else the default.
  static Result<std::filesystem::path> FolderFor(Kind kind, const Options& options);

  // Makes it where it is not there. kFailedPrecondition where others may write to it.
  static Result<std::shared_ptr<Cache>> Open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path BlobOf(const Address& address, const Object& object) const;
  bool Has(const Address& address, const Object& object) const;
  std::filesystem::path SnapshotOf(const Address& address, const std::string& listing_id) const;
  Result<std::unique_ptr<WorkTree>> MakeTree() const;
  // A name in CACHE/partial that nobody else has.
  std::filesystem::path PartialName() const;

 private:
  explicit Cache(std::filesystem::path dir) : dir_(std::move(dir)) {}

  Status MakeFolders() const;
  void Sweep() const;

  const std::filesystem::path dir_;
};

Status MakeFolder(const std::filesystem::path& path);  // of its owner alone; it may be there

}  // namespace inflight::object_store
