// SPDX-License-Identifier: Apache-2.0
#include "artifact/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace inflight::artifact {

Result<OutputFile> OutputFile::Create(const std::filesystem::path& path) {
  OutputFile file;
  file.path_ = path;
  file.temporary_ = path;
  file.temporary_ += fmt::format(".tmp{}", getpid());
  file.fd_ = open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return file.Error("create");
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

Status OutputFile::Error(const char* what) const {
  const int error = errno;
  const StatusCode code =
      error == ENOSPC || error == EDQUOT ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return {code, fmt::format("{}: cannot {}: {}", path_.string(), what, std::strerror(error))};
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("write");
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status OutputFile::Commit(uint64_t size_bytes) {
  if (ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) return Error("size");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Error("rename onto");
  close(std::exchange(fd_, -1));
  return Status::Ok();
}

}  // namespace inflight::artifact
