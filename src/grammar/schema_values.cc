// SPDX-License-Identifier: Apache-2.0
// enum and const: values that are listed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/status_macros.h"
#include "grammar/dfa_product.h"
#include "grammar/number_range.h"
#include "grammar/schema_translator.h"
#include "json/json_writer.h"

namespace inflight::grammar {
namespace {

using Kind = json::Value::Kind;

// A number as its value says: 1, 1.0 and 1e0 are one.
std::string NumberText(const json::Value& value) {
  const double number = value.AsDouble().ok() ? *value.AsDouble() : 0;
  if (value.IsInteger()) return std::string(value.text());
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return fmt::format("{}", static_cast<int64_t>(number));
  }
  std::string text;
  json::AppendDouble(text, number);
  return text;
}

// Without an exponent, as the automata of bounds have numbers, where these have as many digits.
std::string PlainNumberText(const json::Value& value) {
  std::string text = NumberText(value);
  const auto decimal = ParseDecimal(text);
  if (!decimal.ok()) return text;
  text = decimal->is_negative ? "-" : "";
  text += decimal->whole.empty() ? "0" : decimal->whole;
  return decimal->fraction.empty() ? text : text + "." + decimal->fraction;
}

void AppendComparable(const json::Value& value, int depth, std::string& out) {
  // Deeper values are refused where they are written; here they are all alike.
  if (depth > kMaxNesting) return;
  switch (value.kind()) {
    case Kind::kNumber:
      out += NumberText(value);
      return;
    case Kind::kString:
      json::AppendString(out, *value.AsString());
      return;
    case Kind::kArray:
      out += '[';
      (void)value.ForEachElement([&](const json::Value& element) {
        AppendComparable(element, depth + 1, out);
        out += ',';
        return Status::Ok();
      });
      out += ']';
      return;
    case Kind::kObject: {
      std::set<std::string> members;  // in any order
      (void)value.ForEachMember([&](std::string_view name, const json::Value& member) {
        std::string text;
        json::AppendString(text, name);
        text += ':';
        AppendComparable(member, depth + 1, text);
        members.insert(std::move(text));
        return Status::Ok();
      });
      out += '{';
      for (const std::string& member : members) out += member + ',';
      out += '}';
      return;
    }
    default:
      out += value.text();
  }
}

Types TypeOf(const json::Value& value) {
  switch (value.kind()) {
    case Kind::kObject:
      return kObjects;
    case Kind::kArray:
      return kArrays;
    case Kind::kString:
      return kStrings;
    case Kind::kBool:
      return kBooleans;
    case Kind::kNull:
      return kNulls;
    case Kind::kNumber:
      break;
  }
  const double number = *value.AsDouble();
  return number == std::floor(number) ? kIntegers : kNumbers;
}

}  // namespace

std::string ComparableText(const json::Value& value) {
  std::string text;
  AppendComparable(value, 0, text);
  return text;
}

// Those of the first list that are in all others; unset where there is no list.
Result<std::optional<std::vector<json::Value>>> SchemaTranslator::AllowedValues(
    const Conjunction& all) {
  std::optional<std::vector<json::Value>> allowed;
  for (const Conjunct& one : all) {
    for (const Keyword keyword : {Keyword::kConst, Keyword::kEnum}) {
      const auto& list = (*one.schema)[keyword];
      if (!list) continue;
      std::vector<json::Value> values;
      if (!budget_.Spend(list->text_bytes() / 4)) return OutOfSteps();
      if (keyword == Keyword::kConst) {
        values.push_back(*list);
      } else if (list->kind() != Kind::kArray) {
        return SchemaError(*one.schema, keyword, "must be an array of values");
      } else {
        RETURN_IF_ERROR(list->ForEachElement([&](const json::Value& value) {
          values.push_back(value);
          return Status::Ok();
        }));
      }
      if (!allowed) {
        allowed = std::move(values);
        continue;
      }
      std::set<std::string> texts;
      for (const json::Value& value : values) texts.insert(ComparableText(value));
      std::erase_if(*allowed, [&](const json::Value& value) {
        return !texts.contains(ComparableText(value));
      });
    }
  }
  return allowed;
}

Result<NodeId> SchemaTranslator::ChoiceOfValues(const Conjunction& all, Types types,
                                                const std::vector<json::Value>& values) {
  ASSIGN_OR_RETURN(const std::optional<Dfa> contents, StringContents(all, style_.values));
  ASSIGN_OR_RETURN(const std::optional<Dfa> numbers, Numbers(all, /*are_integers=*/false));
  Types about = 0;
  for (const Conjunct& one : all) about |= one.schema->types_of_keywords();
  std::vector<NodeId> choices;
  for (const json::Value& value : values) {
    const Types type = TypeOf(value);
    if ((types & type) == 0) continue;
    if ((type & about & (kObjects | kArrays)) != 0) {
      return InvalidArgument(fmt::format(
          "schema: at {}: enum or const of {} together with keywords about these is not supported",
          all[0].schema->pointer, type == kObjects ? "objects" : "arrays"));
    }
    if (type == kStrings && contents && !Matches(*contents, json_.Content(*value.AsString())))
      continue;
    if ((type & (kNumbers | kIntegers)) != 0 && numbers &&
        !Matches(*numbers, PlainNumberText(value)))
      continue;
    ASSIGN_OR_RETURN(choices.emplace_back(), NodeOfValue(value, 0));
  }
  return grammar_.Choice(choices);
}

// Recurses as deep as the value nests, to a bound.
Result<NodeId> SchemaTranslator::NodeOfValue(const json::Value& value, int depth) {
  if (depth > kMaxNesting) {
    return InvalidArgument(
        fmt::format("schema: a value of enum or const nests deeper than {}", kMaxNesting));
  }
  if (!budget_.Spend(1 + value.text_bytes() / 16)) return OutOfSteps();
  if (value.kind() == Kind::kString) return json_.Quoted(*value.AsString());
  if (value.kind() == Kind::kNumber) {
    if (!std::isfinite(*value.AsDouble())) {
      return InvalidArgument(fmt::format(
          "schema: {} of enum or const is no number of JSON, or too large", value.text()));
    }
    return grammar_.Bytes(NumberText(value));
  }
  if (value.kind() != Kind::kArray && value.kind() != Kind::kObject) {
    return json_.Literal(value.text());
  }
  std::vector<Grammar::ListPart> parts;
  const auto add = [&](const json::Value& part, std::optional<std::string_view> name) {
    ASSIGN_OR_RETURN(NodeId node, NodeOfValue(part, depth + 1));
    if (name) node = json_.Member(json_.Name(*name), node);
    parts.push_back({node, /*is_required=*/true});
    return Status::Ok();
  };
  const bool is_object = value.kind() == Kind::kObject;
  if (is_object) {
    RETURN_IF_ERROR(value.ForEachMember(
        [&](std::string_view name, const json::Value& member) { return add(member, name); }));
  } else {
    RETURN_IF_ERROR(value.ForEachElement([&](const json::Value& part) { return add(part, {}); }));
  }
  const NodeId inner = grammar_.List(json_.Comma(), parts);
  return json_.Enclosed(is_object ? '{' : '[', parts.empty() ? grammar_.Never() : inner,
                        is_object ? '}' : ']', parts.empty());
}

}  // namespace inflight::grammar
