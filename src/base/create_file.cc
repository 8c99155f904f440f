// SPDX-License-Identifier: Apache-2.0
#include "base/create_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
constexpr mode_t kOwnersAlone = 0600;

bool IsOfTheSystem(const fs::path& path) { return path.parent_path() == "/dev"; }

// Of this process, without changing it on the way; all of them where that cannot be told.
mode_t Umask() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    mode_t mask = 0;
    if (word == "Umask:" && status >> std::oct >> mask) return mask;
  }
  return 0777 & ~kOwnersAlone;
}

}  // namespace

Result<Descriptor> CreateFile(const fs::path& path, Existing existing) {
  Descriptor made(open(path.c_str(), kFlags | O_EXCL | O_NOFOLLOW, kOwnersAlone));
  if (made.ok()) return made;
  if (errno != EEXIST || existing == Existing::kRefuse) return SystemError(path, "create", errno);
  const int mode = existing == Existing::kAppend ? O_APPEND : O_TRUNC;
  const int follow = IsOfTheSystem(path) ? 0 : O_NOFOLLOW;
  Descriptor opened(open(path.c_str(), kFlags | mode | follow, kOwnersAlone));
  if (opened.ok()) return opened;
  if (errno == ELOOP) {
    return InvalidArgument(path.string() + ": is a link; name the file that is to be written");
  }
  return SystemError(path, "open", errno);
}

Result<TemporaryFile> CreateTemporary(const fs::path& path) {
  constexpr int kMostTries = 1000;  // names that processes with this number left behind
  for (int i = 0;; ++i) {
    fs::path name = path;
    name += fmt::format(".tmp{}{}", getpid(), i == 0 ? "" : fmt::format(".{}", i));
    auto made = CreateFile(name, Existing::kRefuse);
    if (made.ok()) return TemporaryFile{.path = std::move(name), .file = *std::move(made)};
    std::error_code unreadable;
    const bool is_taken = fs::exists(fs::symlink_status(name, unreadable));
    if (!is_taken || i == kMostTries) return made.status();
  }
}

Status WriteAll(const Descriptor& file, const fs::path& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "write", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Status::Ok();
}

Status Publish(const TemporaryFile& file, const fs::path& path) {
  if (fchmod(file.file.get(), (0644 & ~Umask()) | kOwnersAlone) != 0) {
    return SystemError(file.path, "set the permissions of", errno);
  }
  if (std::rename(file.path.c_str(), path.c_str()) != 0) {
    return SystemError(path, "rename onto", errno);
  }
  return Status::Ok();
}

}  // namespace inflight
