// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/components.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "base/base64.h"
#include "base/status_macros.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr int kMaxNesting = 16;  // of Sequence within Sequence
constexpr size_t kMaxTemplateParts = 64;
constexpr size_t kMaxSequenceParts = 1024;  // of post-processors behind one another

using FieldNames = std::array<std::string_view, 5>;

// A pre-tokenizer, a decoder and a post-processor are called so.
constexpr FieldNames kByteLevelFields = {"add_prefix_space", "trim_offsets", "use_regex"};
constexpr FieldNames kMetaspaceFields = {"replacement", "add_prefix_space", "prepend_scheme",
                                         "str_rep", "split"};

// A kind of component by its name in the file, its fields besides `type`, and what reads its
// object. Fields that change nothing here are among them: those about offsets, which nobody asks
// for, and what older releases of the package wrote (str_rep).
template <typename Step>
struct KindReader {
  std::string_view name;
  FieldNames fields;
  Status (*read)(const JsonObject& json, std::vector<Step>& steps);
};

template <typename Step, size_t kNumKinds>
Status ReadByKind(const JsonObject& json, std::string_view what, std::string_view type,
                  const KindReader<Step> (&kinds)[kNumKinds], std::vector<Step>& steps) {
  std::string names;
  for (const KindReader<Step>& kind : kinds) {
    if (type == kind.name) {
      RETURN_IF_ERROR(json.OnlyFields(kind.fields, fmt::format("{} {}", what, kind.name)));
      return kind.read(json, steps);
    }
    names += std::string(kind.name) + ", ";
  }
  return Unimplemented(json.PathOf("type") + ": " + std::string(what) + " \"" +
                       std::string(type.substr(0, 100)) + "\" is not supported, only " + names +
                       "Sequence");
}

// Reads `json`, or each part of it if it is a Sequence.
template <typename Step, size_t kNumKinds>
Status ReadSteps(const JsonObject& json, std::string_view list_key, std::string_view what,
                 const KindReader<Step> (&kinds)[kNumKinds], std::vector<Step>& steps,
                 int depth = 0) {
  if (depth > kMaxNesting) return InvalidArgument(json.path() + ": nested too deeply");
  ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  if (type != "Sequence") return ReadByKind(json, what, type, kinds, steps);
  RETURN_IF_ERROR(json.OnlyFields({&list_key, 1}, fmt::format("{} Sequence", what)));
  ASSIGN_OR_RETURN(const auto parts, json.Objects(list_key));
  for (const JsonObject& part : parts) {
    RETURN_IF_ERROR(ReadSteps(part, list_key, what, kinds, steps, depth + 1));
  }
  return Status::Ok();
}

// {"String": "x"} or {"Regex": "x"}.
struct PatternField {
  bool is_regex;
  std::string text;
};
Result<PatternField> ReadPattern(const JsonObject& json) {
  ASSIGN_OR_RETURN(const JsonObject pattern, json.Object("pattern"));
  ASSIGN_OR_RETURN(const auto literal, pattern.OptionalString("String"));
  ASSIGN_OR_RETURN(const auto regex, pattern.OptionalString("Regex"));
  if (literal.has_value() == regex.has_value()) {
    return InvalidArgument(pattern.path() + ": must have one of String and Regex");
  }
  const std::string_view text = literal ? *literal : *regex;
  if (text.empty()) return Unimplemented(pattern.path() + ": the empty pattern is not supported");
  return PatternField{regex.has_value(), std::string(text)};
}

Result<std::shared_ptr<const SplitPattern>> Compile(const JsonObject& json,
                                                    const PatternField& pattern) {
  if (!pattern.is_regex) return SplitPattern::Literal(pattern.text);
  auto compiled = SplitPattern::Regex(pattern.text);
  if (!compiled.ok()) return compiled.status().WithPrefix(json.path());
  return compiled;
}

// A string that is one character.
Result<std::string> ReadCharacter(const JsonObject& json, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string_view text, json.String(key));
  if (text.empty() || CharAt(text.data()).size != text.size()) {
    return InvalidArgument(json.PathOf(key) + ": must be one character");
  }
  return std::string(text);
}

