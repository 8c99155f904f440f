// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/load_sentencepiece.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/file.h"
#include "base/status_macros.h"
#include "tokenizer/sentencepiece_bpe.h"
#include "tokenizer/sentencepiece_normalizer.h"
#include "tokenizer/sentencepiece_proto.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"

namespace inflight::tokenizer {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;
using Proto = SentencePieceProto;

constexpr int64_t kMaxExtraIds = 10000;

Result<std::shared_ptr<const Model>> MakeModel(const Proto& proto) {
  if (proto.model_type == Proto::ModelType::kBpe) {
    ASSIGN_OR_RETURN(auto bpe, SentencePieceBpe::Create(proto));
    return std::shared_ptr<const Model>(std::move(bpe));
  }
  ASSIGN_OR_RETURN(auto unigram, UnigramModel::Create(proto));
  return std::shared_ptr<const Model>(std::move(unigram));
}

Normalizer Wrap(SentencePieceNormalizer normalizer) {
  return Normalizer(
      {{.kind = NormalizerStep::Kind::kSentencePiece,
        .sentencepiece = std::make_shared<SentencePieceNormalizer>(std::move(normalizer))}});
}

// The id of a control piece of that name.
std::optional<TokenId> ControlId(const Proto& proto, const Definition& definition,
                                 std::string_view name) {
  const auto id = definition.model->vocab().Find(name);
  if (!id || proto.pieces[static_cast<size_t>(*id)].type != Proto::Type::kControl) {
    return std::nullopt;
  }
  return id;
}

Result<Definition> MakeBare(const Proto& proto) {
  if (proto.unk_surface.find(kMetaspace) != std::string::npos) {
    return Unimplemented("trainer_spec.unk_surface: U+2581 in it is not supported");
  }
  Definition definition;
  ASSIGN_OR_RETURN(definition.model, MakeModel(proto));
  ASSIGN_OR_RETURN(SentencePieceNormalizer normalizer, SentencePieceNormalizer::Create(proto));
  definition.normalizer = Wrap(std::move(normalizer));
  const auto& spec = proto.normalizer;
  definition.decoder =
      Decoder({{.kind = DecoderStep::Kind::kSentencePiece,
                .strips_first = spec.add_dummy_prefix || spec.remove_extra_whitespaces,
                .strips_all = spec.remove_extra_whitespaces,
                .has_bytes = proto.byte_fallback}});
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const auto type = proto.pieces[i].type;
    const auto id = static_cast<TokenId>(i);
    if (type == Proto::Type::kControl) definition.decoder_forms[id] = "";
    if (type == Proto::Type::kUnknown) definition.decoder_forms[id] = proto.unk_surface;
  }
  definition.bos_id = ControlId(proto, definition, proto.bos_piece);
  definition.eos_id = ControlId(proto, definition, proto.eos_piece);
  definition.pad_id = ControlId(proto, definition, proto.pad_piece);
  if (proto.unk_id >= 0) definition.unk_id = proto.unk_id;
  return definition;
}

enum class Class { kBare, kLlama, kT5 };

Result<Class> ClassOf(const ConfigFiles& files) {
  if (const Json* name = Find(files.tokenizer_config, "tokenizer_class")) {
    const std::string text = name->is_string() ? name->get<std::string>() : name->dump();
    if (text == "LlamaTokenizer" || text == "LlamaTokenizerFast") return Class::kLlama;
    if (text == "T5Tokenizer" || text == "T5TokenizerFast") return Class::kT5;
    return Unimplemented("tokenizer_config.json: tokenizer_class: got \"" + text.substr(0, 100) +
                         "\"; with a SentencePiece model only LlamaTokenizer and T5Tokenizer are "
                         "supported (save the "
                         "tokenizer as tokenizer.json, with transformers' save_pretrained)");
  }
  const Json* family = Find(files.config, "model_type");
  if (family == nullptr) family = Find(files.config, "architecture");
  if (const Json* list = Find(files.config, "architectures");
      family == nullptr && list != nullptr && list->is_array() && !list->empty()) {
    family = &list->front();
  }
  const std::string name =
      family != nullptr && family->is_string() ? family->get<std::string>() : "";
  for (const char* llama : {"llama", "Llama", "mistral", "Mistral", "mixtral", "Mixtral"}) {
    if (name.starts_with(llama)) return Class::kLlama;
  }
  return name.starts_with("t5") || name.starts_with("T5") ? Class::kT5 : Class::kBare;
}

