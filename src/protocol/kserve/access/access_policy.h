// SPDX-License-Identifier: Apache-2.0
// Who may ask what: one policy for every front end, over HTTP and gRPC (docs/reference/access.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "inflight/status.h"
#include "protocol/kserve/access/admission.h"
#include "protocol/kserve/access/api.h"
#include "protocol/kserve/access/keys.h"
#include "protocol/kserve/access/restriction.h"

namespace inflight::kserve {

// Where a request comes in; the table in access_policy.cc says what holds there.
enum class Entrance : uint8_t {
  kHttp,  // of KServe, of hosting platforms, of the metrics page
  kGrpc,
  kAdminPort,    // --admin-port
  kAdminSocket,  // --admin-socket
};

struct AccessRules {
  KeyFiles keys = {};                  // none: no request needs a key
  RestrictionRules restrictions = {};  // APIs that need a header
  std::string admin_place = {};        // "the port of --admin-port"; empty: administration has none
};

// A request as the policy sees it.
struct Call {
  Entrance entrance;
  const HeaderList& headers;
  bool is_whole = true;  // false: it is looked at once more when it is, and counts for no rate yet
};

// Threads: all methods are thread-safe.
class AccessPolicy {
 public:
  AccessPolicy() = default;  // all are open
  // kInvalidArgument names the option or the file, and what is wrong with it.
  static Result<std::shared_ptr<AccessPolicy>> Load(const AccessRules& rules,
                                                    Clock& clock = Clock::System());

  // Whether the call may ask for the API: at this entrance, then by the role of its key, then by
  // the header that a restriction asks for.
  Admission Admit(const Call& call, Api api) const;

  // Whether who may read metrics and statistics sees there what requests found in the KV cache
  // (docs/reference/access.md, "Tenants").
  bool SeesReuse(const Call& call) const;

  bool asks_for_keys() const { return keys_ != nullptr; }
  // Reads the files of keys that have changed since. An error: the former keys stay.
  Status ReloadIfChanged();

 private:
  std::unique_ptr<Keys> keys_;
  Restrictions restrictions_;
  std::string admin_place_;
};

}  // namespace inflight::kserve
