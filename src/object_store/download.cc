// SPDX-License-Identifier: Apache-2.0
#include "object_store/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/create_file.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "object_store/digest.h"

namespace inflight::object_store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRangeBytes = uint64_t{32} << 20;
constexpr int kMaxDownloads = 3;  // of an object whose bytes are not what they should be

// The file of an object while it comes.
struct Coming {
  const Object* object = nullptr;
  fs::path blob;
  fs::path partial;
  Descriptor file;
  std::mutex mutex;  // of the opening
  std::atomic<uint64_t> ranges_left = 0;
  std::atomic<bool> has_digest = true;

  ~Coming() {
    std::error_code error;
    if (file.ok()) fs::remove(partial, error);
  }
};

struct Task {
  Coming* coming = nullptr;
  Store::Range range;
};

Status WriteAt(const Descriptor& file, const fs::path& path, std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ENOSPC)
      return ResourceExhausted(path.string() + ": the disk is full");
    if (count < 0) return SystemError(path, "write", errno);
    bytes.remove_prefix(static_cast<size_t>(count));
    at += static_cast<uint64_t>(count);
  }
  return Status::Ok();
}

class Downloader {
 public:
  Downloader(Store& store, const Cache& cache) : store_(store), cache_(cache) {}

  Status Run(std::span<const Object> objects) {
    for (const Object& object : objects) Plan(object);
    if (tasks_.empty()) return Status::Ok();
    RETURN_IF_ERROR(CheckRoom());
    const auto num_threads = static_cast<size_t>(store_.options().num_connections);
    {
      std::vector<std::jthread> threads;
      try {
        for (size_t i = 1; i < std::min(tasks_.size(), num_threads); ++i) {
          threads.emplace_back([this] {
            NameThisThread("download");
            Work();
          });
        }
      } catch (const std::system_error&) {  // fewer do
      }
      Work();
    }
    return status_;
  }

 private:
  void Plan(const Object& object) {
    if (cache_.Has(store_.address(), object)) return;
    auto coming = std::make_unique<Coming>();
    coming->object = &object;
    coming->blob = cache_.BlobOf(store_.address(), object);
    coming->partial = cache_.PartialName();
    uint64_t begin = 0;
    do {
      const uint64_t end = std::min(object.size, begin + kRangeBytes);
      tasks_.push_back({.coming = coming.get(), .range = {.begin = begin, .end = end}});
      ++coming->ranges_left;
      begin = end;
    } while (begin < object.size);
    all_bytes_ += object.size;
    coming_.push_back(std::move(coming));
  }

  Status CheckRoom() const {
    std::error_code error;
    const fs::space_info space = fs::space(cache_.dir(), error);
    if (error || all_bytes_ <= space.available) return Status::Ok();
    return ResourceExhausted(std::to_string(all_bytes_) +
                             " bytes are to be copied, and the disk of " + cache_.dir().string() +
                             " has room for " + std::to_string(space.available) +
                             "; name a folder on another by --remote-cache-dir");
  }

  void Work() {
    Status status;
    try {
      status = DoAll();
    } catch (const std::exception& e) {  // memory
      status = Caught("the download failed", e);
    }
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (!has_failed_.exchange(true)) status_ = std::move(status);
  }

  Status DoAll() {
    ASSIGN_OR_RETURN(const auto client, store_.MakeClient());
    while (!has_failed_) {
      const size_t index = next_++;
      if (index >= tasks_.size()) break;
      RETURN_IF_ERROR(Do(*client, tasks_[index]));
    }
    return Status::Ok();
  }

  Status Do(HttpClient& client, const Task& task) {
    Coming& coming = *task.coming;
    RETURN_IF_ERROR(Open(coming));
    RETURN_IF_ERROR(Fetch(client, coming, task.range));
    return --coming.ranges_left == 0 ? Finish(client, coming) : Status::Ok();
  }

  static Status Open(Coming& coming) {
    const std::lock_guard lock(coming.mutex);
    if (coming.file.ok()) return Status::Ok();
    ASSIGN_OR_RETURN(coming.file, CreateFile(coming.partial, Existing::kRefuse));
    if (flock(coming.file.get(), LOCK_EX) != 0) return SystemError(coming.partial, "lock", errno);
    return Status::Ok();
  }

