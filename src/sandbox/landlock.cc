// SPDX-License-Identifier: Apache-2.0
#include "sandbox/landlock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "base/status_macros.h"

namespace inflight::sandbox {
namespace {

// clang-format off
constexpr uint64_t kWriteFile  = 1 << 1;
constexpr uint64_t kReadFile   = 1 << 2;
constexpr uint64_t kReadDir    = 1 << 3;
constexpr uint64_t kRemoveDir  = 1 << 4;
constexpr uint64_t kRemoveFile = 1 << 5;
constexpr uint64_t kMakeDir    = 1 << 7;
constexpr uint64_t kMakeReg    = 1 << 8;
constexpr uint64_t kMakeSock   = 1 << 9;
constexpr uint64_t kRefer      = 1 << 13;
constexpr uint64_t kTruncate   = 1 << 14;
constexpr uint64_t kIoctlDev   = 1 << 15;

constexpr uint64_t kConnectTcp         = 1 << 1;  // of handled_access_net
constexpr uint64_t kScopeAbstractUnix  = 1 << 0;  // of scoped
constexpr uint64_t kScopeSignal        = 1 << 1;

constexpr uint64_t kOfFiles = kWriteFile | kReadFile | kTruncate | kIoctlDev;  // what a rule about a file may say
constexpr uint64_t kRead    = kReadFile | kReadDir;
constexpr uint64_t kObject  = kRead | kWriteFile | kTruncate;
constexpr uint64_t kWrite   = kObject | kRemoveDir | kRemoveFile | kMakeDir | kMakeReg | kRefer;
constexpr uint64_t kSocket  = kReadDir | kRemoveFile | kMakeSock;
constexpr uint64_t kDevice  = kRead | kWriteFile | kIoctlDev;

// How many of the rights to files each version knows, from the lowest bit. Execution is the lowest: no rule allows it.
constexpr int kNumRights[] = {0, 13, 14, 15, 15, 16};
// clang-format on

struct RulesetAttributes {  // landlock_ruleset_attr; older kernels want 0 in what they do not know
  uint64_t handled_access_fs = 0;
  uint64_t handled_access_net = 0;
  uint64_t scoped = 0;
};

struct __attribute__((packed)) PathAttributes {  // landlock_path_beneath_attr
  uint64_t allowed_access = 0;
  int32_t parent_fd = -1;
};
constexpr int kPathBeneath = 1;
constexpr int kVersion = 1 << 0;

Status Failed(const char* what, const std::filesystem::path& path = {}) {
  const std::string reason = std::generic_category().message(errno);
  return FailedPrecondition(path.empty() ? fmt::format("{}: {}", what, reason)
                                         : fmt::format("{} '{}': {}", what, path.string(), reason));
}

uint64_t HandledRights(int version) {
  const int known = std::min<int>(version, std::size(kNumRights) - 1);
  return (uint64_t{1} << kNumRights[known]) - 1;
}

// The descriptor stays open. procfs makes another inode for a name that was dropped from the
// kernel's cache of names, and a rule is about an inode.
Status Allow(int ruleset, const std::filesystem::path& path, uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT || errno == EACCES ? Status::Ok() : Failed("cannot open", path);
  struct stat status {};
  if (fstat(fd, &status) != 0) return Failed("cannot look at", path);
  if (!S_ISDIR(status.st_mode)) rights &= kOfFiles;
  const PathAttributes rule{.allowed_access = rights, .parent_fd = fd};
  if (syscall(SYS_landlock_add_rule, ruleset, kPathBeneath, &rule, 0) != 0)
    return Failed("cannot allow", path);
  return Status::Ok();
}

Status AllowAll(int ruleset, const Files& files, uint64_t known) {
  const auto allow = [&](const std::vector<std::filesystem::path>& paths,
                         uint64_t rights) -> Status {
    for (const std::filesystem::path& path : paths)
      RETURN_IF_ERROR(Allow(ruleset, path, rights & known));
    return Status::Ok();
  };
  RETURN_IF_ERROR(allow(files.read, kRead));
  RETURN_IF_ERROR(allow(files.write, kWrite));
  RETURN_IF_ERROR(allow(files.sockets, kSocket));
  RETURN_IF_ERROR(allow(files.objects, kObject));
  return allow(files.devices, kDevice);
}

}  // namespace

int LandlockVersion() {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersion);  // NOLINT: its type
  return static_cast<int>(std::max(version, 0L));
}

Status RestrictFiles(const Rules& rules, int version) {
  RulesetAttributes handled{.handled_access_fs = HandledRights(version)};
  if (version >= 4 && !rules.may_connect) handled.handled_access_net = kConnectTcp;
  if (version >= 6) {
    handled.scoped = kScopeSignal | (rules.has_unix_sockets ? 0 : kScopeAbstractUnix);
  }
  const int ruleset =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0));
  if (ruleset < 0) return Failed("Landlock makes no set of rules");
  Status status = AllowAll(ruleset, rules.files, handled.handled_access_fs);
  if (status.ok() && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
    status = Failed("Landlock does not take its rules");
  close(ruleset);
  return status;
}

}  // namespace inflight::sandbox
