// SPDX-License-Identifier: Apache-2.0
// Models on this machine's disk: those that were downloaded into the Hugging Face cache, and those
// that stand in the models' folder (artifact/hub_cache.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "artifact/hub_cache.h"
#include "inflight/status.h"

namespace inflight::hub {

struct LocalModel {
  std::string name;              // that commands take: "org/name", "org/name:FILE.gguf", "name"
  std::filesystem::path folder;  // that commands open for it
  uint64_t bytes = 0;            // that its removal frees, of one of several GGUF files its own
  bool is_of_hub = false;
};

// In the order of their names. What is no model of these folders' form is left out.
std::vector<LocalModel> ListLocalModels(const artifact::Environment& environment);

// What RemoveLocalModel would remove. kNotFound names those that are there.
Result<LocalModel> FindLocalModel(const std::string& name,
                                  const artifact::Environment& environment);

// First takes the name from it, so that no reader finds half of it, then removes the files. Of one
// of several GGUF files of a model that file alone goes.
Status RemoveLocalModel(const LocalModel& model, const artifact::Environment& environment);

}  // namespace inflight::hub
