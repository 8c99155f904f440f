// SPDX-License-Identifier: Apache-2.0
// Which journal is kept of the models that are opened (docs/replay.md).
#pragma once

#include <cstdint>
#include <string>

namespace inflight::loader {

struct Recording {
  std::string file;  // empty: none is; {model} is its name and version, "tensorrt_llm-1"
  int64_t file_bytes = int64_t{64} << 20;
  bool keeps_prompts = false;  // without them hashes of prompts, which no replay can repeat
};

}  // namespace inflight::loader
