// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/definition.h"

#include <algorithm>

#include "base/status_macros.h"
#include "tokenizer/bpe.h"
#include "tokenizer/components.h"
#include "tokenizer/json.h"

namespace inflight::tokenizer {
namespace {

namespace dom = simdjson::dom;
using Merges = std::vector<BpeModel::MergePair>;

Result<dom::element> Parse(dom::parser& parser, std::string_view json) {
  dom::element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return InvalidArgument(std::string("not valid JSON: ") + simdjson::error_message(error));
  }
  return root;
}

// Tables have an entry for each id up to the largest. Vocabularies have gaps, but few.
constexpr int64_t kMostIdsPerToken = 64;
constexpr int64_t kIdsOfSmallOnes = 65536;

Result<Vocab> ReadVocab(dom::object object, const std::string& path) {
  Vocab vocab;
  const auto num_tokens = static_cast<int64_t>(object.size());
  const int64_t num_ids = kIdsOfSmallOnes + kMostIdsPerToken * num_tokens;
  for (const auto& [token, element] : object) {
    int64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS) {
      return InvalidArgument(path + "[\"" + std::string(token.substr(0, 100)) +
                             "\"]: must be an integer");
    }
    if (id >= num_ids && id <= kMaxTokenId)
      return InvalidArgument(path + "[\"" + std::string(token.substr(0, 100)) + "\"]: got id " +
                             std::to_string(id) + ", of " + std::to_string(num_tokens) +
                             " tokens ids are below " + std::to_string(num_ids));
    RETURN_IF_ERROR(vocab.Add(token, id));
  }
  return vocab;
}

std::optional<BpeModel::MergePair> SplitMerge(std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return BpeModel::MergePair(line.substr(0, blank), line.substr(blank + 1));
}

// ["a b", ...] or [["a", "b"], ...]; in the first form lines of a file header may be among them.
Result<Merges> ReadMerges(const JsonObject& json) {
  const std::string path = json.PathOf("merges");
  const auto element = json.Find("merges");
  dom::array array;
  if (!element || element->get(array) != simdjson::SUCCESS) {
    return InvalidArgument(path + ": must be an array");
  }
  Merges merges;
  merges.reserve(array.size());
  size_t i = 0;
  for (const dom::element item : array) {
    std::string_view line, left, right;
    dom::array pair;
    std::optional<BpeModel::MergePair> merge;
    if (item.get(line) == simdjson::SUCCESS) {
      if (line.starts_with("#version")) continue;
      merge = SplitMerge(line);
    } else if (item.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
               pair.at(0).get(left) == simdjson::SUCCESS &&
               pair.at(1).get(right) == simdjson::SUCCESS) {
      merge = {left, right};
    }
    if (!merge) {
      return InvalidArgument(path + "[" + std::to_string(i) +
                             "]: must be two tokens, as \"a b\" or [\"a\", \"b\"]");
    }
    merges.push_back(*merge);
    ++i;
  }
  return merges;
}

Status RefuseModelOptions(const JsonObject& json) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const auto value, json.OptionalString(key));
    if (value && !value->empty()) {
      return Unimplemented(json.PathOf(key) + ": \"" + std::string(value->substr(0, 100)) +
                           "\" is not supported, only none");
    }
  }
  if (const auto dropout = json.Find("dropout")) {
    double value = 0;
    if (dropout->get(value) != simdjson::SUCCESS) {
      return InvalidArgument(json.PathOf("dropout") + ": must be a number or null");
    }
    if (value != 0) {
      return Unimplemented(json.PathOf("dropout") + ": got " + std::to_string(value) +
                           "; random merges are not supported, set it to null");
    }
  }
  return Status::Ok();
}

// The files of GPT-2 of 2020 have no model.type: one with merges is BPE.
Status CheckModelKind(const JsonObject& json) {
  ASSIGN_OR_RETURN(const auto type, json.OptionalString("type"));
  if (type ? *type == "BPE" : json.Find("merges").has_value()) return Status::Ok();
  return Unimplemented(json.PathOf("type") + ": model \"" +
                       std::string(type ? type->substr(0, 100) : "without a type") +
                       "\" is not supported, only BPE");
}

Result<BpeModel> ReadModel(const JsonObject& json, bool pieces_are_bytes) {
  RETURN_IF_ERROR(CheckModelKind(json));
  RETURN_IF_ERROR(RefuseModelOptions(json));
  BpeConfig config{.pieces_are_bytes = pieces_are_bytes};
  ASSIGN_OR_RETURN(const auto unk_token, json.OptionalString("unk_token"));
  if (unk_token) config.unk_token = std::string(*unk_token);
  ASSIGN_OR_RETURN(config.fuse_unk, json.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(config.byte_fallback, json.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(config.ignore_merges, json.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(const JsonObject vocab_json, json.Object("vocab"));
  ASSIGN_OR_RETURN(Vocab vocab, ReadVocab(vocab_json.raw(), vocab_json.path()));
  ASSIGN_OR_RETURN(const Merges merges, ReadMerges(json));
  auto model = BpeModel::Create(std::move(vocab), merges, std::move(config));
  if (!model.ok()) return model.status().WithPrefix(json.path());
  return model;
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

Result<Merges> ReadMergesTxt(std::string_view text) {
  Merges merges;
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const auto merge = SplitMerge(line);
    if (!merge) {
      return InvalidArgument("merges.txt: line " + std::to_string(line_number) +
                             " must be two tokens with a blank between");
    }
    merges.push_back(*merge);
  }
  return merges;
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
  ASSIGN_OR_RETURN(BpeModel bpe, ReadModel(model, definition.pre_tokenizer.pieces_are_bytes()));
  definition.model = std::make_shared<BpeModel>(std::move(bpe));
  RETURN_IF_ERROR(ReadAddedTokens(root, definition));
  ASSIGN_OR_RETURN(const auto unk_token, model.OptionalString("unk_token"));
  if (unk_token) definition.unk_id = definition.Find(*unk_token);
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
