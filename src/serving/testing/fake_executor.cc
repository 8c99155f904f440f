// SPDX-License-Identifier: Apache-2.0
#include "serving/testing/fake_executor.h"

#include <array>
#include <nlohmann/json.hpp>

namespace inflight::serving {
namespace {

std::string Utf8(int code_point) {  // below U+0800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// GPT-2's names of bytes: printable Latin-1 as it is, the others from U+0100 on.
std::array<std::string, 256> ByteNames() {
  std::array<std::string, 256> names;
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    names[static_cast<size_t>(b)] = Utf8(printable ? b : next++);
  }
  return names;
}

}  // namespace

std::string ByteTokenizerJson() {
  nlohmann::json vocab = nlohmann::json::object();
  const auto names = ByteNames();
  for (size_t b = 0; b < names.size(); ++b) vocab[names[b]] = b;
  const auto special = [](int id, const char* content) {
    return nlohmann::json{{"id", id},        {"content", content}, {"single_word", false},
                          {"lstrip", false}, {"rstrip", false},    {"normalized", false},
                          {"special", true}};
  };
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  const nlohmann::json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const nlohmann::json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const nlohmann::json sequence_b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const nlohmann::json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {special(256, "<s>"), special(257, "</s>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {bos, sequence}},
        {"pair", {bos, sequence, sequence_b}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", nlohmann::json::array()}}}};
  return root.dump();
}

std::vector<TokenId> ByteIds(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace inflight::serving
