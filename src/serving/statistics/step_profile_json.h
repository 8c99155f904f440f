// SPDX-License-Identifier: Apache-2.0
// Profiles of step loops as a trace that Perfetto and chrome://tracing open: the JSON of "Trace
// Event Format" (Chromium).
//
//   process   the server
//   thread    a step loop, by its model and version
//   events    complete ones: a turn, and in it its phases; times in microseconds from the start of
//             the capture
//   otherData what the capture was taken on, and whether it is whole
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "inflight/step_profile.h"

namespace inflight::serving {

struct LoopProfile {
  std::string model;
  std::string version;
  std::string device;  // "cpu", "cuda:0"
  int64_t kv_blocks_max = 0;
  StepProfile steps = {};
};

struct ProfileTrace {
  int64_t begin_ns = 0, end_ns = 0;  // of the capture; monotonic
  int64_t begin_epoch_ms = 0;
  bool is_whole = true;  // false: the server stopped before its time was over
  std::vector<LoopProfile> loops = {};
};

// What the events of one turn take in the text at most.
inline constexpr size_t kMaxTurnJsonBytes = 2560;
// The same of all else.
size_t MaxFrameJsonBytes(const ProfileTrace& trace);

std::string ProfileJson(const ProfileTrace& trace);

}  // namespace inflight::serving
