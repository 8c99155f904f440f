// SPDX-License-Identifier: Apache-2.0
#include "object_store/local_tree.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/control_bytes.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/status_macros.h"
#include "object_store/digest.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 2048;
constexpr size_t kMaxPartBytes = 255;

}  // namespace

bool IsRelativePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  while (true) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes) return false;
    if (HasControlBytes(part)) return false;
    if (part.size() == path.size()) return true;
    path.remove_prefix(part.size() + 1);
  }
}

namespace {

Status LinkOrCopy(const fs::path& blob, const fs::path& file) {
  if (link(blob.c_str(), file.c_str()) == 0) return Status::Ok();
  if (errno == ENOENT)
    return {StatusCode::kAborted, file.string() + ": its copy was replaced meanwhile"};
  std::error_code error;  // no hard links, or too many of them
  if (fs::copy_file(blob, file, error)) return Status::Ok();
  return SystemError(file, "copy", error.value());
}

}  // namespace

std::vector<Object> LocalTree::objects() const {
  std::vector<Object> objects;
  objects.reserve(files.size());
  for (const auto& [path, object] : files) objects.push_back(object);
  return objects;
}

std::string LocalTree::Id() const {
  std::string text;
  for (const auto& [path, object] : files)
    text += path + "\n" + object.version + "\n" + std::to_string(object.size) + "\n";
  text += "\n";
  for (const std::string& folder : folders) text += folder + "\n";
  return ToHex(Sha256(text));
}

LocalTree LocalTree::Below(const std::string& name) const {
  const std::string prefix = name + "/";
  LocalTree below;
  for (auto it = files.lower_bound(prefix); it != files.end() && it->first.starts_with(prefix);
       ++it)
    below.files.emplace(it->first.substr(prefix.size()), it->second);
  for (auto it = folders.lower_bound(prefix); it != folders.end() && it->starts_with(prefix); ++it)
    below.folders.insert(it->substr(prefix.size()));
  return below;
}

std::set<std::string> LocalTree::FirstFolders() const {
  std::set<std::string> names;
  for (const auto& [path, object] : files)
    if (const size_t slash = path.find('/'); slash != std::string::npos)
      names.insert(path.substr(0, slash));
  for (const std::string& folder : folders) names.insert(folder.substr(0, folder.find('/')));
  return names;
}

Result<LocalTree> ToLocalTree(const Listing& listing, const std::string& prefix) {
  LocalTree tree;
  const size_t skipped = prefix.empty() ? 0 : prefix.size() + 1;
  for (const Object& object : listing.objects) {
    if (object.key.size() <= skipped) continue;  // the folder itself
    std::string path = object.key.substr(skipped);
    const bool is_folder = path.ends_with('/');
    if (is_folder) path.pop_back();
    if (!IsRelativePath(path))
      return InvalidArgument("an object has a key that is no path of a file: '" +
                             object.key.substr(0, kMaxPartBytes) + "'");
    if (is_folder) {
      tree.folders.insert(std::move(path));
    } else {
      tree.files.insert_or_assign(std::move(path), object);
    }
  }
  // Azure's data lakes have an empty blob for each folder.
  for (auto it = tree.files.begin(); it != tree.files.end();) {
    const std::string below = it->first + "/";
    const auto first = tree.files.lower_bound(below);
    const auto folder = tree.folders.lower_bound(below);
    const bool is_folder = tree.folders.contains(it->first) ||
                           (first != tree.files.end() && first->first.starts_with(below)) ||
                           (folder != tree.folders.end() && folder->starts_with(below));
    if (!is_folder) {
      ++it;
      continue;
    }
    if (it->second.size > 0)
      return InvalidArgument("'" + it->second.key + "' is an object, and others lie below it");
    tree.folders.insert(it->first);
    it = tree.files.erase(it);
  }
  return tree;
}

Status Write(const LocalTree& tree, const Cache& cache, const Address& address,
             const fs::path& dir) {
  for (const std::string& folder : tree.folders) RETURN_IF_ERROR(MakeFolder(dir / folder));
  for (const auto& [path, object] : tree.files) {
    const fs::path file = dir / path;
    RETURN_IF_ERROR(MakeFolder(file.parent_path()));
    RETURN_IF_ERROR(LinkOrCopy(cache.BlobOf(address, object), file));
  }
  return Status::Ok();
}

}  // namespace inflight::object_store
