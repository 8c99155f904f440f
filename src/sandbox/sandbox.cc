// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <iterator>

#include "base/status_macros.h"
#include "sandbox/landlock.h"
#include "sandbox/system_calls.h"

namespace inflight::sandbox {
namespace {

constexpr char kNoLandlock[] =
    "this kernel has no Landlock, which keeps the process from files (CONFIG_SECURITY_LANDLOCK, "
    "and landlock in the list lsm= of its command line)";
constexpr char kNoFilters[] =
    "this kernel has no filters of system calls (CONFIG_SECCOMP_FILTER), or the container forbids "
    "seccomp";

int64_t NumThreads() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::directory_iterator threads("/proc/self/task", error);
  return error ? 1 : std::distance(begin(threads), end(threads));
}

}  // namespace

Result<Entered> Enter(const Rules& rules) {
  if (const int64_t count = NumThreads(); count > 1) {
    return Internal(fmt::format("{} threads run already, which the sandbox would not hold", count));
  }
  Entered entered{.landlock = LandlockVersion(), .has_filter = HasSystemCallFilters(), .lacks = {}};
  if (entered.landlock == 0) entered.lacks.emplace_back(kNoLandlock);
  if (!entered.has_filter) entered.lacks.emplace_back(kNoFilters);
  if (rules.must_be_whole && !entered.lacks.empty())
    return FailedPrecondition(entered.lacks.front());
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return FailedPrecondition("this kernel has no no_new_privs, without which there is no sandbox");
  if (entered.landlock > 0) RETURN_IF_ERROR(RestrictFiles(rules, entered.landlock));
  if (entered.has_filter) RETURN_IF_ERROR(FilterSystemCalls(rules));
  return entered;
}

}  // namespace inflight::sandbox
