// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/percent_encoding.h"
#include "base/status_macros.h"

namespace inflight::grammar {
namespace {

// "~1" is "/", "~0" is "~" (RFC 6901, section 4).
std::string Unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    const std::string_view pair = token.substr(i, 2);
    if (pair == "~0" || pair == "~1") {
      out += pair[1] == '0' ? '~' : '/';
      ++i;
    } else {
      out += token[i];
    }
  }
  return out;
}

}  // namespace

Result<const Schema*> SchemaDocument::At(const json::Value& value, std::string pointer) {
  auto& known = schemas_[value.place()];
  if (known == nullptr) {
    if (!budget_.Spend(1 + (value.text_bytes() + pointer.size()) / kTextBytesPerStep))
      return OutOfSteps();
    ASSIGN_OR_RETURN(Schema schema, ReadSchema(value, std::move(pointer)));
    known = std::make_unique<const Schema>(std::move(schema));
  }
  return known.get();
}

Result<std::optional<json::Value>> SchemaDocument::ChildOf(const json::Value& value,
                                                           std::string_view token) {
  const auto [place, is_new] = children_.try_emplace(value.place());
  std::map<std::string, json::Value, std::less<>>& children = place->second;
  if (is_new) {
    if (!budget_.Spend(1 + value.text_bytes() / kTextBytesPerStep)) return OutOfSteps();
    if (value.kind() == json::Value::Kind::kObject) {
      RETURN_IF_ERROR(value.ForEachMember([&](std::string_view name, const json::Value& member) {
        children.try_emplace(std::string(name), member);
        return Status::Ok();
      }));
    } else if (value.kind() == json::Value::Kind::kArray) {
      RETURN_IF_ERROR(value.ForEachElement([&](const json::Value& element) {
        children.try_emplace(std::to_string(children.size()), element);
        return Status::Ok();
      }));
    }
  }
  const auto child = children.find(token);
  return child == children.end() ? std::nullopt : std::optional(child->second);
}

Result<const Schema*> SchemaDocument::Resolve(const Schema& schema) {
  const auto text = schema[Keyword::kRef]->AsString();
  if (!text.ok()) return SchemaError(schema, Keyword::kRef, "must be a string");
  const auto known = resolved_.find(*text);
  if (known != resolved_.end()) return known->second;
  const auto refused = [&](std::string_view what) {
    return SchemaError(schema, Keyword::kRef, fmt::format("{}: {}", *text, what));
  };
  if (*text != "#" && !text->starts_with("#/")) {
    return refused("only pointers into the same schema are supported, such as #/$defs/name");
  }
  const std::string pointer = PercentDecode(text->substr(1));
  json::Value place = root_;
  for (std::string_view rest = pointer; !rest.empty();) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    ASSIGN_OR_RETURN(const auto child, ChildOf(place, Unescaped(rest.substr(0, end))));
    if (!child) return refused("leads to nothing");
    place = *child;
    rest.remove_prefix(end);
  }
  ASSIGN_OR_RETURN(const Schema* found, At(place, *text));
  resolved_[*text] = found;
  return found;
}

Result<SchemaDocument::List> SchemaDocument::AllOf(const Schema& schema, Keyword keyword) {
  const json::Value& list = *schema[keyword];
  if (list.kind() != json::Value::Kind::kArray) {
    return SchemaError(schema, keyword, "must be an array of schemas");
  }
  const auto [place, is_new] = lists_.try_emplace(list.place());
  List& schemas = place->second;
  if (!budget_.Spend(1 + schemas.size())) return OutOfSteps();
  if (!is_new) return schemas;
  RETURN_IF_ERROR(list.ForEachElement([&](const json::Value& element) {
    ASSIGN_OR_RETURN(
        schemas.emplace_back(),
        At(element, fmt::format("{}/{}/{}", schema.pointer, NameOf(keyword), schemas.size())));
    return Status::Ok();
  }));
  return schemas;
}

