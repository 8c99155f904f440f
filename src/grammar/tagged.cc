// SPDX-License-Identifier: Apache-2.0
// Sections between tags, each with the value of a schema or another guided text, such as the calls
// of tools that an answer must have, or may have (docs/reference/structured-output.md, "Tagged").
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/translate.h"

namespace inflight::grammar {
namespace {

constexpr size_t kMaxTags = 1024;
constexpr uint32_t kMaxSections = 1024;
constexpr size_t kMaxFreeTexts = 16;        // that free text ends before, or does not have
constexpr size_t kMaxFreeTextBytes = 1024;  // of each

struct Tag {
  std::string begin;
  std::string end;
  // What stands between: none: any text before `end`.
  std::optional<json::Value> schema;
  std::optional<json::Value> choice;
  std::optional<std::string> regex;
  std::optional<std::string> grammar;
  std::set<std::string, std::less<>> texts;

  int num_guides() const {
    return int{schema.has_value()} + int{choice.has_value()} + int{regex.has_value()} +
           int{grammar.has_value()};
  }
};

struct Tagged {
  std::string before;
  std::vector<Tag> tags;
  uint32_t min = 1;
  uint32_t max = kUnlimited;
  std::string between;
  std::string after;
  ArgumentStyle style;  // of values
  std::string trigger;
  bool once = false;
  std::vector<std::pair<std::string, std::string>> preambles;  // begin, end
  std::string otherwise;
  std::optional<std::string> instead;
  std::optional<Tag> answer;
  std::vector<std::string> never;
};

Status Refused(std::string_view member, std::string_view what) {
  return InvalidArgument(fmt::format("tagged: {}: {}", member, what));
}

Result<std::string> TextOrNone(std::string_view member, const std::optional<json::Value>& value) {
  if (!value) return std::string();
  auto text = value->AsString();
  if (!text.ok()) return Refused(member, "must be a string");
  return text;
}

Status CheckMembers(const json::Value& object, std::span<const std::string_view> known) {
  return object.ForEachMember([&](std::string_view name, const json::Value&) {
    for (const std::string_view one : known) {
      if (one == name) return Status::Ok();
    }
    return Refused(name, fmt::format("is not supported; supported are {}", fmt::join(known, ", ")));
  });
}

Status CheckFreeText(std::string_view member, std::string_view text) {
  if (!text.empty() && text.size() <= kMaxFreeTextBytes) return Status::Ok();
  return Refused(member, fmt::format("must have 1 to {} bytes", kMaxFreeTextBytes));
}

Result<std::vector<std::string>> ReadTexts(std::string_view member,
                                           const std::optional<json::Value>& value, size_t max) {
  std::vector<std::string> texts;
  if (!value) return texts;
  if (value->kind() != json::Value::Kind::kArray) return Refused(member, "must be an array");
  RETURN_IF_ERROR(value->ForEachElement([&](const json::Value& element) {
    auto text = element.AsString();
    if (!text.ok()) return Refused(member, "must be strings");
    if (texts.size() == max)
      return Refused(member, fmt::format("more than {} are not supported", max));
    texts.push_back(*std::move(text));
    return Status::Ok();
  }));
  return texts;
}

Result<Tag> ReadTag(std::string_view member, const json::Value& value) {
  constexpr std::array<std::string_view, 7> kMembers = {"begin", "end",    "schema", "texts",
                                                        "regex", "choice", "grammar"};
  if (value.kind() != json::Value::Kind::kObject) return Refused(member, "must be objects");
  RETURN_IF_ERROR(CheckMembers(value, kMembers));
  const auto [begin, end, schema, texts, regex, choice, gbnf] = value.Pick(kMembers);
  if (!begin || !end) return Refused(member, "each must have begin and end");
  Tag tag{.schema = schema, .choice = choice};
  ASSIGN_OR_RETURN(tag.begin, TextOrNone("begin", begin));
  ASSIGN_OR_RETURN(tag.end, TextOrNone("end", end));
  if (regex) {
    ASSIGN_OR_RETURN(tag.regex, TextOrNone("regex", regex));
  }
  if (gbnf) {
    ASSIGN_OR_RETURN(tag.grammar, TextOrNone("grammar", gbnf));
  }
  if (tag.num_guides() > 1)
    return Refused(member, "each may have one of schema, regex, choice and grammar");
  if (tag.num_guides() == 0) RETURN_IF_ERROR(CheckFreeText("end", tag.end));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ReadTexts("texts", texts, kMaxTags));
  tag.texts.insert(names.begin(), names.end());
  return tag;
}

Result<std::pair<std::string, std::string>> ReadPreamble(const json::Value& value) {
  constexpr std::array<std::string_view, 2> kMembers = {"begin", "end"};
  if (value.kind() != json::Value::Kind::kObject) return Refused("preambles", "must be objects");
  RETURN_IF_ERROR(CheckMembers(value, kMembers));
  const auto [begin, end] = value.Pick(kMembers);
  ASSIGN_OR_RETURN(std::string begin_text, TextOrNone("begin", begin));
  ASSIGN_OR_RETURN(std::string end_text, TextOrNone("end", end));
  if (begin_text.empty() || end_text.empty())
    return Refused("preambles", "each must have begin and end");
  return std::pair(std::move(begin_text), std::move(end_text));
}

Result<uint32_t> CountOr(std::string_view member, const std::optional<json::Value>& value,
                         uint32_t otherwise) {
  if (!value) return otherwise;
  const auto count = value->AsUint();
  if (!count.ok() || *count > kMaxSections) {
    return Refused(member, fmt::format("must be an integer from 0 to {}", kMaxSections));
  }
  return static_cast<uint32_t>(*count);
}

// What may stand around sections, or in their place.
Status ReadFreeParts(const json::Value& guide, Tagged& tagged) {
  constexpr std::array<std::string_view, 7> kMembers = {
      "trigger", "once", "preambles", "otherwise", "instead", "answer", "never"};
  const auto [trigger, once, preambles, otherwise, instead, answer, never] = guide.Pick(kMembers);
  ASSIGN_OR_RETURN(tagged.trigger, TextOrNone("trigger", trigger));
  if (trigger) RETURN_IF_ERROR(CheckFreeText("trigger", tagged.trigger));
  if (once) {
    if (once->kind() != json::Value::Kind::kBool || !trigger)
      return Refused("once", "must be true or false, beside a trigger");
    tagged.once = once->text() == "true";
  }
  ASSIGN_OR_RETURN(tagged.otherwise, TextOrNone("otherwise", otherwise));
  if (instead) {
    ASSIGN_OR_RETURN(tagged.instead, TextOrNone("instead", instead));
  }
  if (answer) {
    ASSIGN_OR_RETURN(tagged.answer, ReadTag("answer", *answer));
    if (tagged.answer->num_guides() == 0)
      return Refused("answer", "must have one of schema, regex, choice and grammar");
  }
  ASSIGN_OR_RETURN(tagged.never, ReadTexts("never", never, kMaxFreeTexts));
  for (const std::string& one : tagged.never) RETURN_IF_ERROR(CheckFreeText("never", one));
  if (!preambles) return Status::Ok();
  if (preambles->kind() != json::Value::Kind::kArray)
    return Refused("preambles", "must be an array");
  return preambles->ForEachElement([&](const json::Value& value) {
    if (tagged.preambles.size() == kMaxFreeTexts)
      return Refused("preambles", fmt::format("more than {} are not supported", kMaxFreeTexts));
    ASSIGN_OR_RETURN(auto preamble, ReadPreamble(value));
    tagged.preambles.push_back(std::move(preamble));
    return Status::Ok();
  });
}

Result<Tagged> ReadTagged(std::string_view text) {
  constexpr std::array<std::string_view, 14> kMembers = {
      "tags",    "min",  "max",       "between",   "before",  "after",  "arguments",
      "trigger", "once", "preambles", "otherwise", "instead", "answer", "never"};
  const auto parsed = json::Value::Parse(text);
  if (!parsed.ok()) return InvalidArgument("tagged", parsed.status().message());
  if (parsed->kind() != json::Value::Kind::kObject)
    return InvalidArgument("tagged", "must be a JSON object");
  RETURN_IF_ERROR(CheckMembers(*parsed, kMembers));
  constexpr std::array<std::string_view, 7> kSections = {"tags",   "min",   "max",      "between",
                                                         "before", "after", "arguments"};
  const auto [tags, min, max, between, before, after, arguments] = parsed->Pick(kSections);
  if (!tags || tags->kind() != json::Value::Kind::kArray)
    return Refused("tags", "must be an array of tags");
  Tagged tagged;
  RETURN_IF_ERROR(tags->ForEachElement([&](const json::Value& value) {
    if (tagged.tags.size() == kMaxTags)
      return Refused("tags", fmt::format("more than {} are not supported", kMaxTags));
    ASSIGN_OR_RETURN(Tag tag, ReadTag("tags", value));
    tagged.tags.push_back(std::move(tag));
    return Status::Ok();
  }));
  ASSIGN_OR_RETURN(tagged.min, CountOr("min", min, 1));
  ASSIGN_OR_RETURN(tagged.max, CountOr("max", max, kUnlimited));
  if (tagged.min > tagged.max) return Refused("min", "is above max");
  if (tagged.tags.empty() && tagged.min > 0) return Refused("tags", "must have one at least");
  ASSIGN_OR_RETURN(tagged.between, TextOrNone("between", between));
  ASSIGN_OR_RETURN(tagged.before, TextOrNone("before", before));
  ASSIGN_OR_RETURN(tagged.after, TextOrNone("after", after));
  if (arguments) {
    ASSIGN_OR_RETURN(const std::string style, TextOrNone("arguments", arguments));
    auto named = ArgumentStyleNamed(style);
    if (!named.ok()) return named.status().WithPrefix("tagged: arguments");
    tagged.style = *std::move(named);
  }
  RETURN_IF_ERROR(ReadFreeParts(*parsed, tagged));
  return tagged;
}

// Any text with none of `never`.
Result<Dfa> FreeText(Dfa free, const std::vector<std::string>& never, Budget& budget) {
  for (const std::string& text : never) {
    ASSIGN_OR_RETURN(free, Intersect(free, DfaWithout(text), budget));
  }
  return free;
}

Result<Dfa> DfaOfRule(Grammar& grammar, NodeId body, Budget& budget) {
  const RuleId rule = grammar.AddRule("free text", body);
  ASSIGN_OR_RETURN(const Nfa nfa, MakeNfa(grammar, rule, budget));
  return Determinize(nfa, budget);
}

Result<Dfa> AnyText(Budget& budget) {
  Grammar grammar;
  return DfaOfRule(grammar, grammar.Repeat(grammar.Chars(CharSet::Any()), 0, kUnlimited), budget);
}

// Whole texts that stand in place of all sections.
Result<NodeId> InsteadOf(const Tagged& tagged, NodeId sections, Grammar& grammar, Budget& budget) {
  if (!tagged.instead) return sections;
  Grammar alone;
  const auto body = TranslateRegex(*tagged.instead, alone);
  if (!body.ok()) return body.status().WithPrefix("tagged: instead");
  ASSIGN_OR_RETURN(Dfa texts, DfaOfRule(alone, *body, budget));
  ASSIGN_OR_RETURN(texts, FreeText(std::move(texts), tagged.never, budget));
  const RuleId rule =
      grammar.AddRule("text in place of sections", std::make_shared<const Dfa>(std::move(texts)));
  return grammar.Choice({sections, grammar.Call(rule)});
}

// `up_to` are texts up to a trigger. Any text in which a text of the rule stands behind each
// trigger; behind the first the text ends where it is the only one.
Dfa Triggered(const Dfa& up_to, RuleId rule, bool once) {
  Dfa dfa;
  dfa.edges = up_to.edges;
  const uint32_t num_states = up_to.num_states();
  for (uint32_t s = 0; s < num_states; ++s) {
    const Dfa::State& state = up_to.states[s];
    // Where no byte leads on, the text has a trigger, or one that free text does not have.
    const bool goes_on = state.first_edge < up_to.states[s + 1].first_edge;
    dfa.states.push_back({state.first_edge, static_cast<uint32_t>(dfa.calls.size()), goes_on});
    if (state.is_final) dfa.calls.push_back({rule, once ? num_states : 0});
  }
  const auto num_edges = static_cast<uint32_t>(dfa.edges.size());
  const auto num_calls = static_cast<uint32_t>(dfa.calls.size());
  if (once) dfa.states.push_back({num_edges, num_calls, /*is_final=*/true});
  dfa.states.push_back({num_edges, num_calls, /*is_final=*/false});
  return dfa;
}

// The sections with what stands around them.
Result<NodeId> WithFreeParts(const Tagged& tagged, NodeId sections, Grammar& grammar,
                             Budget& budget) {
  ASSIGN_OR_RETURN(NodeId all, InsteadOf(tagged, sections, grammar, budget));
  if (!tagged.otherwise.empty() || !tagged.preambles.empty()) {
    ASSIGN_OR_RETURN(Dfa any, AnyText(budget));
    ASSIGN_OR_RETURN(any, FreeText(std::move(any), tagged.never, budget));
    const NodeId free =
        grammar.Call(grammar.AddRule("free text", std::make_shared<const Dfa>(std::move(any))));
    if (!tagged.otherwise.empty())
      all = grammar.Choice({all, grammar.Sequence({grammar.Bytes(tagged.otherwise), free})});
    std::vector<NodeId> preambles;
    for (const auto& [begin, end] : tagged.preambles)
      preambles.push_back(grammar.Sequence({grammar.Bytes(begin), free, grammar.Bytes(end)}));
    all = grammar.Sequence({grammar.Repeat(grammar.Choice(preambles), 0, kUnlimited), all});
  }
  if (tagged.trigger.empty()) return all;
  ASSIGN_OR_RETURN(const Dfa up_to, FreeText(DfaUpTo(tagged.trigger), tagged.never, budget));
  const RuleId behind = grammar.AddRule("what follows a trigger", all);
  return grammar.Call(
      grammar.AddRule("free text with triggers",
                      std::make_shared<const Dfa>(Triggered(up_to, behind, tagged.once))));
}

// Any text up to the end. It has no trigger: readers may see that a call begins there, which would
// have to fit.
Result<Dfa> TextOfSection(const Tagged& tagged, std::string_view end, Budget& budget) {
  constexpr uint64_t kStepsPerByte = 40;
  if (!budget.Spend(kStepsPerByte * end.size())) return OutOfSteps();
  Dfa text = DfaUpTo(end);
  if (tagged.trigger.empty()) return text;
  return Intersect(text, DfaWithout(tagged.trigger), budget);
}

// What stands between the texts of a tag that has a guide.
Result<NodeId> ValueOf(const Tag& tag, ArgumentStyle style, Grammar& grammar, Budget& budget) {
  if (tag.regex) return TranslateRegex(*tag.regex, grammar);
  if (tag.choice) return TranslateChoice(tag.choice->text(), grammar);
  if (tag.grammar) return TranslateGbnf(*tag.grammar, grammar);
  style.texts = tag.texts;
  return TranslateSchema(*tag.schema, grammar, budget, style);
}

// A tag with what stands between its texts.
Result<NodeId> GuidedTag(const Tag& tag, const ArgumentStyle& style, Grammar& grammar,
                         Budget& budget) {
  const NodeId begin = grammar.Bytes(tag.begin);
  ASSIGN_OR_RETURN(const NodeId value, ValueOf(tag, style, grammar, budget));
  return grammar.Sequence({begin, value, grammar.Bytes(tag.end)});
}

// One of the tags.
Result<NodeId> SectionOf(const Tagged& tagged, size_t index, Grammar& grammar, Budget& budget) {
  const Tag& tag = tagged.tags[index];
  if (tag.num_guides() == 0) {
    const NodeId begin = grammar.Bytes(tag.begin);
    ASSIGN_OR_RETURN(Dfa text, TextOfSection(tagged, tag.end, budget));
    const RuleId rest = grammar.AddRule("text up to the end of a section",
                                        std::make_shared<const Dfa>(std::move(text)));
    return grammar.Sequence({begin, grammar.Call(rest)});
  }
  auto section = GuidedTag(tag, tagged.style, grammar, budget);
  if (!section.ok()) return section.status().WithPrefix(fmt::format("tagged: tags/{}", index));
  return section;
}

}  // namespace

