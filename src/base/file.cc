// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/create_file.h"
#include "base/mapped_places.h"
#include "base/status_macros.h"

namespace inflight {

Status SystemError(const std::filesystem::path& path, std::string_view what, int error) {
  const StatusCode code =
      error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound : StatusCode::kInternal;
  return {code, fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(error))};
}

bool FileExists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

Result<std::string> ReadFile(const std::filesystem::path& path, uint64_t max_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return SystemError(path, "open", errno);
  return ReadOpenFile(file, path, max_bytes);
}

Result<std::string> ReadOpenFile(const Descriptor& file, const std::filesystem::path& path,
                                 uint64_t max_bytes) {
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return SystemError(path, "stat", errno);
  if (S_ISDIR(info.st_mode))
    return InvalidArgument(path.string() + ": is a directory, a file is needed");
  const auto too_large = [&] {
    return InvalidArgument(fmt::format("{}: larger than {} bytes", path.string(), max_bytes));
  };
  const auto size = static_cast<uint64_t>(info.st_size);  // of a file with holes whatever it says
  if (size > max_bytes) return too_large();
  std::string content;
  content.reserve(size);
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "read", errno);
    if (n == 0) return content;
    if (content.size() + static_cast<size_t>(n) > max_bytes) return too_large();
    content.append(buffer, static_cast<size_t>(n));
  }
}

Status WriteFile(const std::filesystem::path& path, std::string_view content) {
  ASSIGN_OR_RETURN(const TemporaryFile temporary, CreateTemporary(path));
  Status status = WriteAll(temporary.file, temporary.path, content);
  if (status.ok()) status = Publish(temporary, path);
  if (!status.ok()) unlink(temporary.path.c_str());
  return status;
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  MappedFile mapped;
  mapped.path_ = path;
  mapped.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (mapped.fd_ < 0) return SystemError(path, "open", errno);
  struct stat info {};
  if (fstat(mapped.fd_, &info) != 0) return SystemError(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path.string() + ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return mapped;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, mapped.fd_, 0);
  if (data == MAP_FAILED) return SystemError(path, "map", errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  RememberMapping(mapped.data_, size, path);
  return mapped;
}

Status MappedFile::Read(std::span<const std::byte> part, std::byte* target) const {
  auto offset = static_cast<off_t>(part.data() - data_);
  size_t left = part.size();
  while (left > 0) {
    const ssize_t n = pread(fd_, target, left, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path_, "read", errno);
    if (n == 0) return DataLoss(path_.string() + ": was cut short while it was read");
    target += n;
    offset += n;
    left -= static_cast<size_t>(n);
  }
  return Status::Ok();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ForgetMapping(data_);
    munmap(const_cast<std::byte*>(data_), size_);
  }
  if (fd_ >= 0) close(fd_);
}

}  // namespace inflight
