// SPDX-License-Identifier: Apache-2.0
// A head of EAGLE whose attention has heads twice as wide, and that computes the same: GPUs have
// kernels of their own for that width, as for those of published heads.
#pragma once

#include <filesystem>

#include "inflight/status.h"

namespace inflight::golden {

// Both directories as builder/eagle_files.h has them; `to` is emptied. With the table of the model
// in `table_of`, where that is not empty.
Status WriteWidenedHead(const std::filesystem::path& from, const std::filesystem::path& to,
                        const std::filesystem::path& table_of = {});

}  // namespace inflight::golden
