// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/answer_guide.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "protocol/openai/object_reader.h"

namespace inflight::openai {
namespace {

using Guided = serving::Generation::Guided;
using GuideKind = GuideSpec::Kind;
using json::Value;
using Kind = Value::Kind;

constexpr size_t kMaxChoices = 4096;

// The one thing that a body asks an answer to be.
class OneGuide {
 public:
  Status Set(GuideKind kind, std::string text, std::string field) {
    if (found_)
      return InvalidArgument(field, "is given beside " + found_->field + "; give one of them");
    found_ = Guided{.spec = {.kind = kind, .text = std::move(text)}, .field = std::move(field)};
    return Status::Ok();
  }

  std::optional<Guided> Take() { return std::move(found_); }

 private:
  std::optional<Guided> found_;
};

// A schema is an object or a boolean; vLLM takes its text, too.
Status SetSchema(const std::string& field, const Value& value, OneGuide& guide) {
  if (value.kind() == Kind::kString) {
    ASSIGN_OR_RETURN(std::string text, value.AsString());
    return guide.Set(GuideKind::kJsonSchema, std::move(text), field);
  }
  if (value.kind() != Kind::kObject && value.kind() != Kind::kBool)
    return InvalidArgument(field, "must be an object, a JSON schema");
  return guide.Set(GuideKind::kJsonSchema, std::string(value.text()), field);
}

Status SetText(GuideKind kind, const std::string& field, const Value& value, OneGuide& guide) {
  if (value.kind() != Kind::kString) return InvalidArgument(field, "must be a string");
  ASSIGN_OR_RETURN(std::string text, value.AsString());
  return guide.Set(kind, std::move(text), field);
}

Status SetChoice(const std::string& field, const Value& value, OneGuide& guide) {
  if (value.kind() != Kind::kArray) return InvalidArgument(field, "must be an array of strings");
  size_t count = 0;
  RETURN_IF_ERROR(value.ForEachElement([&](const Value& one) -> Status {
    if (one.kind() != Kind::kString)
      return InvalidArgument(field + "[" + std::to_string(count) + "]", "must be a string");
    if (++count > kMaxChoices)
      return InvalidArgument(field, "got more than " + std::to_string(kMaxChoices) + " texts");
    return Status::Ok();
  }));
  if (count == 0) return InvalidArgument(field, "got no texts, needs at least one");
  return guide.Set(GuideKind::kChoice, std::string(value.text()), field);
}

// {"name": ..., "schema": {...}, "strict": ..., "description": ...}. Answers fit the schema whether
// `strict` says so or not.
Status ReadNamedSchema(const std::string& field, const Value& value, OneGuide& guide) {
  if (value.kind() != Kind::kObject) return InvalidArgument(field, "must be an object");
  std::optional<Value> schema;
  RETURN_IF_ERROR(value.ForEachMember([&](std::string_view key, const Value& member) -> Status {
    const std::string name = field + "." + Shortened(key);
    if (key == "schema") {
      schema = member;
    } else if (key == "name" || key == "description") {
      if (member.kind() != Kind::kString && member.kind() != Kind::kNull)
        return InvalidArgument(name, "must be a string");
    } else if (key == "strict") {
      if (member.kind() != Kind::kBool && member.kind() != Kind::kNull)
        return InvalidArgument(name, "must be true or false");
    } else {
      return InvalidArgument(
          name, "is not a member here; those are name, description, schema and strict");
    }
    return Status::Ok();
  }));
  if (!schema) return InvalidArgument(field + ".schema", "is missing");
  return SetSchema(field + ".schema", *schema, guide);
}

Status ReadResponseFormat(const Value& value, OneGuide& guide) {
  const std::string field = "response_format";
  std::optional<Value> schema;
  std::string type;
  RETURN_IF_ERROR(value.ForEachMember([&](std::string_view key, const Value& member) -> Status {
    if (member.kind() == Kind::kNull) return Status::Ok();
    if (key == "type") {
      if (member.kind() != Kind::kString)
        return InvalidArgument(field + ".type", "must be a string");
      ASSIGN_OR_RETURN(type, member.AsString());
    } else if (key == "json_schema") {
      schema = member;
    } else {
      return InvalidArgument(field + "." + Shortened(key),
                             "is not a member here; those are type and json_schema");
    }
    return Status::Ok();
  }));
  if (type == "json_schema") {
    if (!schema) return InvalidArgument(field + ".json_schema", "is missing");
    return ReadNamedSchema(field + ".json_schema", *schema, guide);
  }
  if (schema) return InvalidArgument(field + ".json_schema", "needs the type json_schema");
  if (type == "text") return Status::Ok();
  if (type == "json_object") return guide.Set(GuideKind::kJson, {}, field);
  if (type.empty()) return InvalidArgument(field + ".type", "is missing");
  return Unimplemented(field + ".type", "got '" + Shortened(type) +
                                            "'; text, json_object and json_schema are supported");
}

Status ReadStructured(const Value& value, OneGuide& guide) {
  return value.ForEachMember([&](std::string_view key, const Value& member) -> Status {
    const std::string field = "structured_outputs." + Shortened(key);
    if (member.kind() == Kind::kNull) return Status::Ok();
    if (key == "json") return SetSchema(field, member, guide);
    if (key == "regex") return SetText(GuideKind::kRegex, field, member, guide);
    if (key == "choice") return SetChoice(field, member, guide);
    if (key == "grammar") return SetText(GuideKind::kGrammar, field, member, guide);
    if (key == "json_object") {
      if (member.kind() != Kind::kBool) return InvalidArgument(field, "must be true or false");
      return member.text() == "true" ? guide.Set(GuideKind::kJson, {}, field) : Status::Ok();
    }
    if (member.text() == "false") return Status::Ok();  // of what is an option of vLLM's
    return Unimplemented(
        field, "is not supported; json, regex, choice, grammar and json_object are supported");
  });
}

}  // namespace

Result<std::optional<Guided>> ReadAnswerGuide(const Asked& asked) {
  OneGuide guide;
  if (asked.response_format) RETURN_IF_ERROR(ReadResponseFormat(*asked.response_format, guide));
  if (asked.structured_outputs) RETURN_IF_ERROR(ReadStructured(*asked.structured_outputs, guide));
  if (asked.guided_json) RETURN_IF_ERROR(SetSchema("guided_json", *asked.guided_json, guide));
  if (asked.guided_regex)
    RETURN_IF_ERROR(SetText(GuideKind::kRegex, "guided_regex", *asked.guided_regex, guide));
  if (asked.guided_choice) RETURN_IF_ERROR(SetChoice("guided_choice", *asked.guided_choice, guide));
  if (asked.guided_grammar)
    RETURN_IF_ERROR(SetText(GuideKind::kGrammar, "guided_grammar", *asked.guided_grammar, guide));
  return guide.Take();
}

}  // namespace inflight::openai
