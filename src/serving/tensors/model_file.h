// SPDX-License-Identifier: Apache-2.0
// Files that a model's configuration or a load request names. Both may come over the network, so
// that a name must not lead out of the model's directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::serving {

// Whether `name` leads below the folder that it is added to, links aside.
bool StaysBelow(const std::filesystem::path& name);

// The content of `file` below `folder`. Where it lies elsewhere, also behind a link,
// kInvalidArgument: "<field>: '<file>' lies outside of the model's <place>", which does not tell
// what lies there (base/open_beneath.h).
Result<std::string> ReadModelFile(const std::filesystem::path& folder, std::string_view place,
                                  const std::string& file, std::string_view field,
                                  uint64_t max_bytes);

// Where `name`, a file or a folder, lies below `folder`: a path without links. `name` may be an
// absolute path below `folder`. Errors as of ReadModelFile, and "<field>: '<name>' does not exist".
Result<std::filesystem::path> FindBeneath(const std::filesystem::path& folder,
                                          std::string_view place, const std::string& name,
                                          std::string_view field);

}  // namespace inflight::serving
