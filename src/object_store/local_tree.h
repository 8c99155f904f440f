// SPDX-License-Identifier: Apache-2.0
// Objects as files: what a listing is on a disk.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "object_store/cache.h"
#include "object_store/service.h"

namespace inflight::object_store {

// Whether a relative path stays below its folder on every file system that we know: no "..", no
// empty part, no control character, no part of more than 255 bytes.
bool IsRelativePath(std::string_view path);

struct LocalTree {
  std::map<std::string, Object> files;  // by their path, relative: "1/config.json"
  std::set<std::string> folders;        // that objects stand for: keys with a slash at their end,
                                        // and empty ones that others lie below

  bool empty() const { return files.empty() && folders.empty(); }
  std::vector<Object> objects() const;
  // Another one where any file is another.
  std::string Id() const;
  // What lies below "name/", by paths relative to it.
  LocalTree Below(const std::string& name) const;
  // The first parts of all paths that have a second one.
  std::set<std::string> FirstFolders() const;
};

// Of a listing of all objects below the folder `prefix`. kInvalidArgument names a key that is no
// path: "..", empty parts, control characters, a file that others lie below.
Result<LocalTree> ToLocalTree(const Listing& listing, const std::string& prefix);

// Fills the empty folder `dir` with links to blobs. kAborted where one is not there any more.
Status Write(const LocalTree& tree, const Cache& cache, const Address& address,
             const std::filesystem::path& dir);

}  // namespace inflight::object_store
