// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/load_tiktoken.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status_macros.h"
#include "tokenizer/load_sentencepiece.h"
#include "tokenizer/published_patterns.h"
#include "tokenizer/tiktoken_ranks.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;
using SpecialById = std::map<TokenId, std::string>;

constexpr std::string_view kEndOfTextToken = "<|endoftext|>";
constexpr std::string_view kConfigName = "tokenizer_config.json";

SpecialById R50kTokens(bool) { return {{50256, std::string(kEndOfTextToken)}}; }

SpecialById Cl100kTokens(bool) {
  return {{100257, std::string(kEndOfTextToken)},
          {100258, "<|fim_prefix|>"},
          {100259, "<|fim_middle|>"},
          {100260, "<|fim_suffix|>"},
          {100276, "<|endofprompt|>"}};
}

SpecialById O200kTokens(bool) {
  return {{199999, std::string(kEndOfTextToken)}, {200018, "<|endofprompt|>"}};
}

// 256 behind the ranks; those without a name are reserved, numbered among themselves.
SpecialById Llama3Tokens(bool is_since_3_1) {
  constexpr TokenId kFirst = 128000;
  constexpr TokenId kCount = 256;
  std::map<TokenId, std::string> names = {{kFirst, "<|begin_of_text|>"},
                                          {kFirst + 1, "<|end_of_text|>"},
                                          {kFirst + 6, "<|start_header_id|>"},
                                          {kFirst + 7, "<|end_header_id|>"},
                                          {kFirst + 9, "<|eot_id|>"}};
  if (is_since_3_1) {
    names.insert({{kFirst + 4, "<|finetune_right_pad_id|>"},
                  {kFirst + 8, "<|eom_id|>"},
                  {kFirst + 10, "<|python_tag|>"}});
  }
  int num_reserved = 0;
  for (TokenId id = kFirst; id < kFirst + kCount; ++id) {
    if (!names.contains(id))
      names[id] = fmt::format("<|reserved_special_token_{}|>", num_reserved++);
  }
  return names;
}

SpecialById QwenTokens(bool) {
  constexpr TokenId kFirst = 151643;
  constexpr int kNumExtra = 205;
  SpecialById tokens = {{kFirst, std::string(kEndOfTextToken)},
                        {kFirst + 1, "<|im_start|>"},
                        {kFirst + 2, "<|im_end|>"}};
  for (int i = 0; i < kNumExtra; ++i) tokens[kFirst + 3 + i] = fmt::format("<|extra_{}|>", i);
  return tokens;
}

struct Encoding {
  std::string_view name;
  std::string_view pattern;
  size_t num_ranks;  // of the published file
  SpecialById (*special_tokens)(bool is_since_3_1);
  std::string_view bos = {};  // before a prompt unless add_bos_token is false; empty: none
  std::string_view eos = kEndOfTextToken;
  bool is_nfc = false;  // texts are composed first
};

constexpr Encoding kEncodings[] = {
    {.name = "gpt2", .pattern = kGpt2Pattern, .num_ranks = 50256, .special_tokens = R50kTokens},
    {.name = "r50k_base",
     .pattern = kGpt2Pattern,
     .num_ranks = 50256,
     .special_tokens = R50kTokens},
    {.name = "cl100k_base",
     .pattern = kCl100kPattern,
     .num_ranks = 100256,
     .special_tokens = Cl100kTokens},
    {.name = "o200k_base",
     .pattern = kO200kPattern,
     .num_ranks = 199998,
     .special_tokens = O200kTokens},
    {.name = "llama3",
     .pattern = kLlama3Pattern,
     .num_ranks = 128000,
     .special_tokens = Llama3Tokens,
     .bos = "<|begin_of_text|>",
     .eos = "<|end_of_text|>"},
    {.name = "qwen",
     .pattern = kQwen2Pattern,
     .num_ranks = 151643,
     .special_tokens = QwenTokens,
     .is_nfc = true},
};

// Classes that read tokenizers of many kinds.
constexpr std::string_view kOpenClasses[] = {"LlamaTokenizer", "LlamaTokenizerFast",
                                             "PreTrainedTokenizer", "PreTrainedTokenizerFast",
                                             "TokenizersBackend"};

const Encoding* FindEncoding(std::string_view name) {
  const auto* const found = std::ranges::find(kEncodings, name, &Encoding::name);
  return found == std::end(kEncodings) ? nullptr : found;
}

std::string EncodingNames() {
  std::string names;
  for (const Encoding& one : kEncodings)
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  return names;
}

Status RefuseUndecided(const std::string& why) {
  return Unimplemented(fmt::format(
      "{}; which pattern finds its words is not known (set encoding_name in {} to one of {}, or "
      "save the tokenizer as tokenizer.json, with transformers' save_pretrained)",
      why, kConfigName, EncodingNames()));
}

