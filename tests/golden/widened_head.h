// SPDX-License-Identifier: Apache-2.0
// A head of EAGLE whose attention has heads twice as wide, and that computes the same: GPUs have
// kernels of their own for that width, as for those of published heads.
#pragma once

#include <filesystem>

#include "inflight/status.h"

namespace inflight::golden {

// Both directories as builder/eagle_files.h has them; `to` is emptied.
Status WriteWidenedHead(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace inflight::golden
