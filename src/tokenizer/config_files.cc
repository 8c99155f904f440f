// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/config_files.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

constexpr std::string_view kDecoderField = "tokenizer_config.json: added_tokens_decoder";

AddedToken FromConfig(std::string content, const Json& flags) {
  return {.content = std::move(content),
          .special = Flag(flags, "special"),
          .normalized = Flag(flags, "normalized", !Flag(flags, "special")),
          .single_word = Flag(flags, "single_word"),
          .lstrip = Flag(flags, "lstrip"),
          .rstrip = Flag(flags, "rstrip")};
}

}  // namespace

// nlohmann reads these small files because transformers writes model_max_length as an integer of 31
// digits.
Result<Json> ReadOptionalJson(const Path& path) {
  if (!FileExists(path)) return Json();
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(path.string() + ": not a JSON object");
  return json;
}

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
  ASSIGN_OR_RETURN(files.tokenizer_config, ReadOptionalJson(dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(files.special_tokens_map, ReadOptionalJson(dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(files.added_tokens, ReadOptionalJson(dir / "added_tokens.json"));
  ASSIGN_OR_RETURN(files.generation_config, ReadOptionalJson(dir / "generation_config.json"));
  ASSIGN_OR_RETURN(files.config, ReadOptionalJson(dir / "config.json"));
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

Result<std::optional<std::vector<AddedToken>>> AdditionalSpecialTokens(const ConfigFiles& files) {
  std::vector<AddedToken> tokens;
  for (const Json* json : {&files.tokenizer_config, &files.special_tokens_map}) {
    const Json* list = Find(*json, "additional_special_tokens");
    if (list == nullptr) continue;
    if (!list->is_array()) return InvalidArgument("additional_special_tokens: must be an array");
    for (const Json& item : *list) {
      const Json* content = item.is_object() ? Find(item, "content") : &item;
      if (content == nullptr || !content->is_string()) {
        return InvalidArgument(
            "additional_special_tokens: must be strings or objects with content");
      }
      AddedToken token = FromConfig(content->get<std::string>(), item);
      token.special = true;
      token.normalized = Flag(item, "normalized");
      tokens.push_back(std::move(token));
    }
    return std::optional(std::move(tokens));
  }
  return std::optional<std::vector<AddedToken>>();
}

Result<std::map<TokenId, AddedToken>> AddedTokensDecoder(const ConfigFiles& files) {
  std::map<TokenId, AddedToken> by_id;
  const Json* decoder = Find(files.tokenizer_config, "added_tokens_decoder");
  if (decoder == nullptr) return by_id;
  if (!decoder->is_object())
    return InvalidArgument(std::string(kDecoderField) + ": must be an object");
  for (const auto& [key, token] : decoder->items()) {
    const bool is_id = !key.empty() && key.size() <= 7 &&
                       key.find_first_not_of("0123456789") == std::string::npos &&
                       std::stoi(key) <= kMaxTokenId;
    const Json* content = Find(token, "content");
    if (!is_id || content == nullptr || !content->is_string()) {
      return InvalidArgument(std::string(kDecoderField) + "[\"" + key.substr(0, 100) +
                             "\"]: must have an id up to " + std::to_string(kMaxTokenId) +
                             " as its key and a string as content");
    }
    by_id[static_cast<TokenId>(std::stoi(key))] = FromConfig(content->get<std::string>(), token);
  }
  return by_id;
}

// In the order of their ids.
Status AddFromConfig(const ConfigFiles& files, Definition& definition) {
  ASSIGN_OR_RETURN(const auto by_id, AddedTokensDecoder(files));
  for (const auto& [id, token] : by_id) {
    if (definition.added.Get(id) != nullptr) continue;
    if (definition.added.Find(token.content)) continue;
    const Status status =
        definition.added.Add(token, definition.model->vocab(), definition.normalizer);
    if (!status.ok())
      return status.WithPrefix(std::string(kDecoderField) + "[\"" + std::to_string(id) + "\"]");
  }
  return Status::Ok();
}

}  // namespace inflight::tokenizer