// A string's value, else its JSON text: for messages and comparisons.
std::string TextOf(const Json& value) {
  return (value.is_string() ? value.get<std::string>() : value.dump()).substr(0, 100);
}

Result<const Encoding*> EncodingOf(const ConfigFiles& files, const Path& name, size_t num_ranks) {
  if (const Json* named = Find(files.tokenizer_config, "encoding_name")) {
    if (const Encoding* found = FindEncoding(TextOf(*named))) return found;
    return Unimplemented(fmt::format("{}: encoding_name: got \"{}\", supported are {}", kConfigName,
                                     TextOf(*named), EncodingNames()));
  }
  if (const Json* type = Find(files.tokenizer_config, "tokenizer_class")) {
    const std::string text = TextOf(*type);
    if (text == "QWenTokenizer") return FindEncoding("qwen");
    if (std::ranges::find(kOpenClasses, text) == std::end(kOpenClasses))
      return RefuseUndecided(fmt::format("{}: tokenizer_class: got \"{}\"", kConfigName, text));
  }
  const std::string file = name.filename().string();
  if (name.extension() == kTiktokenExtension) {
    if (const Encoding* found = FindEncoding(name.stem().string())) return found;
    return RefuseUndecided(fmt::format("the file is called {}, no published name", file));
  }
  const Encoding* llama3 = FindEncoding("llama3");
  if (num_ranks == llama3->num_ranks) return llama3;
  return RefuseUndecided(fmt::format("the file has {} ranks, where Llama 3's {} has {}", num_ranks,
                                     file, llama3->num_ranks));
}

// Llama 3.1 and later scale their rotary embedding, and have other names for special tokens.
bool IsSinceLlama31(const Json& config, const Json& meta_params) {
  if (Flag(meta_params, "use_scaled_rope")) return true;
  for (const char* key : {"rope_scaling", "rope_parameters", "rotary_scaling"}) {
    const Json* scaling = Find(config, key);
    if (scaling == nullptr) continue;
    for (const char* type : {"rope_type", "type"}) {
      const Json* value = Find(*scaling, type);
      if (value != nullptr && *value == "llama3") return true;
    }
  }
  return false;
}

// Adds `token` as `id`, which may be that of a rank only if that has its bytes.
Status AddSpecial(AddedToken token, TokenId id, Definition& definition) {
  const Vocab& vocab = definition.model->vocab();
  std::string spelled = ByteAlphabet::Get().Spell(token.content);
  if (vocab.Has(id) && vocab.Token(id) != spelled)
    return InvalidArgument(
        fmt::format("\"{}\" cannot have id {}, which is the rank of other bytes (ids of special "
                    "tokens begin at {})",
                    token.content.substr(0, 100), id, vocab.size()));
  RETURN_IF_ERROR(definition.added.AddAs(std::move(token), id, definition.normalizer));
  definition.decoder_forms[id] = std::move(spelled);
  return Status::Ok();
}

Status AddInOrder(const std::vector<AddedToken>& tokens, Definition& definition) {
  const Vocab& vocab = definition.model->vocab();
  auto next = static_cast<TokenId>(vocab.size());
  for (const AddedToken& token : tokens) {
    if (definition.added.Find(token.content)) continue;
    const auto rank = vocab.Find(ByteAlphabet::Get().Spell(token.content));
    RETURN_IF_ERROR(AddSpecial(token, rank ? *rank : next, definition));
    if (!rank) ++next;
  }
  return Status::Ok();
}

