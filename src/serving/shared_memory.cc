// SPDX-License-Identifier: Apache-2.0
#include "serving/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace inflight::serving {
namespace {

// Keys of the shared memory between a server and its Python models.
constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";

Status Refuse(const std::string& name, const std::string& why) {
  return InvalidArgument("failed to register shared memory region '" + name + "': " + why);
}

}  // namespace

class SharedWindow::File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

Result<std::string> SharedWindow::Read(uint64_t& left) const {
  if (byte_size_ > left) {
    return InvalidArgument("inputs from shared memory: a request may have " +
                           std::to_string(kMaxSharedInputBytes) + " bytes in all, region '" +
                           region_ + "' gives " + std::to_string(byte_size_) + " where " +
                           std::to_string(left) + " are left");
  }
  left -= byte_size_;
  std::string bytes(byte_size_, '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(file_->fd(), bytes.data() + done, bytes.size() - done,
                              static_cast<off_t>(offset_ + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Internal("shared memory region '" + region_ +
                      "' is smaller than when it was registered");
    }
    done += static_cast<size_t>(got);
  }
  return bytes;
}

// A write behind the object's end would make it longer: that is for its owner to decide.
Status SharedWindow::Write(std::span<const std::byte> data) const {
  struct stat info {};
  const bool fits = fstat(file_->fd(), &info) == 0 &&
                    static_cast<uint64_t>(info.st_size) >= offset_ + data.size();
  size_t done = 0;
  while (fits && done < data.size()) {
    const ssize_t put = pwrite(file_->fd(), data.data() + done, data.size() - done,
                               static_cast<off_t>(offset_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  if (done == data.size() && fits) return Status::Ok();
  return Internal("shared memory region '" + region_ + "' is smaller than when it was registered");
}

Status SharedMemory::CheckAllowed() const {
  if (is_allowed_) return Status::Ok();
  return Unimplemented(
      "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
      "enable.");
}

Status SharedMemory::Register(SharedRegion region) {
  RETURN_IF_ERROR(CheckAllowed());
  std::lock_guard lock(mutex_);
  if (regions_.contains(region.name)) {
    return AlreadyExists("shared memory region '" + region.name + "' already in manager");
  }
  const std::string_view bare_key =
      std::string_view(region.key).substr(region.key.starts_with('/') ? 1 : 0);
  if (bare_key.starts_with(kReservedPrefix)) {
    return Refuse(region.name,
                  "keys that start with '" + std::string(kReservedPrefix) + "' are reserved");
  }
  if (std::any_of(regions_.begin(), regions_.end(),
                  [&](const auto& known) { return known.second.region.key == region.key; })) {
    return Internal("Invalid shared memory region: '" + region.key + "'");
  }
  const int fd = shm_open(region.key.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return Internal("Unable to open shared memory region: '" + region.key + "'");
  auto file = std::make_shared<const SharedWindow::File>(fd);
  struct stat info {};
  if (fstat(fd, &info) != 0) return Internal("Invalid shared memory region: '" + region.key + "'");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (region.offset > size || region.byte_size > size - region.offset) {
    return Refuse(region.name, "invalid args");
  }
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (region.byte_size == 0 || region.offset % page_bytes != 0) {
    return Refuse(region.name, "unable to process address spaceInvalid argument");
  }
  const std::string name = region.name;
  regions_.emplace(name, Open{std::move(region), std::move(file)});
  return Status::Ok();
}

Status SharedMemory::Unregister(std::string_view name) {
  RETURN_IF_ERROR(CheckAllowed());
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const auto& known) { return name.empty() || known.first == name; });
  return Status::Ok();
}

Status SharedMemory::RegisterCuda(std::string_view name) const {
  RETURN_IF_ERROR(CheckAllowed());
  return InvalidArgument("failed to register shared memory region '" + std::string(name) +
                         "': regions of GPUs are not supported by this server");
}

Status SharedMemory::FindCuda(std::string_view name) const {
  if (name.empty()) return Status::Ok();
  return NotFound("Unable to find cuda shared memory region: '" + std::string(name) + "'");
}

Result<std::vector<SharedRegion>> SharedMemory::Find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  std::vector<SharedRegion> found;
  for (const auto& [known, open] : regions_) {
    if (name.empty() || known == name) found.push_back(open.region);
  }
  if (found.empty() && !name.empty()) {
    return NotFound("Unable to find system shared memory region: '" + std::string(name) + "'");
  }
  return found;
}

Result<SharedWindow> SharedMemory::Window(std::string_view region, uint64_t offset,
                                          uint64_t byte_size) const {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) {
    return NotFound("Unable to find shared memory region: '" + std::string(region) + "'");
  }
  const SharedRegion& known = found->second.region;
  if (offset >= known.byte_size) {
    return InvalidArgument("Invalid offset for shared memory region: '" + known.name + "'");
  }
  if (byte_size == 0 || byte_size > known.byte_size - offset) {
    return InvalidArgument("Invalid offset + byte size for shared memory region: '" + known.name +
                           "'");
  }
  SharedWindow window;
  window.file_ = found->second.file;
  window.region_ = known.name;
  window.offset_ = known.offset + offset;
  window.byte_size_ = byte_size;
  return window;
}

}  // namespace inflight::serving