template <NormalizerStep::Kind kKind>
Status ReadPlainNormalizer(const JsonObject&, std::vector<NormalizerStep>& steps) {
  steps.push_back({.kind = kKind});
  return Status::Ok();
}

Status ReadPrepend(const JsonObject& json, std::vector<NormalizerStep>& steps) {
  NormalizerStep step{.kind = NormalizerStep::Kind::kPrepend};
  ASSIGN_OR_RETURN(step.content, json.String("prepend"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadReplaceNormalizer(const JsonObject& json, std::vector<NormalizerStep>& steps) {
  NormalizerStep step{.kind = NormalizerStep::Kind::kReplace};
  ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
  ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
  ASSIGN_OR_RETURN(step.content, json.String("content"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadStripNormalizer(const JsonObject& json, std::vector<NormalizerStep>& steps) {
  NormalizerStep step{.kind = NormalizerStep::Kind::kStrip};
  ASSIGN_OR_RETURN(step.strip_left, json.Bool("strip_left"));
  ASSIGN_OR_RETURN(step.strip_right, json.Bool("strip_right"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadBertNormalizer(const JsonObject& json, std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  ASSIGN_OR_RETURN(const bool clean_text, json.Bool("clean_text"));
  ASSIGN_OR_RETURN(const bool handle_chinese_chars, json.Bool("handle_chinese_chars"));
  ASSIGN_OR_RETURN(const bool lowercase, json.Bool("lowercase"));
  ASSIGN_OR_RETURN(const bool strip_accents, json.Bool("strip_accents", lowercase));
  if (clean_text) steps.push_back({.kind = Kind::kCleanText});
  if (handle_chinese_chars) steps.push_back({.kind = Kind::kSpaceIdeographs});
  if (strip_accents) {
    steps.push_back({.kind = Kind::kNfd});
    steps.push_back({.kind = Kind::kStripNonspacing});
  }
  if (lowercase) steps.push_back({.kind = Kind::kLowercase});
  return Status::Ok();
}

Status ReadPrecompiled(const JsonObject& json, std::vector<NormalizerStep>& steps) {
  constexpr std::string_view kKey = "precompiled_charsmap";
  ASSIGN_OR_RETURN(const std::string_view text, json.String(kKey));
  const auto file = DecodeBase64(text);
  if (!file) return InvalidArgument(json.PathOf(kKey) + ": must be base64");
  auto charsmap = Charsmap::Parse(*file);
  if (!charsmap.ok()) return charsmap.status().WithPrefix(json.PathOf(kKey));
  steps.push_back({.kind = NormalizerStep::Kind::kPrecompiled,
                   .charsmap = std::make_shared<Charsmap>(*std::move(charsmap))});
  return Status::Ok();
}

constexpr KindReader<NormalizerStep> kNormalizers[] = {
    {"BertNormalizer",
     {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
     ReadBertNormalizer},
    {"ByteLevel", {}, ReadPlainNormalizer<NormalizerStep::Kind::kByteLevel>},
    {"Lowercase", {}, ReadPlainNormalizer<NormalizerStep::Kind::kLowercase>},
    {"NFC", {}, ReadPlainNormalizer<NormalizerStep::Kind::kNfc>},
    {"NFD", {}, ReadPlainNormalizer<NormalizerStep::Kind::kNfd>},
    {"NFKC", {}, ReadPlainNormalizer<NormalizerStep::Kind::kNfkc>},
    {"NFKD", {}, ReadPlainNormalizer<NormalizerStep::Kind::kNfkd>},
    {"Nmt", {}, ReadPlainNormalizer<NormalizerStep::Kind::kNmt>},
    {"Precompiled", {"precompiled_charsmap"}, ReadPrecompiled},
    {"Prepend", {"prepend"}, ReadPrepend},
    {"Replace", {"pattern", "content"}, ReadReplaceNormalizer},
    {"Strip", {"strip_left", "strip_right"}, ReadStripNormalizer},
    {"StripAccents", {}, ReadPlainNormalizer<NormalizerStep::Kind::kStripAccents>}};

Result<PreTokenizerStep> ReadMetaspace(const JsonObject& json) {
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kMetaspace};
  ASSIGN_OR_RETURN(step.replacement, ReadCharacter(json, "replacement"));
  ASSIGN_OR_RETURN(const auto scheme, json.OptionalString("prepend_scheme"));
  if (scheme && *scheme != "always" && *scheme != "first" && *scheme != "never") {
    return InvalidArgument(json.PathOf("prepend_scheme") + ": got \"" +
                           std::string(scheme->substr(0, 100)) +
                           "\", allowed are always, first, never");
  }
  step.prepend_scheme = !scheme || *scheme == "always" ? PrependScheme::kAlways
                        : *scheme == "first"           ? PrependScheme::kFirst
                                                       : PrependScheme::kNever;
  // The older form of "never" is add_prefix_space: false.
  ASSIGN_OR_RETURN(const bool add_prefix_space, json.Bool("add_prefix_space", true));
  if (!add_prefix_space) {
    if (scheme != std::optional<std::string_view>("never")) {
      return InvalidArgument(json.PathOf("add_prefix_space") +
                             ": false contradicts prepend_scheme, which must be \"never\" then");
    }
    step.prepend_scheme = PrependScheme::kNever;
  }
  ASSIGN_OR_RETURN(step.split, json.Bool("split", true));
  step.behavior = SplitBehavior::kMergedWithNext;
  step.pattern = SplitPattern::Literal(step.replacement);
  return step;
}

Result<SplitBehavior> ReadBehavior(const JsonObject& json) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  ASSIGN_OR_RETURN(const std::string_view name, json.String("behavior"));
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return InvalidArgument(json.PathOf("behavior") + ": got \"" + std::string(name.substr(0, 100)) +
                         "\", allowed are Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                         "Contiguous");
}

// Splits at each character with any of `flags` (CharFlag).
PreTokenizerStep SplitAt(uint8_t flags, SplitBehavior behavior) {
  return {.kind = PreTokenizerStep::Kind::kSplit,
          .pattern = SplitPattern::CharClass(flags),
          .behavior = behavior};
}

Status ReadByteLevel(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kByteLevel};
  ASSIGN_OR_RETURN(step.add_prefix_space, json.Bool("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool use_regex, json.Bool("use_regex", true));
  if (use_regex) step.pattern = SplitPattern::Gpt2();
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadMetaspaceStep(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(PreTokenizerStep step, ReadMetaspace(json));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadSplit(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kSplit};
  ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
  ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
  ASSIGN_OR_RETURN(step.behavior, ReadBehavior(json));
  ASSIGN_OR_RETURN(step.invert, json.Bool("invert"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadDigits(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(const bool individual, json.Bool("individual_digits"));
  steps.push_back(
      SplitAt(kNumber, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  return Status::Ok();
}

Status ReadPunctuation(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (json.Find("behavior")) {
    ASSIGN_OR_RETURN(behavior, ReadBehavior(json));
  }
  steps.push_back(SplitAt(kPunctuation, behavior));
  return Status::Ok();
}

Status ReadBertPreTokenizer(const JsonObject&, std::vector<PreTokenizerStep>& steps) {
  steps.push_back(SplitAt(kSpace, SplitBehavior::kRemoved));
  steps.push_back(SplitAt(kPunctuation, SplitBehavior::kIsolated));
  return Status::Ok();
}

Status ReadCharDelimiterSplit(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(std::string delimiter, ReadCharacter(json, "delimiter"));
  steps.push_back({.kind = PreTokenizerStep::Kind::kSplit,
                   .pattern = SplitPattern::Literal(std::move(delimiter)),
                   .behavior = SplitBehavior::kRemoved});
  return Status::Ok();
}

Status ReadWhitespace(const JsonObject&, std::vector<PreTokenizerStep>& steps) {
  steps.push_back({.kind = PreTokenizerStep::Kind::kSplit,
                   .pattern = SplitPattern::WordRuns(),
                   .behavior = SplitBehavior::kRemoved,
                   .invert = true});
  return Status::Ok();
}

Status ReadWhitespaceSplit(const JsonObject&, std::vector<PreTokenizerStep>& steps) {
  steps.push_back(SplitAt(kSpace, SplitBehavior::kRemoved));
  return Status::Ok();
}

Status ReadUnicodeScripts(const JsonObject&, std::vector<PreTokenizerStep>& steps) {
  steps.push_back({.kind = PreTokenizerStep::Kind::kSplit,
                   .pattern = SplitPattern::Scripts(),
                   .behavior = SplitBehavior::kRemoved});
  return Status::Ok();
}

Status ReadFixedLength(const JsonObject& json, std::vector<PreTokenizerStep>& steps) {
  int64_t length = 5;
  if (json.Find("length")) {
    ASSIGN_OR_RETURN(length, json.Int("length", 1, std::numeric_limits<int32_t>::max()));
  }
  steps.push_back({.kind = PreTokenizerStep::Kind::kSplit,
                   .pattern = SplitPattern::EveryCharacters(static_cast<size_t>(length)),
                   .behavior = SplitBehavior::kIsolated});
  return Status::Ok();
}

constexpr KindReader<PreTokenizerStep> kPreTokenizers[] = {
    {"BertPreTokenizer", {}, ReadBertPreTokenizer},
    {"ByteLevel", kByteLevelFields, ReadByteLevel},
    {"CharDelimiterSplit", {"delimiter"}, ReadCharDelimiterSplit},
    {"Digits", {"individual_digits"}, ReadDigits},
    {"FixedLength", {"length"}, ReadFixedLength},
    {"Metaspace", kMetaspaceFields, ReadMetaspaceStep},
    {"Punctuation", {"behavior"}, ReadPunctuation},
    {"Split", {"pattern", "behavior", "invert"}, ReadSplit},
    {"UnicodeScripts", {}, ReadUnicodeScripts},
    {"Whitespace", {}, ReadWhitespace},
    {"WhitespaceSplit", {}, ReadWhitespaceSplit}};

template <DecoderStep::Kind kKind>
Status ReadPlainDecoder(const JsonObject&, std::vector<DecoderStep>& steps) {
  steps.push_back({.kind = kKind});
  return Status::Ok();
}

Status ReadMetaspaceDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  ASSIGN_OR_RETURN(const PreTokenizerStep metaspace, ReadMetaspace(json));
  steps.push_back({.kind = DecoderStep::Kind::kMetaspace,
                   .content = metaspace.replacement,
                   .strips_first = metaspace.prepend_scheme != PrependScheme::kNever});
  return Status::Ok();
}

Status ReadReplaceDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  DecoderStep step{.kind = DecoderStep::Kind::kReplace};
  ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
  if (pattern.is_regex) {
    ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
  } else {
    step.literal = pattern.text;
  }
  ASSIGN_OR_RETURN(step.content, json.String("content"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadStripDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  DecoderStep step{.kind = DecoderStep::Kind::kStrip};
  ASSIGN_OR_RETURN(step.content, ReadCharacter(json, "content"));
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(const int64_t start, json.Int("start", 0, kMax));
  ASSIGN_OR_RETURN(const int64_t stop, json.Int("stop", 0, kMax));
  step.start = static_cast<uint32_t>(start);
  step.stop = static_cast<uint32_t>(stop);
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadWordPieceDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  DecoderStep step{.kind = DecoderStep::Kind::kWordPiece};
  ASSIGN_OR_RETURN(step.content, json.String("prefix"));
  ASSIGN_OR_RETURN(step.cleans_up, json.Bool("cleanup"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadBpeDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  DecoderStep step{.kind = DecoderStep::Kind::kSuffix};
  ASSIGN_OR_RETURN(step.content, json.String("suffix"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadCtcDecoder(const JsonObject& json, std::vector<DecoderStep>& steps) {
  DecoderStep step{.kind = DecoderStep::Kind::kCtc};
  ASSIGN_OR_RETURN(step.content, json.String("pad_token"));
  ASSIGN_OR_RETURN(step.delimiter, json.String("word_delimiter_token"));
  ASSIGN_OR_RETURN(step.cleans_up, json.Bool("cleanup"));
  steps.push_back(std::move(step));
  return Status::Ok();
}

constexpr KindReader<DecoderStep> kDecoders[] = {
    {"BPEDecoder", {"suffix"}, ReadBpeDecoder},
    {"ByteFallback", {}, ReadPlainDecoder<DecoderStep::Kind::kByteFallback>},
    {"ByteLevel", kByteLevelFields, ReadPlainDecoder<DecoderStep::Kind::kByteLevel>},
    {"CTC", {"pad_token", "word_delimiter_token", "cleanup"}, ReadCtcDecoder},
    {"Fuse", {}, ReadPlainDecoder<DecoderStep::Kind::kFuse>},
    {"Metaspace", kMetaspaceFields, ReadMetaspaceDecoder},
    {"Replace", {"pattern", "content"}, ReadReplaceDecoder},
    {"Strip", {"content", "start", "stop"}, ReadStripDecoder},
    {"WordPiece", {"prefix", "cleanup"}, ReadWordPieceDecoder}};

// ["</s>", 2]
Result<TokenId> ReadTokenAndId(const JsonObject& json, std::string_view key) {
  simdjson::dom::array pair;
  int64_t id = 0;
  const auto element = json.Find(key);
  if (!element || element->get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      !pair.at(0).is_string() || pair.at(1).get(id) != simdjson::SUCCESS || id < 0 ||
      id > kMaxTokenId) {
    return InvalidArgument(json.PathOf(key) + ": must be [token, id]");
  }
  return static_cast<TokenId>(id);
}

Result<std::vector<TokenId>> ReadTemplateIds(const JsonObject& json, std::string_view name) {
  ASSIGN_OR_RETURN(const JsonObject tokens, json.Object("special_tokens"));
  ASSIGN_OR_RETURN(const JsonObject token, tokens.Object(name));
  simdjson::dom::array array;
  const auto element = token.Find("ids");
  const Status wrong = InvalidArgument(token.PathOf("ids") + ": must be an array of ids up to " +
                                       std::to_string(kMaxTokenId));
  if (!element || element->get(array) != simdjson::SUCCESS) return wrong;
  std::vector<TokenId> ids;
  for (const simdjson::dom::element item : array) {
    int64_t id = 0;
    if (item.get(id) != simdjson::SUCCESS || id < 0 || id > kMaxTokenId) return wrong;
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

using Template = std::vector<TemplatePart>;

// The parts of `single` or `pair`: of a sequence the ids of the one that is meant, of what
// `sequences` has; special tokens only where `adds_tokens`.
Result<std::vector<Template>> ReadTemplate(const JsonObject& json, std::string_view key,
                                           const std::vector<Template>& sequences,
                                           bool adds_tokens) {
  ASSIGN_OR_RETURN(const auto pieces, json.Objects(key));
  if (pieces.size() > kMaxTemplateParts) {
    return InvalidArgument(json.PathOf(key) + ": got " + std::to_string(pieces.size()) +
                           " parts, allowed are " + std::to_string(kMaxTemplateParts));
  }
  std::vector<Template> parts;
  for (const JsonObject& piece : pieces) {
    ASSIGN_OR_RETURN(const auto sequence, piece.OptionalObject("Sequence"));
    if (sequence) {
      ASSIGN_OR_RETURN(const std::string_view id, sequence->String("id"));
      const bool is_first = id == "A";
      if (!is_first && (id != "B" || key == "single")) {
        return InvalidArgument(sequence->PathOf("id") + ": must be \"A\"" +
                               (key == "single" ? "" : " or \"B\"") + " in `" + std::string(key) +
                               "`");
      }
      parts.push_back(sequences[is_first ? 0 : 1]);
    } else {
      ASSIGN_OR_RETURN(const JsonObject special, piece.Object("SpecialToken"));
      ASSIGN_OR_RETURN(const std::string_view id, special.String("id"));
      ASSIGN_OR_RETURN(auto ids, ReadTemplateIds(json, id));
      if (adds_tokens) parts.push_back({{.ids = std::move(ids)}});
    }
  }
  return parts;
}

// A post-processor makes parts of parts: in front of the first there is one, the text's ids. A
// Sequence hands on those of each to the next, and the ids of all of the last are the result.
using PostProcessor = std::function<Result<std::vector<Template>>(
    const std::vector<Template>& parts, bool adds_tokens)>;

const std::vector<Template> kOneText = {{{.is_sequence = true}}};

// Trims offsets, which nobody asks for here.
Status ReadOffsetTrimmer(const JsonObject&, std::vector<PostProcessor>&) { return Status::Ok(); }

// One part is a text, two are a pair of texts.
Status ReadTemplateProcessing(const JsonObject& json, std::vector<PostProcessor>& steps) {
  RETURN_IF_ERROR(ReadTemplate(json, "single", kOneText, true).status());
  steps.push_back([json](const std::vector<Template>& parts,
                         bool adds_tokens) -> Result<std::vector<Template>> {
    if (parts.size() == 1) return ReadTemplate(json, "single", parts, adds_tokens);
    if (parts.size() == 2) return ReadTemplate(json, "pair", parts, adds_tokens);
    return Unimplemented(json.path() + ": stands behind a post-processor that makes " +
                         std::to_string(parts.size()) + " parts, 1 or 2 are supported");
  });
  return Status::Ok();
}

// BertProcessing, and RobertaProcessing whose other fields are about offsets. Behind the first part
// stands one more token of the latter.
template <bool kIsRoberta>
Status ReadClsAndSep(const JsonObject& json, std::vector<PostProcessor>& steps) {
  ASSIGN_OR_RETURN(const TokenId cls, ReadTokenAndId(json, "cls"));
  ASSIGN_OR_RETURN(const TokenId sep, ReadTokenAndId(json, "sep"));
  steps.push_back([cls, sep](const std::vector<Template>& parts,
                             bool adds_tokens) -> Result<std::vector<Template>> {
    if (!adds_tokens) return parts;
    std::vector<Template> out;
    for (const Template& part : parts) {
      Template& around = out.emplace_back();
      if (out.size() == 1) around.push_back({.ids = {cls}});
      if (out.size() > 1 && kIsRoberta) around.push_back({.ids = {sep}});
      around.insert(around.end(), part.begin(), part.end());
      around.push_back({.ids = {sep}});
    }
    return out;
  });
  return Status::Ok();
}

constexpr KindReader<PostProcessor> kPostProcessors[] = {
    {"BertProcessing", {"sep", "cls"}, ReadClsAndSep<false>},
    {"ByteLevel", kByteLevelFields, ReadOffsetTrimmer},
    {"RobertaProcessing", {"sep", "cls", "trim_offsets", "add_prefix_space"}, ReadClsAndSep<true>},
    {"TemplateProcessing", {"single", "pair", "special_tokens"}, ReadTemplateProcessing}};

// What the steps make of a text, in one list.
Result<Template> Compose(const JsonObject& json, const std::vector<PostProcessor>& steps,
                         bool adds_tokens) {
  std::vector<Template> parts = kOneText;
  for (const PostProcessor& step : steps) {
    ASSIGN_OR_RETURN(parts, step(parts, adds_tokens));
    size_t size = 0;
    for (const Template& part : parts) size += part.size();
    if (size > kMaxSequenceParts) {
      return InvalidArgument(json.path() + ": makes more than " +
                             std::to_string(kMaxSequenceParts) + " parts of a text");
    }
  }
  Template all;
  for (const Template& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

Result<std::vector<NormalizerStep>> ReadNormalizer(const JsonObject& json) {
  std::vector<NormalizerStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "normalizers", "normalizer", kNormalizers, steps));
  return steps;
}

Result<std::vector<PreTokenizerStep>> ReadPreTokenizer(const JsonObject& json) {
  std::vector<PreTokenizerStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "pretokenizers", "pre-tokenizer", kPreTokenizers, steps));
  return steps;
}

Result<std::vector<DecoderStep>> ReadDecoder(const JsonObject& json) {
  std::vector<DecoderStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "decoders", "decoder", kDecoders, steps));
  return steps;
}

Result<std::vector<TemplatePart>> ReadPostProcessor(const JsonObject& json) {
  std::vector<PostProcessor> steps;
  RETURN_IF_ERROR(ReadSteps(json, "processors", "post-processor", kPostProcessors, steps));
  ASSIGN_OR_RETURN(Template parts, Compose(json, steps, /*adds_tokens=*/true));
  ASSIGN_OR_RETURN(const Template plain, Compose(json, steps, /*adds_tokens=*/false));
  if (std::ranges::count(parts, true, &TemplatePart::is_sequence) !=
      static_cast<ptrdiff_t>(plain.size())) {
    return Unimplemented(json.path() +
                         ": a text stands in the result more or less often with special tokens "
                         "than without; only the same number is supported");
  }
  return parts;
}

}  // namespace inflight::tokenizer
