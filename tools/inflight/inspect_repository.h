// SPDX-License-Identifier: Apache-2.0
// inflight inspect of a model repository: a start without executors. Configurations, engines' sizes
// and tokenizers are read as `serve` reads them, so that the report is the one it would log.
#pragma once

#include <filesystem>
#include <optional>

#include "inflight/open.h"
#include "inflight/status.h"

namespace inflight::tool {

// None where `dir` is no repository, of which `as_json` is refused. Else an error says that a model
// would end the start of `serve`.
std::optional<Status> InspectRepository(const std::filesystem::path& dir,
                                        const OpenOptions& options, bool as_json);

}  // namespace inflight::tool
