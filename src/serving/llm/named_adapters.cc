// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/named_adapters.h"

#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "base/control_bytes.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;

constexpr auto kFiles = std::to_array<const char*>(
    {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"});
constexpr size_t kMaxNameBytes = 256;

// One folder's name: no way out of the folder that it is looked for in.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         name.find('/') == std::string_view::npos && !HasControlBytes(name);
}

// The files that are there, as they are now; empty where none is.
std::vector<std::pair<int64_t, uint64_t>> FilesOf(const fs::path& folder) {
  std::vector<std::pair<int64_t, uint64_t>> found;
  for (const char* name : kFiles) {
    std::error_code error;
    const auto written = fs::last_write_time(folder / name, error);
    if (error) continue;
    const uint64_t size = fs::file_size(folder / name, error);
    if (!error) found.emplace_back(written.time_since_epoch().count(), size);
  }
  return found;
}

// The settings, and weights.
bool IsAdapter(const std::vector<std::pair<int64_t, uint64_t>>& files) { return files.size() >= 2; }

}  // namespace

Result<std::shared_ptr<NamedAdapters>> NamedAdapters::Make(const std::vector<std::string>& modules,
                                                           const std::string& dir, Reader reader) {
  std::shared_ptr<NamedAdapters> adapters(new NamedAdapters(dir, std::move(reader)));
  std::error_code error;
  if (!dir.empty() && !fs::is_directory(dir, error))
    return InvalidArgument("--lora-dir", "got '" + dir + "', which is no folder");
  for (const std::string& module : modules) {
    const size_t equals = module.find('=');
    const std::string name = module.substr(0, equals);
    if (equals == std::string::npos || !IsName(name))
      return InvalidArgument("--lora-modules",
                             "got '" + module + "', must be a name, '=' and a folder");
    const fs::path folder = module.substr(equals + 1);
    if (!IsAdapter(FilesOf(folder)))
      return NotFound("--lora-modules: " + folder.string() +
                      " is no adapter: it has no adapter_config.json, or no weights beside it");
    if (!adapters->modules_.emplace(name, folder).second)
      return InvalidArgument("--lora-modules", "got '" + name + "' twice");
  }
  return adapters;
}

fs::path NamedAdapters::FolderOf(const std::string& name) const {
  if (const auto module = modules_.find(name); module != modules_.end()) return module->second;
  return dir_.empty() || !IsName(name) ? fs::path() : dir_ / name;
}

std::vector<std::string> NamedAdapters::Names() const {
  std::set<std::string> names;
  for (const auto& [name, folder] : modules_)
    if (IsAdapter(FilesOf(folder))) names.insert(name);
  std::error_code error;
  for (fs::directory_iterator entry(dir_, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!modules_.contains(name) && IsName(name) && IsAdapter(FilesOf(entry->path())))
      names.insert(name);
  }
  return {names.begin(), names.end()};
}

Result<FoundAdapter> NamedAdapters::Find(const std::string& name) {
  const fs::path folder = FolderOf(name);
  Files files;
  if (!folder.empty()) files = FilesOf(folder);
  if (!IsAdapter(files))
    return NotFound(std::string(kLoraName) + ": the model has no adapter '" +
                    name.substr(0, kMaxNameBytes) + "'")
        .WithField(std::string(kLoraName));
  LoraUse use = {.is_own = true};
  uint64_t file_bytes = 0;
  for (const auto& [written, size] : files) file_bytes += size;
  {
    const std::lock_guard lock(mutex_);
    Version& version = versions_[name];
    if (version.files != files) version = {.id = ++last_id_, .files = std::move(files)};
    use.id = version.id;
  }
  use.read = [reader = reader_, folder, name]() -> Result<std::shared_ptr<const LoraTensors>> {
    Result<LoraTensors> tensors = reader(folder);
    if (tensors.ok()) return std::make_shared<const LoraTensors>(*std::move(tensors));
    logging::Error("an adapter cannot be read",
                   {{"lora_name", name}, {"error", tensors.status().message()}});
    return FailedPrecondition(std::string(kLoraName) + ": adapter '" + name +
                              "' cannot be read (the server's log says why)")
        .WithField(std::string(kLoraName));
  };
  return FoundAdapter{.use = std::move(use), .file_bytes = file_bytes};
}

LoraUse ChargedUse(const FoundAdapter& found, const std::shared_ptr<AccountShare>& memory) {
  constexpr uint64_t kFloatsPerFileByte =
      2;  // bytes of float32, of files of 16 bits; those are mapped
  LoraUse use = found.use;
  use.read = [read = std::move(use.read), most = found.file_bytes * kFloatsPerFileByte,
              memory]() -> Result<std::shared_ptr<const LoraTensors>> {
    MemoryCharge charge(memory);
    RETURN_IF_ERROR(charge.Resize(most));
    ASSIGN_OR_RETURN(auto tensors, read());
    RETURN_IF_ERROR(charge.Resize(tensors->weights.size()));
    const auto held = Charged(std::move(tensors), std::move(charge));
    return std::shared_ptr<const LoraTensors>(held, held->get());
  };
  return use;
}

std::vector<std::string> NamedAdapters::NamesOf(std::span<const uint64_t> ids) {
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  for (const uint64_t id : ids)
    for (const auto& [name, version] : versions_)
      if (version.id == id) names.push_back(name);
  return names;
}

Result<std::string> LoraNameOf(const Request& request) {
  const auto found = request.parameters.find(kLoraName);
  if (found == request.parameters.end()) return std::string();
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  return InvalidArgument(kLoraName, "the parameter has another type, must be a string");
}

}  // namespace inflight::serving
