// SPDX-License-Identifier: Apache-2.0
// Sections between tags, each with the JSON of a schema, such as the calls of tools that an answer
// must have (docs/reference/structured-output.md, "Tagged").
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "grammar/translate.h"

namespace inflight::grammar {
namespace {

constexpr size_t kMaxTags = 1024;
constexpr uint32_t kMaxSections = 1024;

struct Tag {
  std::string begin;
  std::string end;
  json::Value schema;
};

struct Tagged {
  std::string before;
  std::vector<Tag> tags;
  uint32_t min = 1;
  uint32_t max = kUnlimited;
  std::string between;
  std::string after;
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

Result<Tag> ReadTag(const json::Value& value) {
  constexpr std::array<std::string_view, 3> kMembers = {"begin", "schema", "end"};
  if (value.kind() != json::Value::Kind::kObject) return Refused("tags", "must be objects");
  RETURN_IF_ERROR(CheckMembers(value, kMembers));
  const auto [begin, schema, end] = value.Pick(kMembers);
  if (!begin || !schema || !end) return Refused("tags", "each must have begin, schema and end");
  ASSIGN_OR_RETURN(std::string begin_text, TextOrNone("begin", begin));
  ASSIGN_OR_RETURN(std::string end_text, TextOrNone("end", end));
  return Tag{std::move(begin_text), std::move(end_text), *schema};
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

Result<Tagged> ReadTagged(std::string_view text) {
  constexpr std::array<std::string_view, 6> kMembers = {"tags",    "min",    "max",
                                                        "between", "before", "after"};
  const auto parsed = json::Value::Parse(text);
  if (!parsed.ok()) return InvalidArgument("tagged", parsed.status().message());
  if (parsed->kind() != json::Value::Kind::kObject)
    return InvalidArgument("tagged", "must be a JSON object");
  RETURN_IF_ERROR(CheckMembers(*parsed, kMembers));
  const auto [tags, min, max, between, before, after] = parsed->Pick(kMembers);
  if (!tags || tags->kind() != json::Value::Kind::kArray)
    return Refused("tags", "must be an array of tags");
  Tagged tagged;
  RETURN_IF_ERROR(tags->ForEachElement([&](const json::Value& value) {
    if (tagged.tags.size() == kMaxTags)
      return Refused("tags", fmt::format("more than {} are not supported", kMaxTags));
    ASSIGN_OR_RETURN(Tag tag, ReadTag(value));
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
  return tagged;
}

}  // namespace

Result<NodeId> TranslateTagged(std::string_view text, Grammar& grammar, Budget& budget) {
  ASSIGN_OR_RETURN(const Tagged tagged, ReadTagged(text));
  std::vector<NodeId> sections;
  for (size_t i = 0; i < tagged.tags.size(); ++i) {
    const Tag& tag = tagged.tags[i];
    const auto value = TranslateSchema(tag.schema, grammar, budget);
    if (!value.ok()) return value.status().WithPrefix(fmt::format("tagged: tags/{}", i));
    sections.push_back(
        grammar.Sequence({grammar.Bytes(tag.begin), *value, grammar.Bytes(tag.end)}));
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
  return grammar.Sequence({grammar.Bytes(tagged.before), all, grammar.Bytes(tagged.after)});
}

}  // namespace inflight::grammar
