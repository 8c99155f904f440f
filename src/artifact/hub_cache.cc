// SPDX-License-Identifier: Apache-2.0
#include "artifact/hub_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "artifact/printable.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameChars = 96;  // of a whole id, as the hub demands
constexpr uint64_t kMaxRefBytes = 4096;
constexpr size_t kMaxListed = 5;

struct HubId {
  std::string org;
  std::string name;
  std::string revision = "main";
  bool has_revision = false;
};

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// The hub's rule of names: no "--" and "..", no '-' or '.' at either end.
bool IsHubName(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), IsNameChar)) return false;
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !is_edge(text.front()) && !is_edge(text.back()) &&
         text.find("--") == std::string_view::npos && text.find("..") == std::string_view::npos;
}

bool IsRevision(std::string_view text) {
  const bool has_chars = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return IsNameChar(c) || c == '/';
  });
  return has_chars && text.front() != '/' && text.find("..") == std::string_view::npos;
}

std::optional<HubId> ParseHubId(std::string_view text) {
  HubId id;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    id.has_revision = true;
    text = text.substr(0, at);
    if (!IsRevision(id.revision)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.size() > kMaxNameChars) return std::nullopt;
  id.org = text.substr(0, slash);
  id.name = text.substr(slash + 1);
  if (!IsHubName(id.org) || !IsHubName(id.name)) return std::nullopt;
  return id;
}

struct CachePlace {
  fs::path dir;
  std::string why;  // the variable that chose it
};

// "~/x" is below the home directory, as the hub's own library reads it.
fs::path ExpandHome(const std::string& path, const Environment& environment) {
  if (path == "~") return environment("HOME");
  if (path.starts_with("~/")) return fs::path(environment("HOME")) / path.substr(2);
  return path;
}

CachePlace FindCache(const Environment& environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string value = environment(name); !value.empty())
      return {ExpandHome(value, environment), name};
  if (const std::string home = environment("HF_HOME"); !home.empty())
    return {ExpandHome(home, environment) / "hub", "HF_HOME"};
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return {ExpandHome(cache, environment) / "huggingface/hub", "XDG_CACHE_HOME"};
  return {fs::path(environment("HOME")) / ".cache/huggingface/hub",
          "the default; HF_HUB_CACHE and HF_HOME are not set"};
}

std::string Download(const HubId& id) {
  return fmt::format(
      "download it with `hf download {}/{}{}` (of the Python package "
      "huggingface_hub), or give a directory",
      id.org, id.name, id.has_revision ? " --revision " + id.revision : "");
}

// The commit that a branch or tag stands for; the revision itself where it is no such name.
Result<std::string> FindCommit(const fs::path& model, const std::string& revision) {
  const fs::path ref = model / "refs" / revision;
  std::error_code error;
  if (!fs::is_regular_file(ref, error)) return revision;
  ASSIGN_OR_RETURN(std::string commit, ReadFile(ref, kMaxRefBytes));
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
  if (!IsHubName(commit))
    return InvalidArgument(
        fmt::format("{}: got {}, a commit is needed", ref.string(), Printable(commit)));
  return commit;
}

std::string ListNames(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  if (names.size() > kMaxListed) names.resize(kMaxListed);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
}

Result<fs::path> ResolveModelDir(const fs::path& argument, const Environment& environment) {
  const std::optional<HubId> id = ParseHubId(argument.string());
  if (FileExists(argument) || !id) return argument;
  const CachePlace cache = FindCache(environment);
  const fs::path model = cache.dir / fmt::format("models--{}--{}", id->org, id->name);
  if (!FileExists(model))
    return NotFound(
        fmt::format("{}: no such directory, and no such model in the Hugging Face cache: looked "
                    "for {} ({}); {}",
                    argument.string(), model.string(), cache.why, Download(*id)));
  ASSIGN_OR_RETURN(const std::string commit, FindCommit(model, id->revision));
  fs::path snapshot = model / "snapshots" / commit;
  std::error_code error;
  if (!fs::is_directory(snapshot, error))
    return NotFound(
        fmt::format("{}: {} has no revision '{}': neither {} nor {} is there (refs: {}; "
                    "snapshots: {}); {}",
                    argument.string(), model.string(), id->revision,
                    (model / "refs" / id->revision).string(), snapshot.string(),
                    ListNames(model / "refs"), ListNames(model / "snapshots"), Download(*id)));
  return snapshot;
}

Result<fs::path> ResolveModelDir(const fs::path& argument) {
  return ResolveModelDir(argument, ProcessEnvironment());
}

}  // namespace inflight::artifact