Status AddSpecialTokens(const ConfigFiles& files, const Encoding& encoding, bool is_since_3_1,
                        Definition& definition) {
  if (Find(files.tokenizer_config, "added_tokens_decoder") != nullptr) {
    ASSIGN_OR_RETURN(const auto by_id, AddedTokensDecoder(files));
    for (const auto& [id, token] : by_id) {
      const Status added = AddSpecial(token, id, definition);
      if (!added.ok())
        return added.WithPrefix(fmt::format("{}: added_tokens_decoder[\"{}\"]", kConfigName, id));
    }
    return Status::Ok();
  }
  const size_t num_ranks = definition.model->vocab().size();
  if (num_ranks == encoding.num_ranks) {
    for (auto& [id, content] : encoding.special_tokens(is_since_3_1)) {
      RETURN_IF_ERROR(
          AddSpecial({.content = content, .special = true, .normalized = false}, id, definition));
    }
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(const auto listed, AdditionalSpecialTokens(files));
  if (listed) return AddInOrder(*listed, definition);
  return Unimplemented(fmt::format(
      "the file has {} ranks, and {} as it is published {}; which special tokens there are is not "
      "known (list them in added_tokens_decoder of {}, each with its id, or write {{}} there)",
      num_ranks, encoding.name, encoding.num_ranks, kConfigName));
}

// What the other settings name must be there; a rank among them becomes special.
Status CheckNamed(const ConfigFiles& files, Definition& definition) {
  const auto check = [&](AddedToken token, const std::string& key) -> Status {
    if (token.content.empty() || definition.added.Find(token.content)) return Status::Ok();
    const auto rank = definition.model->vocab().Find(ByteAlphabet::Get().Spell(token.content));
    if (rank) return AddSpecial(std::move(token), *rank, definition);
    return InvalidArgument(fmt::format(
        "{}: got \"{}\", which is none of the special tokens (list it in added_tokens_decoder of "
        "{}, with its id)",
        key, token.content.substr(0, 100), kConfigName));
  };
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    ASSIGN_OR_RETURN(auto token, SpecialToken(files, key));
    if (token) RETURN_IF_ERROR(check(*std::move(token), key));
  }
  ASSIGN_OR_RETURN(const auto listed, AdditionalSpecialTokens(files));
  for (const AddedToken& token : listed.value_or(std::vector<AddedToken>()))
    RETURN_IF_ERROR(check(token, "additional_special_tokens"));
  if (!files.added_tokens.is_object()) return Status::Ok();
  for (const auto& [content, id] : files.added_tokens.items()) {
    const auto found = definition.added.Find(content);
    if (!found || !id.is_number_integer() || id.get<int64_t>() != *found)
      return InvalidArgument(
          fmt::format("added_tokens.json: \"{}\" is no special token with id {} (list it in "
                      "added_tokens_decoder of {})",
                      content.substr(0, 100), TextOf(id), kConfigName));
  }
  return Status::Ok();
}

Status SetAround(const ConfigFiles& files, const Encoding& encoding, Definition& definition) {
  for (const auto& [key, otherwise, slot] :
       {std::tuple{"bos_token", encoding.bos, &definition.bos_id},
        {"eos_token", encoding.eos, &definition.eos_id}}) {
    ASSIGN_OR_RETURN(const auto token, SpecialToken(files, key));
    *slot = definition.Find(token ? std::string_view(token->content) : otherwise);
  }
  SetTemplate(Flag(files.tokenizer_config, "add_bos_token", !encoding.bos.empty()),
              Flag(files.tokenizer_config, "add_eos_token"), definition);
  // The model's own settings go before the encoding's.
  ASSIGN_OR_RETURN(const auto named_eos, SpecialToken(files, "eos_token"));
  if (named_eos) return Status::Ok();
  for (const Json* json : {&files.generation_config, &files.config})
    if (FirstId(*json, "eos_token_id")) definition.eos_id = std::nullopt;
  return Status::Ok();
}

Result<Definition> MakeTiktoken(std::string_view file, const Path& name, const ConfigFiles& files,
                                bool is_since_3_1) {
  Definition definition;
  ASSIGN_OR_RETURN(definition.model, ReadRanks(file));
  ASSIGN_OR_RETURN(const Encoding* encoding,
                   EncodingOf(files, name, definition.model->vocab().size()));
  if (encoding->is_nfc) definition.normalizer = Normalizer({{.kind = NormalizerStep::Kind::kNfc}});
  ASSIGN_OR_RETURN(auto pattern, SplitPattern::Regex(encoding->pattern));
  definition.pre_tokenizer = PreTokenizer({{.kind = PreTokenizerStep::Kind::kSplit,
                                            .pattern = std::move(pattern),
                                            .behavior = SplitBehavior::kIsolated},
                                           {.kind = PreTokenizerStep::Kind::kByteLevel}});
  definition.decoder = Decoder({{.kind = DecoderStep::Kind::kByteLevel}});
  RETURN_IF_ERROR(AddSpecialTokens(files, *encoding, is_since_3_1, definition));
  RETURN_IF_ERROR(CheckNamed(files, definition));
  RETURN_IF_ERROR(SetAround(files, *encoding, definition));
  return definition;
}

}  // namespace

Result<Definition> ReadTiktoken(std::string_view file, std::string_view encoding) {
  ConfigFiles files;
  files.tokenizer_config = {{"encoding_name", std::string(encoding)},
                            {"additional_special_tokens", Json::array()}};
  return MakeTiktoken(file, /*name=*/"", files, /*is_since_3_1=*/false);
}

Result<Definition> LoadTiktoken(const Path& dir, const Path& name, const ConfigFiles& files) {
  const Path path = dir / name;
  ASSIGN_OR_RETURN(const std::string file, ReadFile(path, kMaxRankFileBytes));
  // Beside the file of Meta's own folder.
  ASSIGN_OR_RETURN(const Json params, ReadOptionalJson(path.parent_path() / "params.json"));
  auto definition = MakeTiktoken(file, path, files, IsSinceLlama31(files.config, params));
  if (!definition.ok()) return definition.status().WithPrefix(path.string());
  return definition;
}

}  // namespace inflight::tokenizer
