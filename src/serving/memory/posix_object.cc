// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "serving/memory/shared_object.h"

namespace inflight::serving {
namespace {

Status IsSmaller() { return Internal("is smaller than when it was registered"); }

class PosixObject final : public SharedObject {
 public:
  explicit PosixObject(Descriptor opened) : opened_(std::move(opened)) {}

  uint64_t byte_size() const override {
    struct stat info {};
    return fstat(opened_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }

  Status Read(uint64_t offset, std::span<std::byte> bytes) const override {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = pread(opened_.get(), bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset + done));
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
      const ssize_t put = pwrite(opened_.get(), bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return IsSmaller();
      done += static_cast<size_t>(put);
    }
    return Status::Ok();
  }

 private:
  const Descriptor opened_;
};

}  // namespace

OpenedObject OpenPosixObject(const std::string& key, bool may_be_foreign) {
  Descriptor opened(shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat info {};
  if (!opened.ok() || fstat(opened.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Internal("Unable to open shared memory region: '" + key + "'");
  }
  if (!may_be_foreign && info.st_uid != geteuid()) {
    return {{StatusCode::kPermissionDenied,
             "the object '" + key + "' belongs to another user than the server runs as"}};
  }
  return std::shared_ptr<const SharedObject>(std::make_shared<PosixObject>(std::move(opened)));
}

}  // namespace inflight::serving
