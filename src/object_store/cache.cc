// SPDX-License-Identifier: Apache-2.0
#include "object_store/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>
#include <system_error>

#include "base/create_file.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/status_macros.h"
#include "object_store/digest.h"

namespace inflight::object_store {

namespace fs = std::filesystem;

namespace {

constexpr size_t kNameDigits = 32;
constexpr char kLockName[] = "lock";

std::string NameOf(const std::string& text) { return ToHex(Sha256(text)).substr(0, kNameDigits); }

std::string PlaceOf(const Address& address) {
  return fmt::format("{}\n{}\n{}\n{}\n", SchemeOf(address.kind), address.endpoint, address.account,
                     address.bucket);
}

constexpr std::chrono::minutes kYoung{1};  // its lock may not be taken yet

bool IsOlderThan(const fs::path& path, std::chrono::seconds age) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > age;
}

// Whose owner has ended: nobody holds its lock.
bool IsLeft(const fs::path& file) {
  if (!IsOlderThan(file, kYoung)) return false;
  const Descriptor lock(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return lock.ok() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
}

fs::path DefaultCacheDir(const Environment& environment) {
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "inflight/objects";
  const std::string home = environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache/inflight/objects";
}

Status MakeFolder(const fs::path& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Status::Ok();
  if (errno != ENOENT || !path.has_parent_path())
    return SystemError(path, "make the folder", errno);
  RETURN_IF_ERROR(MakeFolder(path.parent_path()));
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Status::Ok();
  return SystemError(path, "make the folder", errno);
}

WorkTree::~WorkTree() {
  std::error_code error;
  fs::remove_all(path_, error);
}

Result<fs::path> Cache::FolderFor(Kind kind, const Options& options) {
  if (!options.cache_dir.empty()) return options.cache_dir;
  const char* const variable = kind == Kind::kS3   ? "TRITON_AWS_MOUNT_DIRECTORY"
                               : kind == Kind::kGs ? "TRITON_GCS_MOUNT_DIRECTORY"
                                                   : "TRITON_AZURE_MOUNT_DIRECTORY";
  const fs::path named = options.environment(variable);
  std::error_code error;
  if (!named.empty() && !fs::is_directory(named, error))
    return FailedPrecondition(std::string(variable) + ": '" + named.string() + "' is no folder");
  if (!named.empty()) return named;
  const fs::path folder = DefaultCacheDir(options.environment);
  if (folder.empty())
    return FailedPrecondition(
        "there is no folder for copies of objects: HOME and XDG_CACHE_HOME are not set; say "
        "--remote-cache-dir");
  return folder;
}

Result<std::shared_ptr<Cache>> Cache::Open(const fs::path& dir) {
  std::error_code error;
  const std::shared_ptr<Cache> cache(new Cache(fs::absolute(dir, error)));
  RETURN_IF_ERROR(MakeFolder(cache->dir_));
  struct stat status {};
  if (stat(cache->dir_.c_str(), &status) != 0) return SystemError(cache->dir_, "look at", errno);
  const bool is_of_others = status.st_uid != geteuid() && status.st_uid != 0;
  if (!S_ISDIR(status.st_mode) || is_of_others || (status.st_mode & 022) != 0)
    return FailedPrecondition(cache->dir_.string() +
                              ": copies of objects lie in a folder that nobody else writes to; "
                              "chmod 700 it, or name another by --remote-cache-dir");
  RETURN_IF_ERROR(cache->MakeFolders());
  cache->Sweep();
  return cache;
}

Status Cache::MakeFolders() const {
  for (const char* const name : {"blobs", "models", "trees", "partial"}) {
    const fs::path folder = dir_ / name;
    RETURN_IF_ERROR(MakeFolder(folder));
    struct stat status {};
    if (lstat(folder.c_str(), &status) != 0) return SystemError(folder, "look at", errno);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0)
      return FailedPrecondition(folder.string() +
                                ": is no folder of this user's alone; remove it, or name another "
                                "folder by --remote-cache-dir");
  }
  return Status::Ok();
}

void Cache::Sweep() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir_ / "trees", error)) {
    std::error_code ignored;
    if (IsLeft(entry.path() / kLockName)) fs::remove_all(entry.path(), ignored);
  }
  for (const auto& entry : fs::directory_iterator(dir_ / "partial", error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      if (IsOlderThan(entry.path(), std::chrono::hours(24))) fs::remove_all(entry.path(), ignored);
    } else if (IsLeft(entry.path())) {
      fs::remove(entry.path(), ignored);
    }
  }
}

fs::path Cache::BlobOf(const Address& address, const Object& object) const {
  return dir_ / "blobs" / NameOf(PlaceOf(address) + object.key) /
         NameOf(object.version + "\n" + std::to_string(object.size));
}

bool Cache::Has(const Address& address, const Object& object) const {
  struct stat status {};
  return lstat(BlobOf(address, object).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_size) == object.size;
}

fs::path Cache::SnapshotOf(const Address& address, const std::string& listing_id) const {
  return dir_ / "models" / NameOf(PlaceOf(address) + address.prefix) / NameOf(listing_id);
}

fs::path Cache::PartialName() const {
  // Processes that share a cache may have one number in each other's containers.
  std::random_device random;
  return dir_ / "partial" / fmt::format("{:08x}{:08x}", random(), random());
}

Result<std::unique_ptr<WorkTree>> Cache::MakeTree() const {
  std::string name = (dir_ / "trees" / "XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    return SystemError(dir_ / "trees", "make a folder in", errno);
  const fs::path path = name;
  ASSIGN_OR_RETURN(Descriptor lock, CreateFile(path / kLockName, Existing::kRefuse));
  if (flock(lock.get(), LOCK_EX) != 0) return SystemError(path, "lock", errno);
  return std::make_unique<WorkTree>(path, std::move(lock));
}

}  // namespace inflight::object_store
