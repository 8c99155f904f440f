// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "serving/memory/shared_object.h"

namespace inflight::serving {
namespace {

Status IsSmaller() { return Internal("is smaller than when it was registered"); }

class PosixObject final : public SharedObject {
 public:
  explicit PosixObject(int fd) : fd_(fd) {}
  ~PosixObject() override { close(fd_); }
  PosixObject(const PosixObject&) = delete;
  PosixObject& operator=(const PosixObject&) = delete;

  uint64_t byte_size() const override {
    struct stat info {};
    return fstat(fd_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

  Status Read(uint64_t offset, std::span<std::byte> bytes) const override {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got =
          pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return IsSmaller();
      done += static_cast<size_t>(got);
    }
    return Status::Ok();
  }

  // A write behind the object's end would make it longer: that is for its owner to decide.
  Status Write(uint64_t offset, std::span<const std::byte> bytes) const override {
    if (byte_size() < offset + bytes.size()) return IsSmaller();
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put =
          pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return IsSmaller();
      done += static_cast<size_t>(put);
    }
    return Status::Ok();
  }

 private:
  const int fd_;
};

}  // namespace

OpenedObject OpenPosixObject(const std::string& key) {
  const int fd = shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return Internal("Unable to open shared memory region: '" + key + "'");
  return std::shared_ptr<const SharedObject>(std::make_shared<PosixObject>(fd));
}

}  // namespace inflight::serving
