// SPDX-License-Identifier: Apache-2.0
// Loading a tokenizer from a model directory: which files there are and what each has to say.
#include "tokenizer/tokenizer.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/definition.h"
#include "tokenizer/tokenizer_impl.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

bool Exists(const Path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// A JSON object; null when there is no such file. nlohmann reads these small files because
// transformers writes model_max_length as an integer of 31 digits.
Result<Json> ReadOptional(const Path& path) {
  if (!Exists(path)) return Json();
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

bool Flag(const Json& object, const std::string& key, bool otherwise = false) {
  const Json* value = Find(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

struct ConfigFiles {
  Json tokenizer_config, special_tokens_map, generation_config, config;
};

Result<ConfigFiles> ReadConfigFiles(const Path& dir) {
  ConfigFiles files;
  ASSIGN_OR_RETURN(files.tokenizer_config, ReadOptional(dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(files.special_tokens_map, ReadOptional(dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(files.generation_config, ReadOptional(dir / "generation_config.json"));
  ASSIGN_OR_RETURN(files.config, ReadOptional(dir / "config.json"));
  return files;
}

// "bos_token": "<s>" or {"content": "<s>", ...}; tokenizer_config.json goes before
// special_tokens_map.json.
Result<std::optional<std::string>> SpecialToken(const ConfigFiles& files, const std::string& key) {
  for (const auto& [name, json] :
       {std::pair<std::string, const Json*>{"tokenizer_config.json", &files.tokenizer_config},
        {"special_tokens_map.json", &files.special_tokens_map}}) {
    const Json* value = Find(*json, key);
    if (value == nullptr) continue;
    if (value->is_object()) value = Find(*value, "content");
    if (value == nullptr || !value->is_string()) {
      return InvalidArgument(name + ": " + key + ": must be a string or an object with content");
    }
    return std::optional(value->get<std::string>());
  }
  return std::optional<std::string>();
}

// "eos_token_id": 2 or [2, 3], of which the first is meant here.
std::optional<TokenId> FirstId(const Json& json, const std::string& key) {
  const Json* value = Find(json, key);
  if (value != nullptr && value->is_array()) value = value->empty() ? nullptr : &value->front();
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  const auto id = value->get<int64_t>();
  if (id < 0 || id > kMaxTokenId) return std::nullopt;
  return static_cast<TokenId>(id);
}

AddedToken FromConfig(std::string content, const Json& flags) {
  return {.content = std::move(content),
          .special = Flag(flags, "special"),
          .normalized = Flag(flags, "normalized", !Flag(flags, "special")),
          .single_word = Flag(flags, "single_word"),
          .lstrip = Flag(flags, "lstrip"),
          .rstrip = Flag(flags, "rstrip")};
}

// Tokens that tokenizer_config.json adds to those of tokenizer.json, in the order of their ids.
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
                                               definition.model.vocab(), definition.normalizer);
    if (!status.ok()) return status.WithPrefix(field + "[\"" + std::to_string(id) + "\"]");
  }
  return Status::Ok();
}

Status ResolveSpecialIds(const ConfigFiles& files, Definition& definition) {
  for (const auto& [key, slot] : {std::pair{"bos_token", &definition.bos_id},
                                  {"eos_token", &definition.eos_id},
                                  {"pad_token", &definition.pad_id}}) {
    ASSIGN_OR_RETURN(const auto token, SpecialToken(files, key));
    if (token) *slot = definition.Find(*token);
  }
  if (!definition.eos_id) definition.eos_id = FirstId(files.generation_config, "eos_token_id");
  if (!definition.eos_id) definition.eos_id = FirstId(files.config, "eos_token_id");
  return Status::Ok();
}

// vocab.json and merges.txt name no special tokens: those of the config files are, and GPT-2's
// <|endoftext|> where they name none.
Result<Definition> LoadVocabAndMerges(const Path& dir, const ConfigFiles& files) {
  ASSIGN_OR_RETURN(const std::string vocab, ReadFile(dir / "vocab.json", kMaxFileBytes));
  ASSIGN_OR_RETURN(const std::string merges, ReadFile(dir / "merges.txt", kMaxFileBytes));
  auto definition =
      ReadVocabAndMerges(vocab, merges, Flag(files.tokenizer_config, "add_prefix_space"));
  if (!definition.ok()) return definition.status().WithPrefix(dir.string());
  constexpr const char* kEndOfText = "<|endoftext|>";
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    ASSIGN_OR_RETURN(auto token, SpecialToken(files, key));
    if (!token && key != std::string_view("pad_token") &&
        definition->model.vocab().Find(kEndOfText)) {
      token = kEndOfText;
    }
    if (!token) continue;
    RETURN_IF_ERROR(definition->added.Add({.content = *token, .special = true, .normalized = false},
                                          definition->model.vocab(), definition->normalizer));
    if (key == std::string_view("bos_token")) definition->bos_id = definition->Find(*token);
    if (key == std::string_view("eos_token")) definition->eos_id = definition->Find(*token);
  }
  if (Flag(files.tokenizer_config, "add_bos_token") && definition->bos_id) {
    definition->post_processor = {{.ids = {*definition->bos_id}}, {.is_sequence = true}};
  }
  return definition;
}

Result<Definition> LoadDefinition(const Path& dir, const ConfigFiles& files) {
  const Path tokenizer_json = dir / "tokenizer.json";
  if (Exists(tokenizer_json)) {
    ASSIGN_OR_RETURN(const std::string json, ReadFile(tokenizer_json, kMaxFileBytes));
    auto definition = ReadTokenizerJson(json);
    if (!definition.ok()) return definition.status().WithPrefix(tokenizer_json.string());
    return definition;
  }
  if (Exists(dir / "vocab.json") && Exists(dir / "merges.txt")) {
    return LoadVocabAndMerges(dir, files);
  }
  if (Exists(dir / "tokenizer.model")) {
    return Unimplemented((dir / "tokenizer.model").string() +
                         ": SentencePiece models are not supported (save the tokenizer as "
                         "tokenizer.json, with transformers' save_pretrained)");
  }
  return NotFound(dir.string() +
                  ": has no tokenizer (looked for tokenizer.json, vocab.json with merges.txt)");
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const Path& dir) {
  ASSIGN_OR_RETURN(const ConfigFiles files, ReadConfigFiles(dir));
  ASSIGN_OR_RETURN(Definition definition, LoadDefinition(dir, files));
  const Status status = [&]() -> Status {
    RETURN_IF_ERROR(AddFromConfig(files, definition));
    return ResolveSpecialIds(files, definition);
  }();
  if (!status.ok()) return status.WithPrefix(dir.string());
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(Definition definition, ReadTokenizerJson(tokenizer_json));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

}  // namespace inflight::tokenizer
