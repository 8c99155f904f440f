// SPDX-License-Identifier: Apache-2.0
// Downloads a model of a hub into the Hugging Face cache, in the layout of artifact/hub_cache.h:
//
//   blobs/DIGEST.incomplete   bytes so far; a later call goes on behind them
//   blobs/DIGEST              after its size and its digest were found right
//   snapshots/COMMIT/PATH     a link to it
//   refs/REVISION             written last: a model that is not whole is found by no revision
#pragma once

#include <cstdint>
#include <filesystem>

#include "artifact/hub_cache.h"
#include "hub/client.h"

namespace inflight::hub {

struct Pulled {
  std::filesystem::path path;  // of the snapshot, or of the GGUF file in it
  size_t num_files = 0;
  uint64_t bytes = 0;             // of all of them
  uint64_t downloaded_bytes = 0;  // of those that were not there
};

// Errors name the model and what to do. kResourceExhausted: the disk has no room for it.
// kDataLoss: bytes are not what the hub says, also the second time. kUnavailable: another process
// downloads one of the files, or the hub does not answer.
Result<Pulled> Pull(const artifact::HubId& id, const HubOptions& options);

}  // namespace inflight::hub
