// SPDX-License-Identifier: Apache-2.0
#include "hub/local_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefix = "models--";
constexpr std::string_view kRemovedPrefix = ".removed-";

// Of all files below `folder`, each once however many links lead to it.
uint64_t BytesBelow(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_symlink(ignored) || !it->is_regular_file(ignored)) continue;
    const uint64_t size = it->file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

// "models--org--name" is "org/name"; empty where it is no such folder.
std::string IdOf(const std::string& folder) {
  if (!folder.starts_with(kHubPrefix)) return {};
  std::string id = folder.substr(kHubPrefix.size());
  const size_t dashes = id.find("--");
  if (dashes == std::string::npos) return {};
  id.replace(dashes, 2, "/");
  return artifact::ParseHubId(id) ? id : std::string();
}

// The names of the GGUF files of a snapshot that has no other form.
std::vector<std::string> GgufFilesOf(const fs::path& snapshot) {
  std::vector<std::string> names;
  std::error_code error;
  if (fs::exists(snapshot / "config.json", error)) return names;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (artifact::IsGgufOf(name, name)) names.push_back(name);
  }
  return names;
}

// The name that leads to one of its revisions: "org/name", or where there is no main
// "org/name@REVISION".
std::string NameOf(const fs::path& folder, const std::string& id) {
  std::error_code error;
  if (fs::exists(folder / "refs/main", error)) return id;
  for (fs::recursive_directory_iterator it(folder / "refs", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored))
      return id + "@" + it->path().lexically_relative(folder / "refs").string();
  }
  return id;
}

void AddHubModels(const fs::path& folder, const std::string& id,
                  const artifact::Environment& environment, std::vector<LocalModel>& models) {
  const std::string main_name = NameOf(folder, id);
  const auto resolved = artifact::ResolveModelDir(main_name, environment);
  std::error_code error;
  if (resolved.ok() && fs::exists(*resolved, error)) {
    models.push_back({main_name, *resolved, BytesBelow(folder), /*is_of_hub=*/true});
    return;
  }
  std::set<std::string> names;  // several GGUF files, of which none is meant
  for (const fs::path& snapshot : EntriesOf(folder / "snapshots"))
    for (const std::string& name : GgufFilesOf(snapshot)) names.insert(name);
  for (const std::string& name : names) {
    std::string full = id;
    full += ":" + name;
    const auto file = artifact::ResolveModelDir(full, environment);
    if (!file.ok()) continue;
    const uint64_t bytes = fs::file_size(*file, error);
    if (!error) models.push_back({full, *file, bytes, /*is_of_hub=*/true});
  }
}

Status RemoveFolder(const fs::path& folder) {
  const fs::path gone =
      folder.parent_path() /
      (std::string(kRemovedPrefix) + std::to_string(getpid()) + "-" + folder.filename().string());
  if (std::rename(folder.c_str(), gone.c_str()) != 0) return SystemError(folder, "remove", errno);
  std::error_code error;
  fs::remove_all(gone, error);
  return error ? SystemError(gone, "remove", error.value()) : Status::Ok();
}

// The link in its snapshot, and the blob that it leads to.
Status RemoveLinkedFile(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (!fs::remove(link, error) || error) return SystemError(link, "remove", error.value());
  if (target.empty()) return Status::Ok();
  const fs::path blob = (link.parent_path() / target).lexically_normal();
  fs::remove(blob, error);
  return error ? SystemError(blob, "remove", error.value()) : Status::Ok();
}

}  // namespace

std::vector<LocalModel> ListLocalModels(const artifact::Environment& environment) {
  std::vector<LocalModel> models;
  for (const fs::path& folder : EntriesOf(artifact::FindHubCache(environment).dir)) {
    const std::string id = IdOf(folder.filename().string());
    if (!id.empty()) AddHubModels(folder, id, environment, models);
  }
  if (const fs::path own = artifact::ModelsFolder(environment); !own.empty()) {
    for (const fs::path& folder : EntriesOf(own)) {
      const std::string name = folder.filename().string();
      std::error_code error;
      const bool is_folder = fs::is_directory(folder, error);
      if (name.starts_with('.') || (!is_folder && folder.extension() != ".gguf")) continue;
      const uint64_t bytes = is_folder ? BytesBelow(folder) : fs::file_size(folder, error);
      models.push_back({name, folder, bytes, /*is_of_hub=*/false});
    }
  }
  std::ranges::sort(models, {}, &LocalModel::name);
  return models;
}

Result<LocalModel> FindLocalModel(const std::string& name,
                                  const artifact::Environment& environment) {
  const std::vector<LocalModel> models = ListLocalModels(environment);
  const auto id = artifact::ParseHubId(name);
  std::vector<std::string> names;
  for (const LocalModel& model : models) {
    if (model.name == name) return model;
    names.push_back(model.name);
    if (!id || id->quant.empty() || !model.is_of_hub) continue;
    const auto other = artifact::ParseHubId(model.name);
    const bool is_gguf = other && other->repo() == id->repo() &&
                         artifact::IsGgufOf(model.folder.filename().string(), id->quant);
    if (is_gguf) return model;
  }
  constexpr size_t kMostNamed = 20;
  if (names.size() > kMostNamed) names.resize(kMostNamed);
  return NotFound(fmt::format(
      "{}: no such model is here; there {}", name,
      names.empty() ? std::string("is none") : fmt::format("are {}", fmt::join(names, ", "))));
}

Status RemoveLocalModel(const LocalModel& model, const artifact::Environment& environment) {
  const auto id = artifact::ParseHubId(model.name);
  if (!model.is_of_hub || !id) {
    std::error_code error;
    if (fs::is_directory(model.folder, error)) return RemoveFolder(model.folder);
    fs::remove(model.folder, error);
    return error ? SystemError(model.folder, "remove", error.value()) : Status::Ok();
  }
  if (!id->quant.empty()) return RemoveLinkedFile(model.folder);
  return RemoveFolder(artifact::HubModelFolder(artifact::FindHubCache(environment).dir, *id));
}

}  // namespace inflight::hub
