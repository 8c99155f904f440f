// SPDX-License-Identifier: Apache-2.0
// Who registers regions of shared memory.
#pragma once

#include <string>
#include <string_view>

#include "base/client.h"

namespace inflight::serving {

struct Registrant {
  std::string client;     // its key, else its address without a port: what regions are counted by
  bool is_local = false;  // of this machine
};

// `address` as a front end knows it: "127.0.0.1", "::1", "ipv4:127.0.0.1", "ipv6:[::1]",
// "ipv6:%5B::1%5D"; "unix" and "" for peers without one, of Unix sockets. Loopback alone is local:
// 127.0.0.0/8, also as ::ffff:127.0.0.1, and ::1. `key` null: the client is not known by one.
Registrant RegistrantAt(std::string_view address, const Client* key);

}  // namespace inflight::serving
