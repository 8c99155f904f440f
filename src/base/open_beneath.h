// SPDX-License-Identifier: Apache-2.0
// Names from strangers, opened below a folder and nowhere else.
#pragma once

#include <filesystem>
#include <string>

#include "base/descriptor.h"
#include "inflight/status.h"

namespace inflight {

enum class BeneathBy {
  kKernel,  // openat2(2), RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS: no moment between look and
            // open
  kCanonicalPaths,  // of kernels before 5.6, and of sandboxes that do not know openat2
};
BeneathBy BeneathByDefault();  // looked for once

// Opens `name` below `folder` with `flags` of open(2), O_CLOEXEC among them anyway. `folder` may be
// a link. kPermissionDenied for control bytes; where an absolute path, "..", or a link leads out of
// it, and where the kernel decides also for a link that is an absolute path; whether something lies
// there is not told. kNotFound and others name the path and the system's reason.
Result<Descriptor> OpenBeneath(const std::filesystem::path& folder, const std::string& name,
                               int flags, BeneathBy by = BeneathByDefault());

}  // namespace inflight