Result<NodeId> TranslateTagged(std::string_view text, Grammar& grammar, Budget& budget) {
  ASSIGN_OR_RETURN(const Tagged tagged, ReadTagged(text));
  std::vector<NodeId> sections;
  for (size_t i = 0; i < tagged.tags.size(); ++i) {
    ASSIGN_OR_RETURN(sections.emplace_back(), SectionOf(tagged, i, grammar, budget));
  }
  const NodeId section = grammar.Call(grammar.AddRule("a section", grammar.Choice(sections)));
  NodeId all = grammar.Empty();
  if (tagged.max > 0) {
    const uint32_t more = tagged.max == kUnlimited ? kUnlimited : tagged.max - 1;
    all = grammar.Sequence(
        {section, grammar.Repeat(grammar.Sequence({grammar.Bytes(tagged.between), section}),
                                 std::max(tagged.min, 1U) - 1, more)});
    if (tagged.min == 0) all = grammar.Optional(all);
  }
  all = grammar.Sequence({grammar.Bytes(tagged.before), all, grammar.Bytes(tagged.after)});
  if (tagged.answer) {
    const auto answer = GuidedTag(*tagged.answer, {}, grammar, budget);
    if (!answer.ok()) return answer.status().WithPrefix("tagged: answer");
    all = grammar.Choice({all, *answer});
  }
  return WithFreeParts(tagged, all, grammar, budget);
}

}  // namespace inflight::grammar
