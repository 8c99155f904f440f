// SPDX-License-Identifier: Apache-2.0
#include "model_directory.h"

#include <mutex>
#include <utility>

#include "artifact/hub_cache.h"
#include "object_store/address.h"
#include "object_store/fetch_model.h"
#include "progress.h"

namespace inflight::tool {

Result<std::filesystem::path> ModelDirectory(const std::filesystem::path& argument,
                                             object_store::Options options) {
  if (!object_store::IsAddress(argument.string())) return artifact::ResolveModelDir(argument);
  ProgressBar bar("download");
  std::mutex mutex;
  options.progress = [&](uint64_t done, uint64_t all) {
    const std::lock_guard lock(mutex);
    bar.Update(static_cast<double>(done) / static_cast<double>(all), "objects");
  };
  return object_store::FetchModel(argument.string(), options);
}

}  // namespace inflight::tool
