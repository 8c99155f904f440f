// SPDX-License-Identifier: Apache-2.0
// How object stores are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace inflight::object_store {

// The value of an environment variable, empty where it is not set.
using Environment = std::function<std::string(const char* name)>;
Environment ProcessEnvironment();

struct Options {
  std::filesystem::path cache_dir;  // empty: DefaultCacheDir
  Environment environment = ProcessEnvironment();
  int num_connections = 8;   // of one download
  int max_attempts = 7;      // without a byte of progress
  int first_delay_ms = 200;  // before the second attempt; twice that before the next, 10 s at most
  int slow_s = 30;           // as HttpLimits
  std::function<bool()> is_cancelled;  // may be null
  std::function<void(uint64_t done, uint64_t all)>
      progress;  // in bytes, from any thread; may be null
};

// $XDG_CACHE_HOME/inflight/objects, else ~/.cache/inflight/objects; empty where neither is known.
std::filesystem::path DefaultCacheDir(const Environment& environment);

}  // namespace inflight::object_store
