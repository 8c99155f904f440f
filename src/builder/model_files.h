// SPDX-License-Identifier: Apache-2.0
// The files beside a model's weights that serving needs: tokenizer, chat template, generation
// defaults.
#pragma once

#include <filesystem>

#include "inflight/status.h"

namespace inflight::builder {

// Copies those of them that `from` has.
Status CopyModelFiles(const std::filesystem::path& from, const std::filesystem::path& to);

// kInvalidArgument if both name one directory: its config.json would be overwritten.
Status CheckDistinct(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace inflight::builder
