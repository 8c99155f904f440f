// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/load_gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/bpe.h"
#include "tokenizer/config_files.h"
#include "tokenizer/load_sentencepiece.h"
#include "tokenizer/published_patterns.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

using gguf::Metadata;
using Proto = SentencePieceProto;

std::string Key(std::string_view name) {
  return std::string(gguf::kTokenizerKeys) + std::string(name);
}

// How texts are cut into words before merging, as llama.cpp cuts them under the name: each pattern
// in turn cuts the pieces that those before it left into what it finds and what lies between. NFC
// comes before, where the tokenizer.json of the models has it.
struct WordRule {
  std::string_view name;
  std::array<std::string_view, 6> patterns;  // empty: no more
  bool ignores_merges = false;               // a word that is a token is that token
  bool is_nfc = false;
  bool adds_bos = false;  // where add_bos_token is absent
};

constexpr std::array<std::string_view, 6> kDeepSeekLlmPatterns = {
    kNewlinePattern,    kCasedLettersPattern, kAsciiAndWidePunctuationPattern,
    kLastBlanksPattern, kAsianLettersPattern, kDigitsPattern};

constexpr WordRule kWordRules[] = {
    {.name = "default",
     .patterns = {kSymbolsPattern, kGpt2Pattern, kDigitsPattern, kThreeDigitsPattern}},
    {.name = "gpt-2", .patterns = {kGpt2Pattern}},
    {.name = "mpt", .patterns = {kGpt2Pattern}},
    {.name = "olmo", .patterns = {kGpt2Pattern}, .is_nfc = true},
    {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {kLlama3Pattern}, .ignores_merges = true, .adds_bos = true},
    {.name = "smaug-bpe", .patterns = {kLlama3Pattern}},
    {.name = "dbrx", .patterns = {kLlama3Pattern}},
    {.name = "qwen2", .patterns = {kQwen2Pattern}, .is_nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2Pattern}, .is_nfc = true},
    {.name = "deepseek-llm", .patterns = kDeepSeekLlmPatterns},
    {.name = "deepseek-coder",
     .patterns = {kNewlinePattern, kLettersPattern, kPunctuationPattern, kAsianLettersPattern,
                  kDigitPattern}},
    {.name = "falcon", .patterns = {kFalconSymbolsPattern, kGpt2Pattern, kThreeDigitsPattern}},
    {.name = "tekken", .patterns = {kTekkenPattern}, .ignores_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .patterns = {kO200kPattern}},
    {.name = "smollm", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "starcoder", .patterns = {kDigitPattern, kGpt2Pattern}},
    {.name = "refact", .patterns = {kDigitPattern, kGpt2Pattern}},
};

Result<WordRule> WordRuleOf(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto name, metadata.Text(Key("pre")));
  // Files from before the key was have none.
  const auto* kind = std::ranges::find(kWordRules, name.value_or("default"), &WordRule::name);
  if (kind != std::end(kWordRules)) return *kind;
  std::string known;
  for (const WordRule& one : kWordRules)
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  return Unimplemented(metadata.where() + ": " + Key("pre") + ": got " +
                       gguf::Describe(*metadata.Find(Key("pre"))) + ", supported are " + known);
}

Result<std::vector<PreTokenizerStep>> StepsOf(const WordRule& kind) {
  using Kind = PreTokenizerStep::Kind;
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view regex : kind.patterns) {
    if (regex.empty()) break;
    ASSIGN_OR_RETURN(auto pattern, SplitPattern::Regex(regex));
    steps.push_back({.kind = Kind::kSplit,
                     .pattern = std::move(pattern),
                     .behavior = SplitBehavior::kIsolated});
  }
  steps.push_back({.kind = Kind::kByteLevel});
  return steps;
}

// What every kind of model has: texts and types by id.
struct Tokens {
  std::vector<std::string_view> texts;
  std::vector<int64_t> types;

  bool Is(size_t id, Proto::Type type) const { return types[id] == static_cast<int64_t>(type); }
};

// Whether an array that is there has a value for each token.
Status CheckCount(const Metadata& metadata, std::string_view name, size_t num_tokens) {
  const auto size = metadata.ArraySize(Key(name));
  if (!size || *size == num_tokens) return Status::Ok();
  return InvalidArgument(metadata.where() + ": " + Key(name) + ": got " + std::to_string(*size) +
                         " values for " + std::to_string(num_tokens) + " tokens");
}

