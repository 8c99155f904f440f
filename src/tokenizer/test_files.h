// SPDX-License-Identifier: Apache-2.0
// Small tokenizers for the unit tests, written out so that ids can be worked out by hand.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "inflight/tokenizer.h"

namespace inflight::tokenizer {

// Tokens by id: 0 <s> 1 a 2 b 3 c 4 Ġ 5 ab 6 abc 7 Ġa 8 Ã 9 © 10 bc 11 <|x|> (added).
// Merges by rank: a+b, ab+c, Ġ+a, b+c.
inline nlohmann::json ByteLevelJson() {
  return nlohmann::json::parse(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 11, "content": "<|x|>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"<s>": 0, "a": 1, "b": 2, "c": 3, "Ġ": 4, "ab": 5, "abc": 6, "Ġa": 7, "Ã": 8, "©": 9,
                "bc": 10},
      "merges": [["a", "b"], ["ab", "c"], ["Ġ", "a"], ["b", "c"]]}
  })");
}

// 0 <unk> 1 <s> 2 </s>, 3 + n: <0xn>, 259 ▁ 260 h 261 i 262 hi 263 ▁hi.
// Merges by rank: h+i, ▁+hi.
inline nlohmann::json Llama2Json() {
  nlohmann::json json = nlohmann::json::parse(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 2, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 259, "h": 260, "i": 261, "hi": 262, "▁hi": 263},
      "merges": ["h i", "▁ hi"]}
  })");
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    json["model"]["vocab"][name] = 3 + byte;
  }
  return json;
}

inline auto FromJson(const nlohmann::json& json) { return Tokenizer::FromJson(json.dump()); }

}  // namespace inflight::tokenizer
