// SPDX-License-Identifier: Apache-2.0
// A model by a directory or by its name at the hub, downloaded where no cache on this machine has
// it.
#pragma once

#include <filesystem>

#include "hub/client.h"

namespace inflight::hub {

// As artifact::ResolveModelDir; what that does not find is pulled (hub/pull.h) where its name is
// that of a model at a hub. Errors of that say where it was looked for before.
Result<std::filesystem::path> FindOrPull(const std::filesystem::path& argument,
                                         const HubOptions& options);

}  // namespace inflight::hub
