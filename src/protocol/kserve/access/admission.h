// SPDX-License-Identifier: Apache-2.0
// What the rules of access say of one request.
#pragma once

#include <memory>

#include "base/client.h"
#include "inflight/status.h"

namespace inflight::kserve {

struct Admission {
  Status status = {};  // OK, or why it may not and, of a rate, when it may again
  // Of its key; null: it has none that is known.
  std::shared_ptr<const Client> client = {};
  bool lacks_header = false;  // that a restriction asks for: refused in Triton's words

  bool ok() const { return status.ok(); }
};

}  // namespace inflight::kserve
