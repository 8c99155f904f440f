// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/model_table.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "serving/llm/llm_model.h"
#include "serving/repository/candidate.h"

namespace inflight::serving {
namespace {

int64_t NumberOf(const std::string& version) {
  int64_t number = 0;
  std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

// None = the latest. As strtol reads it: blanks and a sign in front, and what follows the digits is
// left alone.
Result<std::optional<int64_t>> ParseVersion(std::string_view text) {
  if (text.empty()) return std::optional<int64_t>();
  const std::string asked(text);
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(asked.c_str(), &end, 10);
  if (end == asked.c_str() || errno == ERANGE) {
    return InvalidArgument("failed to get model version from specified version string '" + asked +
                           "' (details: stol), version should be an integral value > 0");
  }
  if (number < 0) {
    return InvalidArgument("invalid model version specified '" + asked +
                           "' , version should be an integral value > 0");
  }
  return std::optional<int64_t>(number);
}

size_t NumNameSpaces(const std::vector<ModelEntry>& versions) {
  if (versions.size() == 1) return 1;
  std::vector<std::string_view> distinct;
  for (const ModelEntry& entry : versions) {
    if (std::find(distinct.begin(), distinct.end(), entry.name_space) == distinct.end())
      distinct.push_back(entry.name_space);
  }
  return distinct.size();
}

}  // namespace

Status AmbiguousName(std::string_view name, size_t count) {
  return InvalidArgument("There are " + std::to_string(count) + " identifiers of model '" +
                         std::string(name) +
                         "' in global map, model namespace must be provided to resolve ambiguity.");
}

std::string_view StateOf(const ModelEntry& entry) {
  if (entry.model != nullptr) return "READY";
  if (entry.is_unloaded && !entry.leaving.expired()) return "UNLOADING";
  return "UNAVAILABLE";
}

std::string ReasonOf(const ModelEntry& entry) {
  if (entry.model != nullptr) return std::string(entry.model->why_not_ready());
  return entry.is_unloaded ? "unloaded" : ReasonText(entry.status);
}

std::string ReasonText(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return "Invalid argument: " + status.message();
    case StatusCode::kNotFound:
      return "Not found: " + status.message();
    case StatusCode::kUnimplemented:
      return "Unsupported: " + status.message();
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
    case StatusCode::kFailedPrecondition:
      return "Unavailable: " + status.message();
    case StatusCode::kAlreadyExists:
      return "Already exists: " + status.message();
    case StatusCode::kUnknown:
      return "Unknown: " + status.message();
    case StatusCode::kCancelled:
      return "Cancelled: " + status.message();
    default:
      return "Internal: " + status.message();
  }
}

ModelTable::ModelTable(const std::vector<ModelEntry>& entries) {
  for (const ModelEntry& entry : entries) entries_[entry.name].push_back(entry);
  for (auto& [name, versions] : entries_) {
    std::stable_sort(versions.begin(), versions.end(), [](const auto& a, const auto& b) {
      return NumberOf(a.version) < NumberOf(b.version);
    });
    for (const ModelEntry& entry : versions) {
      if (entry.model == nullptr) continue;
      models_.push_back(entry.model);
      if (auto llm = std::dynamic_pointer_cast<LlmModel>(entry.model)) {
        llms_.push_back(std::move(llm));
      }
    }
  }
  FindPartners();
}

void ModelTable::FindPartners() {
  for (const auto& model : models_) {
    const std::vector<std::string> members = MembersOf(model->config());
    const auto is_llm = [this](const std::string& name) {
      return std::ranges::any_of(llms_, [&](const auto& llm) { return llm->name() == name; });
    };
    const auto llm = std::ranges::find_if(members, is_llm);  // a draft model comes after it
    if (llm == members.end()) continue;
    for (const std::string& member : members) partners_.emplace(member, *llm);
  }
}

std::string_view ModelTable::PartnerOf(std::string_view text_model) const {
  const auto found = partners_.find(text_model);
  return found == partners_.end() ? std::string_view() : found->second;
}

Result<std::shared_ptr<Model>> ModelTable::Find(std::string_view name,
                                                std::string_view version) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> wanted, ParseVersion(version));
  const auto found = entries_.find(name);
  if (found != entries_.end()) {
    const std::vector<ModelEntry>& versions = found->second;
    if (const size_t count = NumNameSpaces(versions); count > 1) return AmbiguousName(name, count);
    for (auto entry = versions.rbegin(); entry != versions.rend(); ++entry) {
      const bool is_wanted = wanted ? NumberOf(entry->version) == *wanted : true;
      if (is_wanted && entry->model != nullptr) return entry->model;
      if (!wanted || !is_wanted || entry->version.empty()) continue;
      return Unavailable("Request for unknown model: '" + std::string(name) + "' version " +
                         entry->version + " is not at ready state");
    }
  }
  const std::string unknown = "Request for unknown model: '" + std::string(name) + "' ";
  if (found == entries_.end()) return NotFound(unknown + "is not found");
  if (wanted) return NotFound(unknown + "version " + std::to_string(*wanted) + " is not found");
  return NotFound(unknown + "has no available versions");
}

bool ModelTable::ready() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& named) {
    return std::all_of(named.second.begin(), named.second.end(), [](const ModelEntry& entry) {
      return !entry.required || entry.is_unloaded ||
             (entry.model != nullptr && entry.model->ready());
    });
  });
}

}  // namespace inflight::serving
