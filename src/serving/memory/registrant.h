// SPDX-License-Identifier: Apache-2.0
// Who registers regions of shared memory.
#pragma once

#include <string>

#include "base/client.h"

namespace inflight::serving {

struct Registrant {
  std::string client;      // its key, else its address: what regions are counted by
  bool is_local = false;   // of this machine
  Identity identity = {};  // whose the regions are
};

// `address` is the peer's, as its listener knows it: "127.0.0.1", "::1". Loopback alone is local:
// 127.0.0.0/8 and ::1. `key` null: the client is not known by one.
Registrant RegistrantAt(const std::string& address, const Client* key);

}  // namespace inflight::serving
