// SPDX-License-Identifier: Apache-2.0
#include "artifact/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"

namespace inflight::artifact {

Result<OutputFile> OutputFile::Create(const std::filesystem::path& path) {
  OutputFile file;
  file.path_ = path;
  ASSIGN_OR_RETURN(file.temporary_, CreateTemporary(path));
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

OutputFile::~OutputFile() {
  if (temporary_.file.ok()) unlink(temporary_.path.c_str());
}

Status OutputFile::Error(const char* what) const {
  const int error = errno;
  const StatusCode code =
      error == ENOSPC || error == EDQUOT ? StatusCode::kResourceExhausted : StatusCode::kInternal;
  return {code, fmt::format("{}: cannot {}: {}", path_.string(), what, std::strerror(error))};
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n =
        pwrite(temporary_.file.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("write");
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::Ok();
}

Status OutputFile::Commit(uint64_t size_bytes) {
  if (ftruncate(temporary_.file.get(), static_cast<off_t>(size_bytes)) != 0) return Error("size");
  RETURN_IF_ERROR(Publish(temporary_, path_));
  temporary_.file = Descriptor();
  return Status::Ok();
}

}  // namespace inflight::artifact