Result<Tokens> ReadTokens(const Metadata& metadata) {
  Tokens tokens;
  ASSIGN_OR_RETURN(auto texts, metadata.Texts(Key("tokens")));
  if (!texts || texts->empty())
    return InvalidArgument(metadata.where() + ": " + Key("tokens") + ": is missing or empty");
  tokens.texts = *std::move(texts);
  if (tokens.texts.size() > static_cast<size_t>(kMaxTokenId) + 1)
    return InvalidArgument(metadata.where() + ": " + Key("tokens") + ": got " +
                           std::to_string(tokens.texts.size()) + ", at most " +
                           std::to_string(kMaxTokenId + 1) + " are supported");
  RETURN_IF_ERROR(CheckCount(metadata, "token_type", tokens.texts.size()));
  ASSIGN_OR_RETURN(auto types, metadata.Ints(Key("token_type")));
  tokens.types = types
                     ? *std::move(types)
                     : std::vector(tokens.texts.size(), static_cast<int64_t>(Proto::Type::kNormal));
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    if (tokens.types[i] < 0 || tokens.types[i] > static_cast<int64_t>(Proto::Type::kByte))
      return InvalidArgument(metadata.where() + ": " + Key("token_type") + "[" + std::to_string(i) +
                             "]: got " + std::to_string(tokens.types[i]) + ", 0 to 6 are known");
    if (FindInvalidUtf8(tokens.texts[i]))
      return InvalidArgument(metadata.where() + ": " + Key("tokens") + "[" + std::to_string(i) +
                             "]: is not valid UTF-8");
  }
  return tokens;
}

Result<std::optional<TokenId>> IdOf(const Metadata& metadata, std::string_view name,
                                    size_t num_tokens) {
  ASSIGN_OR_RETURN(const auto id, metadata.SpecialId(name, static_cast<int64_t>(num_tokens)));
  return id ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
}

Status ReadSpecialIds(const Metadata& metadata, size_t num_tokens, Definition& definition) {
  ASSIGN_OR_RETURN(definition.bos_id, IdOf(metadata, "bos", num_tokens));
  ASSIGN_OR_RETURN(definition.eos_id, IdOf(metadata, "eos", num_tokens));
  ASSIGN_OR_RETURN(definition.pad_id, IdOf(metadata, "padding", num_tokens));
  ASSIGN_OR_RETURN(definition.unk_id, IdOf(metadata, "unknown", num_tokens));
  return Status::Ok();
}

Result<BpeModel> MakeBpe(const Metadata& metadata, const Tokens& tokens, bool ignores_merges) {
  Vocab vocab;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.Is(id, Proto::Type::kUnused)) continue;  // fills up the embedding's rows
    const Status added = vocab.Add(tokens.texts[id], static_cast<int64_t>(id));
    if (!added.ok()) return added.WithPrefix(Key("tokens"));
  }
  ASSIGN_OR_RETURN(const auto lines, metadata.Texts(Key("merges")));
  if (!lines) return InvalidArgument(Key("merges") + ": is missing");
  std::vector<BpeModel::MergePair> merges;
  merges.reserve(lines->size());
  for (const std::string_view line : *lines) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      return InvalidArgument(Key("merges") + "[" + std::to_string(merges.size()) +
                             "]: must be two tokens with a blank between");
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  auto model = BpeModel::Create(std::move(vocab), merges,
                                {.ignore_merges = ignores_merges, .pieces_are_bytes = true});
  if (!model.ok()) return model.status().WithPrefix(Key("merges"));
  return model;
}

Result<Definition> MakeByteLevel(const Metadata& metadata, const Tokens& tokens) {
  ASSIGN_OR_RETURN(const WordRule kind, WordRuleOf(metadata));
  Definition definition;
  auto model = MakeBpe(metadata, tokens, kind.ignores_merges);
  if (!model.ok()) return model.status().WithPrefix(metadata.where());
  definition.model = std::make_shared<BpeModel>(*std::move(model));
  ASSIGN_OR_RETURN(std::vector<PreTokenizerStep> steps, StepsOf(kind));
  definition.pre_tokenizer = PreTokenizer(std::move(steps));
  if (kind.is_nfc) definition.normalizer = Normalizer({{.kind = NormalizerStep::Kind::kNfc}});
  definition.decoder = Decoder({{.kind = DecoderStep::Kind::kByteLevel}});
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const bool is_control = tokens.Is(id, Proto::Type::kControl);
    if (!is_control && !tokens.Is(id, Proto::Type::kUserDefined)) continue;
    if (tokens.texts[id].empty()) continue;
    const Status added = definition.added.Add(
        {.content = std::string(tokens.texts[id]), .special = is_control, .normalized = false},
        definition.model->vocab(), definition.normalizer);
    if (!added.ok()) return added.WithPrefix(metadata.where() + ": " + Key("tokens"));
  }
  RETURN_IF_ERROR(ReadSpecialIds(metadata, tokens.texts.size(), definition));
  ASSIGN_OR_RETURN(const auto add_bos, metadata.Bool(Key("add_bos_token")));
  ASSIGN_OR_RETURN(const auto add_eos, metadata.Bool(Key("add_eos_token")));
  SetTemplate(add_bos.value_or(kind.adds_bos), add_eos.value_or(false), definition);
  return definition;
}

