// SPDX-License-Identifier: Apache-2.0
#include "base/open_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/control_bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

Status LeadsOut(const std::string& name) {
  return {StatusCode::kPermissionDenied, "'" + name + "' leads out of its folder"};
}

int CallOpenat2(int folder, const std::string& name, int flags) {
  open_how how = {};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  int fd = -1;
  do {  // EAGAIN: something was renamed meanwhile
    fd = static_cast<int>(syscall(SYS_openat2, folder, name.c_str(), &how, sizeof(how)));
  } while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  return fd;
}

Result<Descriptor> OpenByKernel(const fs::path& folder, const std::string& name, int flags) {
  const Descriptor root(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.ok()) return SystemError(folder, "open", errno);
  Descriptor opened(CallOpenat2(root.get(), name, flags));
  if (opened.ok()) return opened;
  if (errno == EXDEV || errno == ELOOP) return LeadsOut(name);
  return SystemError(folder / name, "open", errno);
}

Result<Descriptor> OpenCanonical(const fs::path& folder, const std::string& name, int flags) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return SystemError(folder, "open", error.value());
  // Of what is absent, as much as is there.
  const fs::path real = fs::weakly_canonical(root / name, error);
  if (error) return SystemError(folder / name, "open", error.value());
  if (std::ranges::mismatch(root, real).in1 != root.end()) return LeadsOut(name);
  Descriptor opened(open(real.c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
  if (opened.ok()) return opened;
  if (errno == ELOOP) return LeadsOut(name);  // a link to what is absent
  return SystemError(folder / name, "open", errno);
}

}  // namespace

BeneathBy BeneathByDefault() {
  static const BeneathBy by = [] {
    const Descriptor root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    return Descriptor(CallOpenat2(root.get(), ".", O_PATH)).ok() ? BeneathBy::kKernel
                                                                 : BeneathBy::kCanonicalPaths;
  }();
  return by;
}

Result<Descriptor> OpenBeneath(const fs::path& folder, const std::string& name, int flags,
                               BeneathBy by) {
  const fs::path path(name);
  const bool leaves = path.is_absolute() || HasControlBytes(name) ||
                      std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; });
  if (leaves) return LeadsOut(name);
  return by == BeneathBy::kKernel ? OpenByKernel(folder, name, flags)
                                  : OpenCanonical(folder, name, flags);
}

}  // namespace inflight