// Special tokens by what they are for; the class's own where the files name none.
Result<std::vector<AddedToken>> SpecialTokens(const ConfigFiles& files, Class type) {
  std::vector<AddedToken> tokens;
  for (const auto& [key, otherwise] :
       {std::pair<const char*, const char*>{"bos_token", type == Class::kLlama ? "<s>" : ""},
        {"eos_token", "</s>"},
        {"unk_token", "<unk>"},
        {"sep_token", ""},
        {"pad_token", type == Class::kT5 ? "<pad>" : ""},
        {"cls_token", ""},
        {"mask_token", ""}}) {
    ASSIGN_OR_RETURN(auto token, SpecialToken(files, key));
    if (!token) token = AddedToken{.content = otherwise, .special = true, .normalized = false};
    tokens.push_back(*std::move(token));
  }
  ASSIGN_OR_RETURN(auto additional, AdditionalSpecialTokens(files));
  if (additional) std::ranges::move(*additional, std::back_inserter(tokens));
  return tokens;
}

Status AddOnce(const AddedToken& token, Definition& definition) {
  if (token.content.empty() || definition.added.Find(token.content)) return Status::Ok();
  return definition.added.Add(token, definition.model->vocab(), definition.normalizer);
}

// added_tokens.json: {"<pad>": 32000}. Read where there is no added_tokens_decoder.
Status AddFromAddedTokensJson(const ConfigFiles& files, const std::vector<AddedToken>& special,
                              Definition& definition) {
  if (!files.added_tokens.is_object()) return Status::Ok();
  std::set<std::string> special_contents;
  for (const AddedToken& token : special) special_contents.insert(token.content);
  std::map<int64_t, std::string> by_id;
  for (const auto& [content, id] : files.added_tokens.items()) {
    if (!id.is_number_integer()) {
      return InvalidArgument("added_tokens.json: \"" + content.substr(0, 100) +
                             "\": must be an integer");
    }
    by_id[id.get<int64_t>()] = content;
  }
  for (const auto& [id, content] : by_id) {
    const bool is_special = special_contents.contains(content);
    RETURN_IF_ERROR(AddOnce({.content = content, .special = is_special, .normalized = !is_special},
                            definition));
  }
  return Status::Ok();
}

// Ids come in sequence behind the vocabulary; a file with gaps says otherwise.
Status CheckIds(const ConfigFiles& files, const Definition& definition) {
  const auto check = [&](const std::string& content, int64_t id, const char* file) -> Status {
    const auto found = definition.Find(content);
    if (!found || *found == id) return Status::Ok();
    return Unimplemented(std::string(file) + ": token \"" + content.substr(0, 100) + "\" has id " +
                         std::to_string(id) + ", but the next free id is " +
                         std::to_string(*found) + "; gaps between ids are not supported");
  };
  if (const Json* decoder = Find(files.tokenizer_config, "added_tokens_decoder")) {
    for (const auto& [id, token] : decoder->items()) {  // AddFromConfig has checked their types
      RETURN_IF_ERROR(check(Find(token, "content")->get<std::string>(), std::stoi(id),
                            "tokenizer_config.json: added_tokens_decoder"));
    }
  } else if (files.added_tokens.is_object()) {
    for (const auto& [content, id] : files.added_tokens.items()) {
      RETURN_IF_ERROR(check(content, id.get<int64_t>(), "added_tokens.json"));
    }
  }
  return Status::Ok();
}

Status AddExtraIds(const ConfigFiles& files, Definition& definition) {
  int64_t count = 100;
  if (const Json* value = Find(files.tokenizer_config, "extra_ids")) {
    if (!value->is_number_integer() || value->get<int64_t>() < 0 ||
        value->get<int64_t>() > kMaxExtraIds) {
      return InvalidArgument("tokenizer_config.json: extra_ids: must be 0 to " +
                             std::to_string(kMaxExtraIds));
    }
    count = value->get<int64_t>();
  }
  for (int64_t i = count; i-- > 0;) {
    RETURN_IF_ERROR(AddOnce(
        {.content = "<extra_id_" + std::to_string(i) + ">", .special = true, .normalized = false},
        definition));
  }
  return Status::Ok();
}

Status AddTokens(const Proto& proto, const ConfigFiles& files, Class type, Definition& definition) {
  ASSIGN_OR_RETURN(const auto special, SpecialTokens(files, type));
  if (Find(files.tokenizer_config, "added_tokens_decoder") != nullptr) {
    RETURN_IF_ERROR(AddFromConfig(files, definition));
  } else {
    if (type == Class::kT5) RETURN_IF_ERROR(AddExtraIds(files, definition));
    RETURN_IF_ERROR(AddFromAddedTokensJson(files, special, definition));
  }
  for (const auto& piece : proto.pieces) {
    const bool is_control = piece.type == Proto::Type::kControl;
    if (!is_control && piece.type != Proto::Type::kUserDefined) continue;
    RETURN_IF_ERROR(
        AddOnce({.content = piece.text, .special = is_control, .normalized = false}, definition));
  }
  for (const AddedToken& token : special) RETURN_IF_ERROR(AddOnce(token, definition));
  return CheckIds(files, definition);
}