Result<Proto> MakeProto(const Metadata& metadata, const Tokens& tokens) {
  Proto proto;
  proto.model_type = Proto::ModelType::kBpe;
  RETURN_IF_ERROR(CheckCount(metadata, "scores", tokens.texts.size()));
  ASSIGN_OR_RETURN(const auto scores, metadata.Floats(Key("scores")));
  if (!scores)
    return InvalidArgument(metadata.where() + ": " + Key("scores") + ": got 0 values for " +
                           std::to_string(tokens.texts.size()) + " tokens");
  // Converters give the unknown token its own type, or that of a control token.
  ASSIGN_OR_RETURN(const auto unknown, IdOf(metadata, "unknown", tokens.texts.size()));
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    // Type 0 is no kind; converters write it for rows that fill up the table.
    auto type =
        tokens.types[id] == 0 ? Proto::Type::kUnused : static_cast<Proto::Type>(tokens.types[id]);
    if (unknown == static_cast<TokenId>(id)) type = Proto::Type::kUnknown;
    if (!std::isfinite((*scores)[id]))
      return InvalidArgument(metadata.where() + ": " + Key("scores") + "[" + std::to_string(id) +
                             "]: must be a finite number");
    proto.pieces.push_back(
        {.text = std::string(tokens.texts[id]), .score = (*scores)[id], .type = type});
    proto.byte_fallback |= type == Proto::Type::kByte;
  }
  if (const Status checked = proto.CheckPieces(); !checked.ok())
    return checked.WithPrefix(metadata.where() + ": " + Key("tokens"));
  ASSIGN_OR_RETURN(const auto blank, metadata.Bool(Key("add_space_prefix")));
  ASSIGN_OR_RETURN(const auto squeeze, metadata.Bool(Key("remove_extra_whitespaces")));
  proto.normalizer.add_dummy_prefix = blank.value_or(true);
  proto.normalizer.remove_extra_whitespaces = squeeze.value_or(false);
  ASSIGN_OR_RETURN(const auto charsmap, metadata.Bytes(Key("precompiled_charsmap")));
  proto.normalizer.precompiled_charsmap = charsmap.value_or("");
  return proto;
}

Result<Definition> MakeSentencePiece(const Metadata& metadata, const Tokens& tokens) {
  ASSIGN_OR_RETURN(const Proto proto, MakeProto(metadata, tokens));
  ASSIGN_OR_RETURN(const auto add_bos, metadata.Bool(Key("add_bos_token")));
  ASSIGN_OR_RETURN(const auto add_eos, metadata.Bool(Key("add_eos_token")));
  ConfigFiles files;
  files.tokenizer_config = {{"legacy", true},
                            {"add_prefix_space", proto.normalizer.add_dummy_prefix},
                            {"add_bos_token", add_bos.value_or(true)},
                            {"add_eos_token", add_eos.value_or(false)}};
  for (const auto& [name, key] : {std::pair{"bos", "bos_token"},
                                  {"eos", "eos_token"},
                                  {"unknown", "unk_token"},
                                  {"padding", "pad_token"}}) {
    ASSIGN_OR_RETURN(const auto id, IdOf(metadata, name, tokens.texts.size()));
    files.tokenizer_config[key] =
        id ? std::string(tokens.texts[static_cast<size_t>(*id)]) : std::string();
  }
  auto definition = MakeLlamaTokenizer(proto, files);
  if (!definition.ok()) return definition.status().WithPrefix(metadata.where());
  RETURN_IF_ERROR(ReadSpecialIds(metadata, tokens.texts.size(), *definition));
  if (!definition->unk_id && proto.unk_id >= 0) definition->unk_id = proto.unk_id;
  return definition;
}

}  // namespace

Result<Definition> ReadGguf(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const auto model, metadata.Text(Key("model")));
  if (!model)
    return NotFound(metadata.where() + ": has no tokenizer: " + Key("model") + " is missing");
  if (*model != "gpt2" && *model != "llama")
    return Unimplemented(metadata.where() + ": " + Key("model") + ": got " +
                         gguf::Describe(gguf::Value(*model)) + ", gpt2 and llama are supported");
  ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(metadata));
  return *model == "gpt2" ? MakeByteLevel(metadata, tokens) : MakeSentencePiece(metadata, tokens);
}

}  // namespace inflight::tokenizer
