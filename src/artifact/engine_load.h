// SPDX-License-Identifier: Apache-2.0
// The tensor data of engine files: read into memory or checked in place, by all threads of a pool.
#pragma once

#include <functional>

#include "artifact/engine_file.h"
#include "tensor/device.h"

namespace inflight::artifact {

// A part of [data_offset, file_bytes), from data_offset counted, and where its bytes go.
struct LoadTarget {
  uint64_t offset_bytes = 0;
  uint64_t num_bytes = 0;
  std::byte* data = nullptr;
  bool is_on_host = false;  // of a GPU: pinned host memory, which is read into as it is
};

using LoadProgress = std::function<void(double fraction)>;

// Compares every tensor of the mapped file `bytes` with its checksum.
Status VerifyEngineData(std::span<const std::byte> bytes, const EngineTable& table,
                        std::string_view file, CpuPool& pool);

// Reads [data_offset, file_bytes) of `path` to `targets`, ascending and without gaps, which are
// memory of `device`, and compares checksums on the way, while the bytes are in the cache. No
// tensor lies in two of them.
Status LoadEngineData(const std::filesystem::path& path, const EngineTable& table,
                      std::span<const LoadTarget> targets, Device& device,
                      const LoadProgress& progress = {});
// The same to one place.
Status LoadEngineData(const std::filesystem::path& path, const EngineTable& table,
                      std::byte* target, Device& device, const LoadProgress& progress = {});

}  // namespace inflight::artifact
