// SPDX-License-Identifier: Apache-2.0
#include "object_store/credential_file.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "object_store/credential_sources.h"

namespace inflight::object_store {
namespace {

using Json = nlohmann::json;

constexpr char kVariable[] = "TRITON_CLOUD_CREDENTIAL_PATH";

Status WrongFile(const std::string& file, const std::string& what) {
  return InvalidArgument(std::string(kVariable) + " '" + file + "': " + what);
}

// Members are text, and known: {name, where it goes}.
Status ReadMembers(const Json& entry,
                   std::initializer_list<std::pair<const char*, std::string*>> members) {
  if (!entry.is_object()) return InvalidArgument("is no object");
  for (const auto& [name, value] : entry.items()) {
    const auto* known = std::find_if(members.begin(), members.end(),
                                     [&](const auto& member) { return name == member.first; });
    if (known == members.end()) return InvalidArgument("has the unknown member '" + name + "'");
    if (!value.is_string()) return InvalidArgument("has '" + name + "', which is no text");
    *known->second = value.get<std::string>();
  }
  return Status::Ok();
}

Status ReadEntry(Kind kind, const Json& entry, CloudCredential& found) {
  switch (kind) {
    case Kind::kS3:
      return ReadMembers(entry, {{"key_id", &found.key_id},
                                 {"secret_key", &found.secret_key},
                                 {"session_token", &found.session_token},
                                 {"region", &found.region},
                                 {"profile", &found.profile}});
    case Kind::kGs:
      if (!entry.is_string())
        return InvalidArgument("is no text; the path of a JSON file is needed");
      found.json_file = entry.get<std::string>();
      return Status::Ok();
    case Kind::kAs:
      return ReadMembers(entry,
                         {{"account_str", &found.account}, {"account_key", &found.account_key}});
  }
  return Status::Ok();
}

}  // namespace

Result<std::optional<CloudCredential>> FindCloudCredential(const Address& address,
                                                           const Environment& environment) {
  const std::string file = environment(kVariable);
  if (file.empty()) return std::optional<CloudCredential>();
  auto text = ReadFile(file, kMaxCredentialBytes);
  if (!text.ok()) return text.status().WithPrefix(kVariable);
  const Json document = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return WrongFile(file, "is no JSON object");
  const std::string name(SchemeOf(address.kind).substr(0, 2));
  const auto entries = document.find(name);
  if (entries != document.end() && !entries->is_object())
    return WrongFile(file, "'" + name + "' is no object");
  const Json* best = nullptr;
  std::string best_prefix;
  const Json listed = entries == document.end() ? Json::object() : *entries;
  for (const auto& [prefix, entry] : listed.items()) {
    if (!address.text.starts_with(prefix)) continue;
    if (best != nullptr && prefix.size() <= best_prefix.size()) continue;
    best = &entry;
    best_prefix = prefix;
  }
  if (best == nullptr)
    return FailedPrecondition(std::string(kVariable) + " '" + file + "': no entry of '" + name +
                              "' is for " + address.text + "; \"\" is for all addresses");
  CloudCredential found;
  const Status read = ReadEntry(address.kind, *best, found);
  if (!read.ok())
    return WrongFile(file, "the entry '" + best_prefix + "' of '" + name + "' " + read.message());
  return std::optional(std::move(found));
}

}  // namespace inflight::object_store
