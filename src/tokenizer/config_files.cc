// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/config_files.h"

#include <fmt/format.h>

#include <map>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

// A JSON object; null when there is no such file. nlohmann reads these small files because
// transformers writes model_max_length as an integer of 31 digits.
Result<Json> ReadOptional(const Path& path) {
  if (!FileExists(path)) return Json();
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(path.string() + ": not a JSON object");
  return json;
}

AddedToken FromConfig(std::string content, const Json& flags) {
  return {.content = std::move(content),
          .special = Flag(flags, "special"),
          .normalized = Flag(flags, "normalized", !Flag(flags, "special")),
          .single_word = Flag(flags, "single_word"),
          .lstrip = Flag(flags, "lstrip"),
          .rstrip = Flag(flags, "rstrip")};
}

}  // namespace

const Json* Find(const Json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

bool Flag(const Json& object, const std::string& key, bool otherwise) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

Result<ConfigFiles> ReadConfigFiles(const Path& dir) {
  ConfigFiles files;
  ASSIGN_OR_RETURN(files.tokenizer_config, ReadOptional(dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(files.special_tokens_map, ReadOptional(dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(files.added_tokens, ReadOptional(dir / "added_tokens.json"));
  ASSIGN_OR_RETURN(files.generation_config, ReadOptional(dir / "generation_config.json"));
  ASSIGN_OR_RETURN(files.config, ReadOptional(dir / "config.json"));
  // An engine's config.json holds the model's.
  if (const Json* model = Find(files.config, "pretrained_config")) files.config = Json(*model);
  return files;
}

Result<std::optional<AddedToken>> SpecialToken(const ConfigFiles& files, const std::string& key) {
  for (const auto& [name, json] :
       {std::pair<std::string, const Json*>{"tokenizer_config.json", &files.tokenizer_config},
        {"special_tokens_map.json", &files.special_tokens_map}}) {
    const Json* value = Find(*json, key);
    if (value == nullptr) continue;
    const Json* content = value->is_object() ? Find(*value, "content") : value;
    if (content == nullptr || !content->is_string()) {
      return InvalidArgument(
          fmt::format("{}: {}: must be a string or an object with content", name, key));
    }
    AddedToken token = FromConfig(content->get<std::string>(), *value);
    token.special = true;
    token.normalized = Flag(*value, "normalized");
    return std::optional(std::move(token));
  }
  return std::optional<AddedToken>();
}

std::optional<TokenId> FirstId(const Json& json, const std::string& key) {
  const Json* value = Find(json, key);
  if (value != nullptr && value->is_array()) value = value->empty() ? nullptr : &value->front();
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  const auto id = value->get<int64_t>();
  if (id < 0 || id > kMaxTokenId) return std::nullopt;
  return static_cast<TokenId>(id);
}

// In the order of their ids.
Status AddFromConfig(const ConfigFiles& files, Definition& definition) {
  const Json* decoder = Find(files.tokenizer_config, "added_tokens_decoder");
  if (decoder == nullptr) return Status::Ok();
  const std::string field = "tokenizer_config.json: added_tokens_decoder";
  if (!decoder->is_object()) return InvalidArgument(field + ": must be an object");
  std::map<TokenId, const Json*> by_id;
  for (const auto& [key, token] : decoder->items()) {
    const bool is_id = !key.empty() && key.size() <= 7 &&
                       key.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoi(key) <= kMaxTokenId;
    const Json* content = Find(token, "content");
    if (!is_id || content == nullptr || !content->is_string()) {
      return InvalidArgument(field + "[\"" + key.substr(0, 100) + "\"]: must have an id up to " +
                             std::to_string(kMaxTokenId) + " as its key and a string as content");
    }
    by_id[static_cast<TokenId>(std::stoi(key))] = &token;
  }
  for (const auto& [id, token] : by_id) {
    if (definition.added.Get(id) != nullptr) continue;
    const auto content = Find(*token, "content")->get<std::string>();
    if (definition.added.Find(content)) continue;
    const Status status = definition.added.Add(FromConfig(content, *token),
                                               definition.model->vocab(), definition.normalizer);
    if (!status.ok()) return status.WithPrefix(field + "[\"" + std::to_string(id) + "\"]");
  }
  return Status::Ok();
}

}  // namespace inflight::tokenizer
