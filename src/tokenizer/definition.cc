// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/definition.h"

#include "base/status_macros.h"
#include "tokenizer/bpe.h"
#include "tokenizer/components.h"
#include "tokenizer/json.h"
#include "tokenizer/read_model.h"

namespace inflight::tokenizer {
namespace {

namespace dom = simdjson::dom;

Result<dom::element> Parse(dom::parser& parser, std::string_view json) {
  dom::element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return InvalidArgument(std::string("not valid JSON: ") + simdjson::error_message(error));
  }
  return root;
}

Status ReadAddedTokens(const JsonObject& root, Definition& definition) {
  if (!root.Find("added_tokens")) return Status::Ok();
  ASSIGN_OR_RETURN(const auto tokens, root.Objects("added_tokens"));
  for (const JsonObject& json : tokens) {
    AddedToken token;
    ASSIGN_OR_RETURN(const int64_t id, json.Int("id", 0, kMaxTokenId));
    static_cast<void>(id);  // documents what Add finds out; see there
    ASSIGN_OR_RETURN(const std::string_view content, json.String("content"));
    token.content = std::string(content);
    ASSIGN_OR_RETURN(token.special, json.Bool("special"));
    ASSIGN_OR_RETURN(token.normalized, json.Bool("normalized"));
    ASSIGN_OR_RETURN(token.single_word, json.Bool("single_word"));
    ASSIGN_OR_RETURN(token.lstrip, json.Bool("lstrip"));
    ASSIGN_OR_RETURN(token.rstrip, json.Bool("rstrip"));
    const Status added =
        definition.added.Add(std::move(token), definition.model->vocab(), definition.normalizer);
    if (!added.ok()) return added.WithPrefix(json.path());
  }
  return Status::Ok();
}

Status ReadComponents(const JsonObject& root, Definition& definition) {
  ASSIGN_OR_RETURN(const auto normalizer, root.OptionalObject("normalizer"));
  if (normalizer) {
    ASSIGN_OR_RETURN(auto steps, ReadNormalizer(*normalizer));
    definition.normalizer = Normalizer(std::move(steps));
  }
  ASSIGN_OR_RETURN(const auto pre_tokenizer, root.OptionalObject("pre_tokenizer"));
  if (pre_tokenizer) {
    ASSIGN_OR_RETURN(auto steps, ReadPreTokenizer(*pre_tokenizer));
    definition.pre_tokenizer = PreTokenizer(std::move(steps));
  }
  ASSIGN_OR_RETURN(const auto post_processor, root.OptionalObject("post_processor"));
  if (post_processor) {
    ASSIGN_OR_RETURN(definition.post_processor, ReadPostProcessor(*post_processor));
  }
  ASSIGN_OR_RETURN(const auto decoder, root.OptionalObject("decoder"));
  if (decoder) {
    ASSIGN_OR_RETURN(auto steps, ReadDecoder(*decoder));
    definition.decoder = Decoder(std::move(steps));
  }
  return Status::Ok();
}

}  // namespace

Result<Definition> ReadTokenizerJson(std::string_view json) {
  dom::parser parser;
  ASSIGN_OR_RETURN(const dom::element element, Parse(parser, json));
  ASSIGN_OR_RETURN(const JsonObject root, JsonObject::From(element, ""));
  ASSIGN_OR_RETURN(const auto version, root.OptionalString("version"));
  if (version && *version != "1.0") {
    return Unimplemented("version: got \"" + std::string(version->substr(0, 100)) +
                         "\", supported is 1.0");
  }
  Definition definition;
  RETURN_IF_ERROR(ReadComponents(root, definition));
  ASSIGN_OR_RETURN(const JsonObject model, root.Object("model"));
  ASSIGN_OR_RETURN(JsonModel read, ReadModel(model, definition.pre_tokenizer.pieces_are_bytes()));
  if (!read.takes_bytes) definition.pre_tokenizer.SpellBytes();
  definition.model = std::move(read.model);
  RETURN_IF_ERROR(ReadAddedTokens(root, definition));
  definition.unk_id = read.unk_token ? definition.Find(*read.unk_token) : read.unk_id;
  return definition;
}

Result<Definition> ReadVocabAndMerges(std::string_view vocab_json, std::string_view merges_txt,
                                      bool add_prefix_space) {
  dom::parser parser;
  auto element = Parse(parser, vocab_json);
  if (!element.ok()) return element.status().WithPrefix("vocab.json");
  dom::object object;
  if (element->get(object) != simdjson::SUCCESS) {
    return InvalidArgument("vocab.json: must be a JSON object");
  }
  auto vocab = ReadVocab(object, "vocab.json");
  if (!vocab.ok()) return vocab.status();
  ASSIGN_OR_RETURN(const Merges merges, ReadMergesTxt(merges_txt));
  Definition definition;
  definition.pre_tokenizer = PreTokenizer({{.kind = PreTokenizerStep::Kind::kByteLevel,
                                            .pattern = SplitPattern::Gpt2(),
                                            .add_prefix_space = add_prefix_space}});
  definition.decoder = Decoder({{.kind = DecoderStep::Kind::kByteLevel}});
  auto model = BpeModel::Create(*std::move(vocab), merges, {.pieces_are_bytes = true});
  if (!model.ok()) return model.status().WithPrefix("merges.txt");
  definition.model = std::make_shared<BpeModel>(*std::move(model));
  return definition;
}

}  // namespace inflight::tokenizer
