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
#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameChars = 96;  // of a whole id, as the hub demands
constexpr uint64_t kMaxRefBytes = 4096;
constexpr size_t kMaxListed = 5;

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

}  // namespace

std::optional<HubId> ParseHubId(std::string_view text) {
  HubId id;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    id.has_revision = true;
    text = text.substr(0, at);
    if (!IsRevision(id.revision)) return std::nullopt;
  }
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    id.quant = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!IsHubName(id.quant)) return std::nullopt;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.size() > kMaxNameChars) return std::nullopt;
  id.org = text.substr(0, slash);
  id.name = text.substr(slash + 1);
  if (!IsHubName(id.org) || !IsHubName(id.name)) return std::nullopt;
  return id;
}

std::string HubId::ToString() const {
  return repo() + (quant.empty() ? "" : ":" + quant) + (has_revision ? "@" + revision : "");
}

namespace {

// "~/x" is below the home directory, as the hub's own library reads it.
fs::path ExpandHome(const std::string& path, const Environment& environment) {
  if (path == "~") return environment("HOME");
  if (path.starts_with("~/")) return fs::path(environment("HOME")) / path.substr(2);
  return path;
}

}  // namespace

HubCache FindHubCache(const Environment& environment) {
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

fs::path HubModelFolder(const fs::path& cache, const HubId& id) {
  return cache / fmt::format("models--{}--{}", id.org, id.name);
}

bool IsGgufOf(std::string_view file, std::string_view quant) {
  const std::string name = AsciiLower(file.substr(file.rfind('/') + 1));
  const std::string wanted = AsciiLower(quant);
  if (!name.ends_with(".gguf") || name.starts_with("mmproj")) return false;
  if (name == wanted) return true;
  const auto is_border = [](char c) { return c == '-' || c == '.'; };
  for (size_t at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + 1)) {
    const bool begins = at == 0 || is_border(name[at - 1]);
    if (begins && is_border(name[at + wanted.size()])) return true;  // it ends with .gguf
  }
  return false;
}

bool IsGgufPart(std::string_view file) {
  constexpr std::string_view kForm = "-00001-of-00003.gguf";
  if (file.size() < kForm.size()) return false;
  const std::string_view end = file.substr(file.size() - kForm.size());
  return std::ranges::equal(end, kForm, [](char c, char form) {
    return form >= '0' && form <= '9' ? c >= '0' && c <= '9' : c == form;
  });
}

bool IsLaterGgufPart(std::string_view file) {
  return IsGgufPart(file) && file.find("-00001-of-") == std::string_view::npos;
}

fs::path ModelsFolder(const Environment& environment) {
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty())
    return fs::path(data) / "inflight/models";
  const std::string home = environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".local/share/inflight/models";
}

namespace {

std::string Download(const HubId& id) {
  return fmt::format(
      "download it with `inflight pull {}` (or by --download of serve, run, chat, convert and "
      "build), or give a directory",
      id.ToString());
}

// The file that is meant, where the snapshot is of GGUF files.
Result<fs::path> FindGguf(const HubId& id, const fs::path& snapshot) {
  std::error_code error;
  if (id.quant.empty() && fs::exists(snapshot / "config.json", error)) return snapshot;
  std::vector<std::string> files;
  std::vector<std::string> others;
  for (const auto& entry : fs::recursive_directory_iterator(snapshot, error)) {
    const std::string name = entry.path().lexically_relative(snapshot).string();
    const bool is_gguf =
        name.ends_with(".gguf") && IsGgufOf(name, name.substr(name.rfind('/') + 1));
    if (!is_gguf || IsLaterGgufPart(name)) continue;
    (id.quant.empty() || IsGgufOf(name, id.quant) ? files : others).push_back(name);
  }
  if (files.size() == 1) return snapshot / files[0];
  if (files.empty() && id.quant.empty()) return snapshot;
  std::vector<std::string>& there = files.empty() ? others : files;
  std::sort(there.begin(), there.end());
  const std::string message =
      fmt::format("{}: {} of the GGUF files of {} is meant: {}; {}", id.ToString(),
                  files.empty() ? "none" : "more than one", snapshot.string(),
                  there.empty() ? "there is none" : fmt::format("{}", fmt::join(there, ", ")),
                  files.empty() ? Download(id) : "say which by :QUANT behind the name");
  return files.empty() ? NotFound(message) : InvalidArgument(message);
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
  if (FileExists(argument)) return argument;
  const std::optional<HubId> id = ParseHubId(argument.string());
  if (!id) {
    const fs::path models = ModelsFolder(environment);
    const bool is_named = IsHubName(argument.string()) && FileExists(models / argument);
    return is_named ? models / argument : argument;
  }
  const HubCache cache = FindHubCache(environment);
  const fs::path model = HubModelFolder(cache.dir, *id);
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
  return FindGguf(*id, snapshot);
}

Result<fs::path> ResolveModelDir(const fs::path& argument) {
  return ResolveModelDir(argument, ProcessEnvironment());
}

}  // namespace inflight::artifact
