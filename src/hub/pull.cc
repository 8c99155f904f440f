// SPDX-License-Identifier: Apache-2.0
#include "hub/pull.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/create_file.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/status_macros.h"
#include "base/thread_name.h"
#include "object_store/digest.h"

namespace inflight::hub {
namespace {

namespace fs = std::filesystem;
using artifact::HubId;

Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? SystemError(folder, "create the folder", error.value()) : Status::Ok();
}

uint64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// A file that was opened to append keeps its place, which has to go back too.
Status Empty(const TemporaryFile& coming) {
  if (ftruncate(coming.file.get(), 0) == 0 && lseek(coming.file.get(), 0, SEEK_SET) == 0)
    return Status::Ok();
  return SystemError(coming.path, "truncate", errno);
}

class Puller {
 public:
  Puller(HubId id, HubOptions options, fs::path folder)
      : id_(std::move(id)), options_(std::move(options)), folder_(std::move(folder)) {}

  Result<Pulled> Run() {
    ASSIGN_OR_RETURN(const auto client, HubClient::Make(options_));
    ASSIGN_OR_RETURN(const HubListing listing, client->List(id_));
    commit_ = listing.commit;
    auto chosen = ChooseFiles(listing, id_.quant);
    if (!chosen.ok()) return chosen.status().WithPrefix(id_.ToString());
    files_ = *std::move(chosen);
    for (HubFile& file : files_) RETURN_IF_ERROR(client->Describe(id_, commit_, file));
    RETURN_IF_ERROR(MakeFolder(folder_ / "blobs"));
    RETURN_IF_ERROR(CheckRoom());
    RETURN_IF_ERROR(DownloadAll());
    for (const HubFile& file : files_) RETURN_IF_ERROR(Link(file));
    RETURN_IF_ERROR(WriteRef());
    Pulled pulled{.path = {}, .num_files = files_.size(), .bytes = 0, .downloaded_bytes = fetched_};
    for (const HubFile& file : files_) pulled.bytes += file.size;
    pulled.path = folder_ / "snapshots" / commit_;
    if (files_[0].path.ends_with(".gguf")) pulled.path /= files_[0].path;  // alone, as it is chosen
    return pulled;
  }

 private:
  fs::path BlobOf(const HubFile& file) const { return folder_ / "blobs" / file.digest; }
  fs::path PartialOf(const HubFile& file) const {
    return folder_ / "blobs" / (file.digest + ".incomplete");
  }
  bool Has(const HubFile& file) const {
    std::error_code error;
    return fs::is_regular_file(BlobOf(file), error) && SizeOf(BlobOf(file)) == file.size;
  }

  Status CheckRoom() {
    std::set<std::string_view> digests;  // files of equal bytes are one blob
    for (const HubFile& file : files_) {
      if (Has(file) || !digests.insert(file.digest).second) continue;
      missing_.push_back(&file);
      all_bytes_ += file.size - std::min(file.size, SizeOf(PartialOf(file)));
    }
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    if (error || all_bytes_ <= space.available) return Status::Ok();
    return ResourceExhausted(
        fmt::format("{}: {} bytes are to be downloaded, and the disk of {} has room for {}; "
                    "HF_HUB_CACHE names a folder on another",
                    id_.repo(), all_bytes_, folder_.string(), space.available));
  }

