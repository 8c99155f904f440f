// SPDX-License-Identifier: Apache-2.0
// The tensor data of engine files: read into memory or checked in place, by all threads of a pool.
#pragma once

#include <functional>

#include "artifact/engine_file.h"
#include "tensor/device.h"

namespace inflight::artifact {

using LoadProgress = std::function<void(double fraction)>;

// Compares every tensor of the mapped file `bytes` with its checksum.
Status VerifyEngineData(std::span<const std::byte> bytes, const EngineTable& table,
                        std::string_view file, CpuPool& pool);

// Reads [data_offset, file_bytes) of `path` to `target`, which is memory of `device`, and compares
// checksums on the way, while the bytes are in the cache.
Status LoadEngineData(const std::filesystem::path& path, const EngineTable& table,
                      std::byte* target, Device& device, const LoadProgress& progress = {});

}  // namespace inflight::artifact
