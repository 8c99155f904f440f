// SPDX-License-Identifier: Apache-2.0
// Models in the local cache of the Hugging Face hub, found by their id. Nothing is downloaded.
//
//   CACHE/models--ORG--NAME/refs/REVISION         text: a commit
//                           snapshots/COMMIT/     the model's files, links into blobs/
//
// CACHE is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else
// $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache and its page of
// environment variables.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "inflight/status.h"

namespace inflight::artifact {

// The value of an environment variable, empty where it is not set.
using Environment = std::function<std::string(const char* name)>;
Environment ProcessEnvironment();

// The directory that a user means by `argument`: the argument itself where something has that name
// or where it is no hub id; for "org/name" or "org/name@revision" (a branch, a tag or a commit;
// default: main) the snapshot in the cache. kNotFound says where it was looked for and how to
// download it.
Result<std::filesystem::path> ResolveModelDir(const std::filesystem::path& argument,
                                              const Environment& environment);
Result<std::filesystem::path> ResolveModelDir(const std::filesystem::path& argument);

}  // namespace inflight::artifact
