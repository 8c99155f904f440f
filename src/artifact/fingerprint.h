// SPDX-License-Identifier: Apache-2.0
// Whether two copies of a model's directory, on two hosts say, hold the same files, without reading
// all of them.
#pragma once

#include <cstdint>
#include <filesystem>

#include "inflight/status.h"

namespace inflight::artifact {

// XXH3-64 over what the files of `dir` itself that end in .json, .safetensors, .bin, .pt or .engine
// are called, their sizes, and 64 KiB at each of 17 places spread evenly over each: the whole file
// where it is small. Files that differ elsewhere alone are not told apart.
Result<uint64_t> Fingerprint(const std::filesystem::path& dir);

// The same over one file, wherever it lies.
Result<uint64_t> FileFingerprint(const std::filesystem::path& path);

}  // namespace inflight::artifact
