// SPDX-License-Identifier: Apache-2.0
// An engine, a checkpoint, a Hugging Face directory or a tokenizer that lies in a store, as a local
// folder.
#pragma once

#include <filesystem>
#include <string>

#include "inflight/status.h"
#include "object_store/options.h"

namespace inflight::object_store {

// The folder in the cache that has what `text`, an address, names now; what is there already is not
// downloaded again. It stays for later calls, of other processes too, and is removed when the
// address has something else for an hour. kNotFound where nothing lies there.
Result<std::filesystem::path> FetchModel(const std::string& text, const Options& options);

}  // namespace inflight::object_store
