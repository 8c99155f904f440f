// SPDX-License-Identifier: Apache-2.0
// What a user names as the directory of a model: a directory, an id in the Hugging Face cache, or
// an address of an object store.
#pragma once

#include <filesystem>

#include "inflight/status.h"
#include "object_store/options.h"

namespace inflight::tool {

// A local directory; of an address the copy in the cache, with a bar while it comes.
Result<std::filesystem::path> ModelDirectory(const std::filesystem::path& argument,
                                             object_store::Options options = {});

}  // namespace inflight::tool
