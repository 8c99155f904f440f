// SPDX-License-Identifier: Apache-2.0
// What a user names as the directory of a model: a directory, an id at the hub of Hugging Face, or
// an address of an object store.
#pragma once

#include <filesystem>

#include "config/schema.h"
#include "inflight/status.h"
#include "object_store/options.h"

namespace inflight::tool {

// A local directory; of an address the copy in the cache, with a bar while it comes. Of an id that
// is in no cache too, where `downloads`.
Result<std::filesystem::path> ModelDirectory(const std::filesystem::path& argument,
                                             object_store::Options options = {},
                                             bool downloads = false);

// Declares --download in `schema`; `field` gives the flag.
template <typename Options, typename Field>
void AddDownload(config::Schema<Options>& schema, const Field& field) {
  schema.Add("download", field,
             "A model that is named ORG/NAME and is in no cache on this machine is downloaded from "
             "the hub of Hugging Face first, as `inflight pull` does it. HF_HUB_OFFLINE=1 forbids "
             "that.",
             config::Switch());
}

}  // namespace inflight::tool
