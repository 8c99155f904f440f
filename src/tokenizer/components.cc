// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/components.h"

#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/unicode.h"

namespace inflight::tokenizer {
namespace {

constexpr int kMaxNesting = 16;  // of Sequence within Sequence
constexpr size_t kMaxTemplateParts = 64;

Status UnknownKind(const JsonObject& json, std::string_view what, std::string_view type) {
  return Unimplemented(json.PathOf("type") + ": " + std::string(what) + " \"" +
                       std::string(type.substr(0, 100)) + "\" is not supported");
}

// Reads `json`, or each part of it if it is a Sequence, by `read_one(object, type, steps)`.
template <typename Step, typename ReadOne>
Status ReadSteps(const JsonObject& json, std::string_view list_key, const ReadOne& read_one,
                 std::vector<Step>& steps, int depth = 0) {
  if (depth > kMaxNesting) return InvalidArgument(json.path() + ": nested too deeply");
  ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  if (type != "Sequence") return read_one(json, type, steps);
  ASSIGN_OR_RETURN(const auto parts, json.Objects(list_key));
  for (const JsonObject& part : parts) {
    RETURN_IF_ERROR(ReadSteps(part, list_key, read_one, steps, depth + 1));
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

Status ReadNormalizerStep(const JsonObject& json, std::string_view type,
                          std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::kNfc},
                                                          {"NFD", Kind::kNfd},
                                                          {"NFKC", Kind::kNfkc},
                                                          {"NFKD", Kind::kNfkd},
                                                          {"Lowercase", Kind::kLowercase},
                                                          {"StripAccents", Kind::kStripAccents}};
  NormalizerStep step;
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    ASSIGN_OR_RETURN(step.content, json.String("prepend"));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
    ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
    ASSIGN_OR_RETURN(step.content, json.String("content"));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    ASSIGN_OR_RETURN(step.strip_left, json.Bool("strip_left"));
    ASSIGN_OR_RETURN(step.strip_right, json.Bool("strip_right"));
  } else {
    bool known = false;
    for (const auto& [name, kind] : kPlain) {
      if (type != name) continue;
      step.kind = kind;
      known = true;
    }
    if (!known) return UnknownKind(json, "normalizer", type);
  }
  steps.push_back(std::move(step));
  return Status::Ok();
}

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

Status ReadPreTokenizerStep(const JsonObject& json, std::string_view type,
                            std::vector<PreTokenizerStep>& steps) {
  using Kind = PreTokenizerStep::Kind;
  PreTokenizerStep step{.kind = Kind::kSplit};
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
    ASSIGN_OR_RETURN(step.add_prefix_space, json.Bool("add_prefix_space"));
    ASSIGN_OR_RETURN(const bool use_regex, json.Bool("use_regex", true));
    if (use_regex) step.pattern = SplitPattern::Gpt2();
  } else if (type == "Metaspace") {
    ASSIGN_OR_RETURN(step, ReadMetaspace(json));
  } else if (type == "Split") {
    ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
    ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
    ASSIGN_OR_RETURN(step.behavior, ReadBehavior(json));
    ASSIGN_OR_RETURN(step.invert, json.Bool("invert"));
  } else if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, json.Bool("individual_digits"));
    step.pattern = SplitPattern::CharClass(kNumber);
    step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Whitespace") {
    step.pattern = SplitPattern::WordRuns();
    step.invert = true;
    step.behavior = SplitBehavior::kRemoved;
  } else if (type == "WhitespaceSplit") {
    step.pattern = SplitPattern::CharClass(kSpace);
    step.behavior = SplitBehavior::kRemoved;
  } else {
    return UnknownKind(json, "pre-tokenizer", type);
  }
  steps.push_back(std::move(step));
  return Status::Ok();
}