  Status Fetch(HttpClient& client, Coming& coming, Store::Range range) {
    uint64_t at = range.begin;
    const auto has_digest =
        store_.Read(client, *coming.object, range, [&](std::string_view bytes) -> Status {
          if (has_failed_) return Cancelled("another transfer failed");
          RETURN_IF_ERROR(WriteAt(coming.file, coming.partial, bytes, at));
          at += bytes.size();
          done_bytes_ += bytes.size();
          if (store_.options().progress)
            store_.options().progress(std::min<uint64_t>(done_bytes_, all_bytes_), all_bytes_);
          return Status::Ok();
        });
    const StatusCode code = has_digest.status().code();
    if (code == StatusCode::kNotFound)  // it was listed
      return {StatusCode::kAborted, has_digest.status().message()};
    RETURN_IF_ERROR(has_digest.status());
    if (!*has_digest) coming.has_digest = false;
    return Status::Ok();
  }

  // Checks it, and gives it its name.
  Status Finish(HttpClient& client, Coming& coming) {
    Status right = Check(client, coming);
    for (int i = 1; right.code() == StatusCode::kDataLoss && i < kMaxDownloads; ++i) {
      logging::Warning("an object is downloaded once more", {{"reason", right.message()}});
      RETURN_IF_ERROR(Fetch(client, coming, {.begin = 0, .end = coming.object->size}));
      right = Check(client, coming);
    }
    RETURN_IF_ERROR(right);
    if (fchmod(coming.file.get(), 0400) != 0 || fdatasync(coming.file.get()) != 0)
      return SystemError(coming.partial, "finish", errno);
    const fs::path folder = coming.blob.parent_path();
    RETURN_IF_ERROR(MakeFolder(folder));
    if (std::rename(coming.partial.c_str(), coming.blob.c_str()) != 0)
      return SystemError(coming.blob, "rename onto", errno);
    coming.file = Descriptor();
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      std::error_code ignored;
      if (entry.path() != coming.blob) fs::remove(entry.path(), ignored);
    }
    return Status::Ok();
  }

  Status Check(HttpClient& client, const Coming& coming) {
    const Object& object = *coming.object;
    if (!coming.has_digest) return Status::Ok();
    WantedDigests wanted;
    wanted.md5 = !object.md5.empty() && object.num_parts == 0;
    wanted.crc32c = object.md5.empty() && object.crc32c.has_value();
    if (object.num_parts > 0) {
      wanted.part_bytes = store_.PartBytes(client, object);
      const uint64_t part = wanted.part_bytes;
      const bool has_equal_parts =
          part > 0 && (object.size + part - 1) / part == static_cast<uint64_t>(object.num_parts);
      if (!has_equal_parts) wanted.part_bytes = 0;
    }
    if (!wanted.md5 && !wanted.crc32c && wanted.part_bytes == 0) return Status::Ok();
    ASSIGN_OR_RETURN(const FileDigests digests, DigestFile(coming.partial, wanted));
    const bool is_right = (!wanted.md5 || digests.md5 == object.md5) &&
                          (!wanted.crc32c || digests.crc32c == *object.crc32c) &&
                          (wanted.part_bytes == 0 || digests.md5_of_parts == object.md5);
    if (is_right) return Status::Ok();
    const std::string& md5 = wanted.md5 ? digests.md5 : digests.md5_of_parts;
    return DataLoss("'" + object.key + "' has not the checksum that the store says: " +
                    (wanted.crc32c ? "CRC32C " + std::to_string(digests.crc32c) + ", not " +
                                         std::to_string(*object.crc32c)
                                   : "MD5 " + ToHex(md5) + ", not " + ToHex(object.md5)));
  }

  Store& store_;
  const Cache& cache_;
  std::vector<std::unique_ptr<Coming>> coming_;
  std::vector<Task> tasks_;
  uint64_t all_bytes_ = 0;
  std::atomic<uint64_t> done_bytes_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  Status status_;
};

}  // namespace

Status Download(Store& store, const Cache& cache, std::span<const Object> objects) {
  return Downloader(store, cache).Run(objects);
}

}  // namespace inflight::object_store