  Status DownloadAll() {
    if (missing_.empty()) return Status::Ok();
    const auto num_threads = static_cast<size_t>(options_.num_connections);
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < std::min(missing_.size(), num_threads); ++i) {
        threads.emplace_back([this] {
          NameThisThread("download");
          Work();
        });
      }
    } catch (const std::system_error&) {  // fewer do
    }
    Work();
    threads.clear();
    return status_;
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
    ASSIGN_OR_RETURN(const auto client, HubClient::Make(options_));
    while (!has_failed_) {
      const size_t index = next_++;
      if (index >= missing_.size()) break;
      RETURN_IF_ERROR(Download(*client, *missing_[index]));
    }
    return Status::Ok();
  }

  Status Download(HubClient& client, const HubFile& file) {
    const fs::path partial = PartialOf(file);
    ASSIGN_OR_RETURN(Descriptor opened, CreateFile(partial, Existing::kAppend));
    TemporaryFile coming{.path = partial, .file = std::move(opened)};
    if (flock(coming.file.get(), LOCK_EX | LOCK_NB) != 0)
      return Unavailable(fmt::format("{}: another process downloads {}", id_.repo(), file.path));
    // One that did meanwhile: what was opened may be its blob, to which nothing may be written.
    if (Has(file)) {
      unlink(partial.c_str());
      return Status::Ok();
    }
    Status right;
    for (int i = 0; i < 2; ++i) {
      RETURN_IF_ERROR(Fetch(client, file, coming));
      right = Check(file, partial);
      if (right.ok()) break;
      RETURN_IF_ERROR(Empty(coming));
    }
    RETURN_IF_ERROR(right);
    if (fdatasync(coming.file.get()) != 0) return SystemError(partial, "write", errno);
    return Publish(coming, BlobOf(file));
  }

  Status Fetch(HubClient& client, const HubFile& file, const TemporaryFile& coming) {
    const auto restart = [&] { return Empty(coming); };
    uint64_t begin = SizeOf(coming.path);
    if (begin > file.size) {
      RETURN_IF_ERROR(Empty(coming));
      begin = 0;
    }
    return client.Read(id_, commit_, file, begin,
                       {.take = [&](std::string_view bytes) -> Status {
                          if (has_failed_) return Cancelled("another transfer failed");
                          RETURN_IF_ERROR(WriteAll(coming.file, coming.path, bytes));
                          fetched_ += bytes.size();
                          if (options_.progress)
                            options_.progress(std::min<uint64_t>(fetched_, all_bytes_), all_bytes_);
                          return Status::Ok();
                        },
                        .restart = restart});
  }

  static Status Check(const HubFile& file, const fs::path& path) {
    const bool is_sha256 = file.digest.size() == 64;
    const std::string prefix = is_sha256 ? std::string() : fmt::format("blob {}", file.size) + '\0';
    ASSIGN_OR_RETURN(
        const std::string hash,
        object_store::HashFile(
            path, is_sha256 ? object_store::HashKind::kSha256 : object_store::HashKind::kSha1,
            prefix));
    if (ToHex(hash) == file.digest) return Status::Ok();
    return DataLoss(fmt::format("{} has not the {} that the hub says: {}, not {}", file.path,
                                is_sha256 ? "SHA-256" : "git hash", ToHex(hash), file.digest));
  }

  // The link's own name appears whole or not at all.
  Status Link(const HubFile& file) const {
    const fs::path link = folder_ / "snapshots" / commit_ / file.path;
    RETURN_IF_ERROR(MakeFolder(link.parent_path()));
    fs::path target = "../../blobs";
    for (const char c : file.path)
      if (c == '/') target = ".." / target;
    target /= file.digest;
    std::error_code error;
    if (fs::read_symlink(link, error) == target) return Status::Ok();
    const fs::path fresh = link.string() + ".new";
    fs::remove(fresh, error);
    fs::create_symlink(target, fresh, error);
    if (error) return SystemError(fresh, "make the link", error.value());
    if (std::rename(fresh.c_str(), link.c_str()) != 0)
      return SystemError(link, "rename onto", errno);
    return Status::Ok();
  }

  Status WriteRef() const {
    if (id_.revision == commit_) return Status::Ok();
    const fs::path ref = folder_ / "refs" / id_.revision;
    RETURN_IF_ERROR(MakeFolder(ref.parent_path()));
    return WriteFile(ref, commit_);
  }

  const HubId id_;
  const HubOptions options_;
  const fs::path folder_;
  std::string commit_;
  std::vector<HubFile> files_;
  std::vector<const HubFile*> missing_;
  uint64_t all_bytes_ = 0;  // that are to come
  std::atomic<uint64_t> fetched_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  Status status_;
};

}  // namespace

Result<Pulled> Pull(const HubId& id, const HubOptions& options) {
  const artifact::HubCache cache = artifact::FindHubCache(options.environment);
  return Puller(id, options, artifact::HubModelFolder(cache.dir, id)).Run();
}

}  // namespace inflight::hub
