// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/read_model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/json_unigram.h"
#include "tokenizer/word_level.h"
#include "tokenizer/word_piece.h"

namespace inflight::tokenizer {
namespace {

namespace dom = simdjson::dom;

// Tables have an entry for each id up to the largest. Vocabularies have gaps, but few.
constexpr int64_t kMostIdsPerToken = 64;
constexpr int64_t kIdsOfSmallOnes = 65536;

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

Result<JsonModel> ReadBpe(const JsonObject& json, bool pieces_are_bytes) {
  RETURN_IF_ERROR(RefuseModelOptions(json));
  BpeConfig config{.pieces_are_bytes = pieces_are_bytes};
  ASSIGN_OR_RETURN(const auto unk_token, json.OptionalString("unk_token"));
  JsonModel read{.takes_bytes = pieces_are_bytes};
  if (unk_token) read.unk_token = config.unk_token = std::string(*unk_token);
  ASSIGN_OR_RETURN(config.fuse_unk, json.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(config.byte_fallback, json.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(config.ignore_merges, json.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(const JsonObject vocab_json, json.Object("vocab"));
  ASSIGN_OR_RETURN(Vocab vocab, ReadVocab(vocab_json.raw(), vocab_json.path()));
  ASSIGN_OR_RETURN(const Merges merges, ReadMerges(json));
  auto model = BpeModel::Create(std::move(vocab), merges, std::move(config));
  if (!model.ok()) return model.status().WithPrefix(json.path());
  read.model = std::make_shared<BpeModel>(*std::move(model));
  return read;
}

Result<JsonModel> ReadWordPiece(const JsonObject& json, bool) {
  WordPieceConfig config;
  ASSIGN_OR_RETURN(const std::string_view unk_token, json.String("unk_token"));
  config.unk_token = std::string(unk_token);
  ASSIGN_OR_RETURN(const std::string_view prefix, json.String("continuing_subword_prefix"));
  config.continuing_subword_prefix = std::string(prefix);
  ASSIGN_OR_RETURN(const int64_t max_chars,
                   json.Int("max_input_chars_per_word", 0, std::numeric_limits<int64_t>::max()));
  config.max_input_chars_per_word = static_cast<uint64_t>(max_chars);
  ASSIGN_OR_RETURN(const JsonObject vocab_json, json.Object("vocab"));
  ASSIGN_OR_RETURN(Vocab vocab, ReadVocab(vocab_json.raw(), vocab_json.path()));
  auto model = WordPieceModel::Create(std::move(vocab), std::move(config));
  if (!model.ok()) return model.status().WithPrefix(json.path());
  return JsonModel{.model = *std::move(model), .unk_token = std::string(unk_token)};
}

Result<JsonModel> ReadWordLevel(const JsonObject& json, bool) {
  ASSIGN_OR_RETURN(const std::string_view unk_token, json.String("unk_token"));
  ASSIGN_OR_RETURN(const JsonObject vocab_json, json.Object("vocab"));
  ASSIGN_OR_RETURN(Vocab vocab, ReadVocab(vocab_json.raw(), vocab_json.path()));
  return JsonModel{.model = std::make_shared<WordLevelModel>(std::move(vocab), unk_token),
                   .unk_token = std::string(unk_token)};
}

// [["<unk>", 0.0], ...], by id.
Result<std::vector<JsonUnigramModel::Piece>> ReadScoredPieces(const JsonObject& json) {
  ASSIGN_OR_RETURN(const dom::array array, json.Array("vocab"));
  std::vector<JsonUnigramModel::Piece> pieces;
  for (const dom::element item : array) {
    dom::array pair;
    JsonUnigramModel::Piece piece{};
    if (item.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(piece.text) != simdjson::SUCCESS ||
        pair.at(1).get(piece.score) != simdjson::SUCCESS) {
      return InvalidArgument(json.PathOf("vocab") + "[" + std::to_string(pieces.size()) +
                             "]: must be [token, score]");
    }
    pieces.push_back(piece);
  }
  return pieces;
}

Result<JsonModel> ReadUnigram(const JsonObject& json, bool) {
  ASSIGN_OR_RETURN(const auto pieces, ReadScoredPieces(json));
  JsonModel read;
  if (json.Find("unk_id")) {
    if (pieces.empty()) {
      return InvalidArgument(json.PathOf("unk_id") + ": the vocabulary is empty");
    }
    ASSIGN_OR_RETURN(const int64_t id,
                     json.Int("unk_id", 0, static_cast<int64_t>(pieces.size()) - 1));
    if (id <= kMaxTokenId) read.unk_id = static_cast<TokenId>(id);
  }
  ASSIGN_OR_RETURN(const bool byte_fallback, json.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(const bool fuse_unk, json.Bool("fuse_unk", true));
  if (!fuse_unk) {
    return Unimplemented(json.PathOf("fuse_unk") +
                         ": got false, supported is true: unknown characters in a row share a "
                         "token of a Unigram model");
  }
  auto model = JsonUnigramModel::Create(pieces, read.unk_id, byte_fallback);
  if (!model.ok()) return model.status().WithPrefix(json.path());
  read.model = *std::move(model);
  return read;
}

// A kind of model by its name in the file, its fields besides `type`, and what reads its object.
struct ModelKind {
  std::string_view name;
  std::array<std::string_view, 9> fields;
  Result<JsonModel> (*read)(const JsonObject& json, bool pieces_are_bytes);
};

constexpr ModelKind kModelKinds[] = {
    {"BPE",
     {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
      "byte_fallback", "ignore_merges", "vocab", "merges"},
     ReadBpe},
    {"Unigram", {"unk_id", "vocab", "byte_fallback", "fuse_unk"}, ReadUnigram},
    {"WordLevel", {"vocab", "unk_token"}, ReadWordLevel},
    {"WordPiece",
     {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"},
     ReadWordPiece}};

// Files of 2020 have no model.type: the fields tell the kind, in the order of the package.
std::string_view NameByFields(const JsonObject& json) {
  const auto vocab = json.Find("vocab");
  if (json.Find("merges")) return "BPE";
  if (vocab && vocab->is_array()) return "Unigram";
  if (!json.Find("unk_token")) return "without a type";
  const bool goes_on = json.Find("continuing_subword_prefix").has_value();
  return goes_on && json.Find("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

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

Result<JsonModel> ReadModel(const JsonObject& json, bool pieces_are_bytes) {
  ASSIGN_OR_RETURN(const auto type, json.OptionalString("type"));
  const std::string_view name = type ? *type : NameByFields(json);
  std::string names;
  for (const ModelKind& kind : kModelKinds) {
    if (name == kind.name) {
      RETURN_IF_ERROR(json.OnlyFields(kind.fields, "model " + std::string(kind.name)));
      return kind.read(json, pieces_are_bytes);
    }
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  return Unimplemented(json.PathOf("type") + ": model \"" + std::string(name.substr(0, 100)) +
                       "\" is not supported, only " + names);
}

}  // namespace inflight::tokenizer