Status ReadDecoderStep(const JsonObject& json, std::string_view type,
                       std::vector<DecoderStep>& steps) {
  using Kind = DecoderStep::Kind;
  DecoderStep step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    ASSIGN_OR_RETURN(const PreTokenizerStep metaspace, ReadMetaspace(json));
    step.content = metaspace.replacement;
    step.strips_first = metaspace.prepend_scheme != PrependScheme::kNever;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    ASSIGN_OR_RETURN(const PatternField pattern, ReadPattern(json));
    if (pattern.is_regex) {
      ASSIGN_OR_RETURN(step.pattern, Compile(json, pattern));
    } else {
      step.literal = pattern.text;
    }
    ASSIGN_OR_RETURN(step.content, json.String("content"));
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    ASSIGN_OR_RETURN(step.content, ReadCharacter(json, "content"));
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    ASSIGN_OR_RETURN(const int64_t start, json.Int("start", 0, kMax));
    ASSIGN_OR_RETURN(const int64_t stop, json.Int("stop", 0, kMax));
    step.start = static_cast<uint32_t>(start);
    step.stop = static_cast<uint32_t>(stop);
  } else {
    return UnknownKind(json, "decoder", type);
  }
  steps.push_back(std::move(step));
  return Status::Ok();
}

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

Result<std::vector<TemplatePart>> ReadTemplate(const JsonObject& json) {
  ASSIGN_OR_RETURN(const auto pieces, json.Objects("single"));
  if (pieces.size() > kMaxTemplateParts) {
    return InvalidArgument(json.PathOf("single") + ": got " + std::to_string(pieces.size()) +
                           " parts, allowed are " + std::to_string(kMaxTemplateParts));
  }
  std::vector<TemplatePart> parts;
  for (const JsonObject& piece : pieces) {
    ASSIGN_OR_RETURN(const auto sequence, piece.OptionalObject("Sequence"));
    TemplatePart part;
    if (sequence) {
      ASSIGN_OR_RETURN(const std::string_view id, sequence->String("id"));
      if (id != "A") return InvalidArgument(sequence->PathOf("id") + ": must be \"A\" in `single`");
      part.is_sequence = true;
    } else {
      ASSIGN_OR_RETURN(const JsonObject special, piece.Object("SpecialToken"));
      ASSIGN_OR_RETURN(const std::string_view id, special.String("id"));
      ASSIGN_OR_RETURN(part.ids, ReadTemplateIds(json, id));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

Result<std::vector<NormalizerStep>> ReadNormalizer(const JsonObject& json) {
  std::vector<NormalizerStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "normalizers", ReadNormalizerStep, steps));
  return steps;
}

Result<std::vector<PreTokenizerStep>> ReadPreTokenizer(const JsonObject& json) {
  std::vector<PreTokenizerStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "pretokenizers", ReadPreTokenizerStep, steps));
  return steps;
}

Result<std::vector<DecoderStep>> ReadDecoder(const JsonObject& json) {
  std::vector<DecoderStep> steps;
  RETURN_IF_ERROR(ReadSteps(json, "decoders", ReadDecoderStep, steps));
  return steps;
}

Result<std::vector<TemplatePart>> ReadPostProcessor(const JsonObject& json) {
  std::vector<std::vector<TemplatePart>> templates;
  const auto read_one = [](const JsonObject& one, std::string_view type,
                           std::vector<std::vector<TemplatePart>>& out) -> Status {
    if (type == "ByteLevel") return Status::Ok();  // trims offsets, which nobody asks for here
    if (type == "TemplateProcessing") {
      ASSIGN_OR_RETURN(auto parts, ReadTemplate(one));
      out.push_back(std::move(parts));
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      ASSIGN_OR_RETURN(const TokenId cls, ReadTokenAndId(one, "cls"));
      ASSIGN_OR_RETURN(const TokenId sep, ReadTokenAndId(one, "sep"));
      out.push_back({{.ids = {cls}}, {.is_sequence = true}, {.ids = {sep}}});
    } else {
      return UnknownKind(one, "post-processor", type);
    }
    return Status::Ok();
  };
  RETURN_IF_ERROR(ReadSteps(json, "processors", read_one, templates));
  if (templates.empty()) return std::vector<TemplatePart>{{.is_sequence = true}};
  if (templates.size() > 1) {
    return Unimplemented(json.path() + ": more than one post-processor that adds tokens");
  }
  return std::move(templates.front());
}

}  // namespace inflight::tokenizer
