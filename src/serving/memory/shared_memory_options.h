// SPDX-License-Identifier: Apache-2.0
// Which shared memory clients may register, and how much of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace inflight::serving {

struct SharedMemoryOptions {
  bool clients_may_register = false;
  // What names of objects begin with, slashes before them aside; none = all names.
  std::vector<std::string> prefixes;
  bool remote_peers = false;     // also clients that are not of this machine
  bool foreign_objects = false;  // also objects of other users than the server's own
  int max_client_regions = 512;  // of one client, by its address
  int64_t max_client_bytes = int64_t{64} << 30;  // of the objects behind them, as they are then
};

}  // namespace inflight::serving
