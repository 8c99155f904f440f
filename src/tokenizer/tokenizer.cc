// SPDX-License-Identifier: Apache-2.0
// Loading a tokenizer from a model directory: which files there are and what each has to say.
#include "inflight/tokenizer.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/status_macros.h"
#include "gguf/file.h"
#include "tokenizer/config_files.h"
#include "tokenizer/load_gguf.h"
#include "tokenizer/load_sentencepiece.h"
#include "tokenizer/load_tiktoken.h"
#include "tokenizer/tiktoken_ranks.h"
#include "tokenizer/tokenizer_impl.h"

namespace inflight::tokenizer {
namespace {

using Path = std::filesystem::path;

Status ResolveSpecialIds(const ConfigFiles& files, Definition& definition) {
  for (const auto& [key, slot] : {std::pair{"bos_token", &definition.bos_id},
                                  {"eos_token", &definition.eos_id},
                                  {"pad_token", &definition.pad_id}}) {
    ASSIGN_OR_RETURN(const auto token, SpecialToken(files, key));
    if (token) *slot = definition.Find(token->content);
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
    ASSIGN_OR_RETURN(const auto named, SpecialToken(files, key));
    std::optional<std::string> token;
    if (named) token = named->content;
    if (!token && key != std::string_view("pad_token") &&
        definition->model->vocab().Find(kEndOfText)) {
      token = kEndOfText;
    }
    if (!token) continue;
    RETURN_IF_ERROR(definition->added.Add({.content = *token, .special = true, .normalized = false},
                                          definition->model->vocab(), definition->normalizer));
    if (key == std::string_view("bos_token")) definition->bos_id = definition->Find(*token);
    if (key == std::string_view("eos_token")) definition->eos_id = definition->Find(*token);
  }
  if (Flag(files.tokenizer_config, "add_bos_token") && definition->bos_id) {
    definition->post_processor = {{.ids = {*definition->bos_id}}, {.is_sequence = true}};
  }
  return definition;
}

Result<Definition> LoadGguf(const Path& path) {
  ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const gguf::File file, gguf::Parse(mapped.bytes(), path.string()));
  return ReadGguf(file.metadata);
}

// The file of pieces or of ranks that `dir` has, a path in it; else none. Folders named so are
// those of transformers and of Meta.
Result<Path> VocabularyFileOf(const Path& dir) {
  for (const char* name : {"tokenizer.model", "spiece.model"})
    if (FileExists(dir / name)) return Path(name);
  std::vector<Path> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(dir, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (entry->path().extension() == kTiktokenExtension) found.push_back(entry->path().filename());
  std::ranges::sort(found);
  if (found.size() > 1)
    return InvalidArgument(dir.string() + ": has " + found[0].string() + " and " +
                           found[1].string() + " (leave the one that is meant)");
  if (!found.empty()) return found[0];
  for (const char* name : {"tiktoken/tokenizer.model", "original/tokenizer.model"})
    if (FileExists(dir / name)) return Path(name);
  return Path();
}

Result<Definition> LoadVocabularyFile(const Path& dir, const Path& name, const ConfigFiles& files) {
  if (name.extension() == kTiktokenExtension) return LoadTiktoken(dir, name, files);
  ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(dir / name));
  const auto bytes = mapped.bytes();
  const bool has_ranks = BeginsAsRanks({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return has_ranks ? LoadTiktoken(dir, name, files) : LoadSentencePiece(dir, name.string(), files);
}

// `definition` with the file that it was read from.
Result<Definition> From(std::string origin, Result<Definition> definition) {
  if (definition.ok()) definition->origin = std::move(origin);
  return definition;
}

Result<Definition> LoadDefinition(const Path& dir, const ConfigFiles& files) {
  const Path tokenizer_json = dir / "tokenizer.json";
  if (FileExists(tokenizer_json)) {
    ASSIGN_OR_RETURN(const std::string json, ReadFile(tokenizer_json, kMaxFileBytes));
    auto definition = ReadTokenizerJson(json);
    if (!definition.ok()) return definition.status().WithPrefix(tokenizer_json.string());
    return From("tokenizer.json", std::move(definition));
  }
  if (FileExists(dir / "vocab.json") && FileExists(dir / "merges.txt")) {
    return From("vocab.json and merges.txt", LoadVocabAndMerges(dir, files));
  }
  ASSIGN_OR_RETURN(const Path vocabulary, VocabularyFileOf(dir));
  if (!vocabulary.empty())
    return From(vocabulary.string(), LoadVocabularyFile(dir, vocabulary, files));
  if (const Path file = gguf::TokenizerFileOf(dir); !file.empty())
    return From(file.filename().string(), LoadGguf(file));
  return NotFound(dir.string() +
                  ": has no tokenizer (looked for tokenizer.json, vocab.json with merges.txt, "
                  "tokenizer.model, spiece.model, *.tiktoken, tiktoken/tokenizer.model, "
                  "original/tokenizer.model, tokenizer.gguf)");
}

}  // namespace
}  // namespace inflight::tokenizer

namespace inflight {

using tokenizer::Definition;
using tokenizer::TokenizerImpl;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::filesystem::path& dir) {
  ASSIGN_OR_RETURN(const tokenizer::ConfigFiles files, tokenizer::ReadConfigFiles(dir));
  ASSIGN_OR_RETURN(Definition definition, tokenizer::LoadDefinition(dir, files));
  const Status status = [&]() -> Status {
    RETURN_IF_ERROR(tokenizer::AddFromConfig(files, definition));
    return tokenizer::ResolveSpecialIds(files, definition);
  }();
  if (!status.ok()) return status.WithPrefix(dir.string());
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json) {
  ASSIGN_OR_RETURN(Definition definition, tokenizer::ReadTokenizerJson(tokenizer_json));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromSentencePiece(std::string_view model) {
  ASSIGN_OR_RETURN(Definition definition, tokenizer::ReadSentencePiece(model));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromTiktoken(std::string_view ranks,
                                                                 std::string_view encoding) {
  ASSIGN_OR_RETURN(Definition definition, tokenizer::ReadTiktoken(ranks, encoding));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const gguf::File parsed, gguf::Parse(file, "file"));
  ASSIGN_OR_RETURN(Definition definition, tokenizer::ReadGguf(parsed.metadata));
  return std::shared_ptr<const Tokenizer>(std::make_shared<TokenizerImpl>(std::move(definition)));
}

}  // namespace inflight