// The blank in front, and the decoder that takes it off again.
Status DressText(const Proto& proto, const ConfigFiles& files, Class type, Definition& definition) {
  Proto adjusted = proto;
  bool& blank = adjusted.normalizer.add_dummy_prefix;
  blank = Flag(files.tokenizer_config, "add_prefix_space", blank);
  ASSIGN_OR_RETURN(SentencePieceNormalizer normalizer, SentencePieceNormalizer::Create(adjusted));
  const bool legacy = Flag(files.tokenizer_config, "legacy");
  if (!legacy || type == Class::kT5) {
    normalizer.set_inside_text();
    definition.pre_tokenizer = PreTokenizer({{.kind = PreTokenizerStep::Kind::kMetaspace,
                                              .replacement = std::string(kMetaspace),
                                              .prepend_scheme = !blank    ? PrependScheme::kNever
                                                                : !legacy ? PrependScheme::kFirst
                                                                          : PrependScheme::kAlways,
                                              .split = false}});
  }
  definition.normalizer = Wrap(std::move(normalizer));
  std::vector<DecoderStep> steps = {
      {.kind = DecoderStep::Kind::kReplace, .content = " ", .literal = std::string(kMetaspace)},
      {.kind = DecoderStep::Kind::kByteFallback},
      {.kind = DecoderStep::Kind::kFuse}};
  if (blank) steps.push_back({.kind = DecoderStep::Kind::kStrip, .content = " ", .start = 1});
  definition.decoder = Decoder(std::move(steps));
  return Status::Ok();
}

Result<Definition> MakeDressed(const Proto& proto, const ConfigFiles& files, Class type) {
  if (proto.treat_whitespace_as_suffix || !proto.normalizer.escape_whitespaces) {
    return Unimplemented(
        "treat_whitespace_as_suffix and escape_whitespaces: false are not supported under a "
        "transformers class");
  }
  Definition definition;
  ASSIGN_OR_RETURN(definition.model, MakeModel(proto));
  RETURN_IF_ERROR(DressText(proto, files, type, definition));
  RETURN_IF_ERROR(AddTokens(proto, files, type, definition));
  for (const auto& [key, otherwise, slot] :
       {std::tuple{"bos_token", type == Class::kLlama ? "<s>" : "", &definition.bos_id},
        {"eos_token", "</s>", &definition.eos_id},
        {"pad_token", type == Class::kT5 ? "<pad>" : "", &definition.pad_id}}) {
    ASSIGN_OR_RETURN(const auto token, SpecialToken(files, key));
    *slot = definition.Find(token ? token->content : otherwise);
  }
  const bool is_llama = type == Class::kLlama;
  SetTemplate(is_llama && Flag(files.tokenizer_config, "add_bos_token", true),
              Flag(files.tokenizer_config, "add_eos_token", !is_llama), definition);
  return definition;
}

}  // namespace

void SetTemplate(bool add_bos, bool add_eos, Definition& definition) {
  definition.post_processor.clear();
  if (add_bos && definition.bos_id)
    definition.post_processor.push_back({.ids = {*definition.bos_id}});
  definition.post_processor.push_back({.is_sequence = true});
  if (add_eos && definition.eos_id)
    definition.post_processor.push_back({.ids = {*definition.eos_id}});
}

Result<Definition> MakeLlamaTokenizer(const Proto& proto, const ConfigFiles& files) {
  return MakeDressed(proto, files, Class::kLlama);
}

Result<Definition> ReadSentencePiece(std::string_view model) {
  ASSIGN_OR_RETURN(const Proto proto, Proto::Parse(model));
  return MakeBare(proto);
}

Result<Definition> LoadSentencePiece(const Path& dir, std::string_view name,
                                     const ConfigFiles& files) {
  ASSIGN_OR_RETURN(const std::string file, ReadFile(dir / name, kMaxFileBytes));
  auto proto = Proto::Parse(file);
  if (!proto.ok()) return proto.status().WithPrefix((dir / name).string());
  auto definition = [&]() -> Result<Definition> {
    ASSIGN_OR_RETURN(const Class type, ClassOf(files));
    if (type != Class::kBare) return MakeDressed(*proto, files, type);
    ASSIGN_OR_RETURN(Definition bare, MakeBare(*proto));
    SetTemplate(Flag(files.tokenizer_config, "add_bos_token"),
                Flag(files.tokenizer_config, "add_eos_token"), bare);
    return bare;
  }();
  if (!definition.ok()) return definition.status().WithPrefix((dir / name).string());
  return definition;
}

}  // namespace inflight::tokenizer