Result<const SchemaDocument::Members*> SchemaDocument::MembersOf(const Schema& schema,
                                                                 Keyword keyword) {
  const json::Value& object = *schema[keyword];
  if (object.kind() != json::Value::Kind::kObject) {
    return SchemaError(schema, keyword, "must be an object of schemas");
  }
  const auto [place, is_new] = members_.try_emplace(object.place());
  Members& members = place->second;
  if (!budget_.Spend(1 + members.size())) return OutOfSteps();
  if (!is_new) return &members;
  RETURN_IF_ERROR(object.ForEachMember([&](std::string_view name, const json::Value& value) {
    ASSIGN_OR_RETURN(const Schema* member,
                     At(value, fmt::format("{}/{}/{}", schema.pointer, NameOf(keyword),
                                           EscapedForPointer(name))));
    members.emplace_back(name, member);
    return Status::Ok();
  }));
  return &members;
}

// Schemas that hold of the very value that `schema` does, or may.
Result<SchemaDocument::List> SchemaDocument::InPlace(const Schema& schema) {
  List found;
  if (schema[Keyword::kRef]) {
    ASSIGN_OR_RETURN(found.emplace_back(), Resolve(schema));
  }
  for (const Keyword keyword : {Keyword::kAllOf, Keyword::kAnyOf, Keyword::kOneOf}) {
    if (!schema[keyword]) continue;
    ASSIGN_OR_RETURN(const auto parts, AllOf(schema, keyword));
    found.insert(found.end(), parts.begin(), parts.end());
  }
  return found;
}

Status SchemaDocument::CheckEnds(const Schema& schema) {
  struct Visit {
    const Schema* schema;
    List rest;
  };
  std::vector<Visit> path;
  const auto enter = [&](const Schema* next) {
    bool& is_open = is_open_.try_emplace(next, true).first->second;
    is_open = true;
    ASSIGN_OR_RETURN(List rest, InPlace(*next));
    if (!budget_.Spend(1 + rest.size())) return OutOfSteps();
    path.push_back({next, std::move(rest)});
    return Status::Ok();
  };
  if (is_open_.contains(&schema)) return Status::Ok();
  RETURN_IF_ERROR(enter(&schema));
  while (!path.empty()) {
    if (path.back().rest.empty()) {
      is_open_[path.back().schema] = false;
      path.pop_back();
      continue;
    }
    const Schema* next = path.back().rest.back();
    path.back().rest.pop_back();
    const auto known = is_open_.find(next);
    if (known == is_open_.end()) {
      RETURN_IF_ERROR(enter(next));
    } else if (known->second) {
      return InvalidArgument(fmt::format(
          "schema: at {}: refers to itself by $ref, allOf, anyOf and oneOf alone", next->pointer));
    }
  }
  return Status::Ok();
}

Result<Conjunction> SchemaDocument::Flattened(const Conjunction& all) {
  Conjunction flat;
  std::set<Conjunct> seen;
  std::vector<Conjunct> stack(all.rbegin(), all.rend());
  while (!stack.empty()) {
    const Conjunct one = stack.back();
    stack.pop_back();
    const Schema& schema = *one.schema;
    RETURN_IF_ERROR(CheckEnds(schema));
    const Conjunct flat_one = {&schema, static_cast<uint8_t>(one.without | Conjunct::kWithoutRefs)};
    if (!seen.insert(flat_one).second) continue;
    if (!budget_.Spend(1)) return OutOfSteps();
    flat.push_back(flat_one);
    if ((one.without & Conjunct::kWithoutRefs) != 0) continue;
    if (schema[Keyword::kAllOf]) {
      ASSIGN_OR_RETURN(const auto parts, AllOf(schema, Keyword::kAllOf));
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) stack.push_back({*part});
    }
    if (schema[Keyword::kRef]) {
      ASSIGN_OR_RETURN(const Schema* target, Resolve(schema));
      stack.push_back({target});
    }
  }
  return flat;
}

}  // namespace inflight::grammar
