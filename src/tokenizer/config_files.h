// SPDX-License-Identifier: Apache-2.0
// The JSON files beside a tokenizer that say what is special in it, as transformers reads them.
// A heavy header: for the sources that load directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/definition.h"

namespace inflight::tokenizer {

inline constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

struct ConfigFiles {  // null where there is no such file
  nlohmann::json tokenizer_config, special_tokens_map, added_tokens, generation_config, config;
};
// kInvalidArgument names a file that is not a JSON object.
Result<ConfigFiles> ReadConfigFiles(const std::filesystem::path& dir);

// A JSON object; null when there is no such file.
Result<nlohmann::json> ReadOptionalJson(const std::filesystem::path& path);

// A value of an object; nothing if it is absent or null.
const nlohmann::json* Find(const nlohmann::json& object, const std::string& key);
bool Flag(const nlohmann::json& object, const std::string& key, bool otherwise = false);
// "eos_token_id": 2 or [2, 3], of which the first is meant here.
std::optional<TokenId> FirstId(const nlohmann::json& json, const std::string& key);

// The token of "bos_token" and the like: "<s>" or {"content": "<s>", ...}. tokenizer_config.json
// goes before special_tokens_map.json.
Result<std::optional<AddedToken>> SpecialToken(const ConfigFiles& files, const std::string& key);

// "additional_special_tokens", of the same files: nothing if both are silent.
Result<std::optional<std::vector<AddedToken>>> AdditionalSpecialTokens(const ConfigFiles& files);

// added_tokens_decoder of tokenizer_config.json by id; empty if there is none.
Result<std::map<TokenId, AddedToken>> AddedTokensDecoder(const ConfigFiles& files);

// Tokens that it adds to those there are.
Status AddFromConfig(const ConfigFiles& files, Definition& definition);

}  // namespace inflight::tokenizer
