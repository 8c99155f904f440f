// SPDX-License-Identifier: Apache-2.0
#include "model_directory.h"

#include <mutex>
#include <utility>

#include "artifact/hub_cache.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "hub/find_or_pull.h"
#include "object_store/address.h"
#include "object_store/fetch_model.h"
#include "progress.h"

namespace inflight::tool {
namespace {

// A directory or a GGUF file of that name, an engine or a checkpoint of `inflight list`, or a model
// of the hub's cache.
Result<std::filesystem::path> LocalDirectory(const std::filesystem::path& argument) {
  ASSIGN_OR_RETURN(std::filesystem::path dir, artifact::ResolveModelDir(argument));
  if (FileExists(dir)) return dir;
  std::string message = argument.string() + ": no such directory";
  if (!argument.has_parent_path())
    message += ", and no model of that name in " +
               artifact::ModelsFolder(artifact::ProcessEnvironment()).string() +
               "; `inflight list` has what is here";
  return NotFound(message);
}

}  // namespace

Result<std::filesystem::path> ModelDirectory(const std::filesystem::path& argument,
                                             object_store::Options options, bool downloads) {
  const bool is_address = object_store::IsAddress(argument.string());
  if (!is_address && !downloads) return LocalDirectory(argument);
  ProgressBar bar("download");
  std::mutex mutex;
  const char* const what = is_address ? "objects" : "files";
  const auto show = [&](uint64_t done, uint64_t all) {
    const std::lock_guard lock(mutex);
    bar.Update(static_cast<double>(done) / static_cast<double>(all), what);
  };
  if (!is_address) {
    hub::HubOptions hub;
    hub.progress = show;
    return hub::FindOrPull(argument, hub);
  }
  options.progress = show;
  return object_store::FetchModel(argument.string(), options);
}

}  // namespace inflight::tool
