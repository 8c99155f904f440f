// SPDX-License-Identifier: Apache-2.0
// What a process that reads object stores opens besides its cache: for sandboxes.
#pragma once

#include <filesystem>
#include <vector>

#include "object_store/options.h"

namespace inflight::object_store {

// Files of credentials and certificates that the environment names, or that lie where tools keep
// them; of tokens that are replaced by others of the same name their folders.
std::vector<std::filesystem::path> NeededFiles(const Environment& environment);

}  // namespace inflight::object_store
