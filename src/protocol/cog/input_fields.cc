// SPDX-License-Identifier: Apache-2.0
#include "protocol/cog/input_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/letter_case.h"

namespace inflight::cog {
namespace {

using json::Value;
using Kind = Value::Kind;
using enum InputType;

constexpr InputField kInputFields[] = {
    {.name = "prompt", .type = kText, .description = "The prompt.", .is_required = true},
    {.name = "system_prompt",
     .type = kText,
     .description = "Text that a prompt template may have beside the prompt."},
    {.name = "max_tokens",
     .type = kInteger,
     .description = "The most tokens that are generated.",
     .default_json = "512",
     .at_least = "1"},
    {.name = "min_tokens",
     .type = kInteger,
     .description = "The fewest tokens that are generated; -1 is none.",
     .at_least = "-1"},
    {.name = "temperature",
     .type = kNumber,
     .description = "Logits are divided by it before a draw; 0 takes the likeliest token.",
     .default_json = "0.7",
     .at_least = "0.0",
     .at_most = "5"},
    {.name = "top_p",
     .type = kNumber,
     .description = "Draws among the likeliest tokens whose probabilities reach this sum.",
     .default_json = "0.95",
     .at_least = "0.0",
     .at_most = "1.0"},
    {.name = "top_k",
     .type = kInteger,
     .description = "Draws among so many likeliest tokens; 0 and -1 are all.",
     .default_json = "0",
     .at_least = "-1"},
    {.name = "stop_sequences",
     .type = kText,
     .description = "Texts before which the answer ends, separated by commas."},
    {.name = "length_penalty",
     .type = kNumber,
     .description = "Of a beam search: scores are divided by length ^ penalty.",
     .default_json = "1.0",
     .at_least = "0.0",
     .at_most = "5.0"},
    {.name = "presence_penalty",
     .type = kNumber,
     .description = "Is taken from the logits of tokens that occurred.",
     .default_json = "0.0"},
    {.name = "seed",
     .type = kInteger,
     .description = "Of the random numbers; none and 0 choose one."},
    {.name = "prompt_template",
     .type = kText,
     .description = "What the model reads: {prompt} and {system_prompt} are replaced.",
     .min_length = 1},
    {.name = "log_performance_metrics",
     .type = kBoolean,
     .description = "Puts counts and times into the logs.",
     .default_json = "false"},
    {.name = "max_new_tokens",
     .type = kInteger,
     .description = "Former name of max_tokens.",
     .at_least = "1"},
    {.name = "min_new_tokens",
     .type = kInteger,
     .description = "Former name of min_tokens.",
     .at_least = "-1"},
    {.name = "cache_salt",
     .type = kText,
     .description = "Who shares blocks of equal prompts.",
     .is_own = true},
};
static_assert(std::size(kInputFields) == kNumInputs);

double NumberIn(std::string_view text) { return std::strtod(std::string(text).c_str(), nullptr); }

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::optional<int64_t> IntegerInText(std::string_view text) {
  text = Trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> IntegerOf(const Value& value) {
  if (value.kind() == Kind::kBool) return *value.AsBool() ? 1 : 0;
  if (value.kind() == Kind::kString) return IntegerInText(*value.AsString());
  if (value.kind() != Kind::kNumber) return std::nullopt;
  if (const auto whole = value.AsInt(); whole.ok()) return *whole;
  const double number = *value.AsDouble();
  if (!(std::fabs(number) < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<double> NumberOf(const Value& value) {
  if (value.kind() == Kind::kBool) return *value.AsBool() ? 1.0 : 0.0;
  if (value.kind() == Kind::kNumber) return *value.AsDouble();
  if (value.kind() != Kind::kString) return std::nullopt;
  const std::string text(Trimmed(*value.AsString()));
  if (text.empty() || text.find_first_of("xX") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return number;
}

std::optional<bool> BooleanOf(const Value& value) {
  if (value.kind() == Kind::kBool) return *value.AsBool();
  if (value.kind() == Kind::kNumber) {
    const double number = *value.AsDouble();
    if (number != 0 && number != 1) return std::nullopt;
    return number == 1;
  }
  if (value.kind() != Kind::kString) return std::nullopt;
  const std::string text = AsciiLower(*value.AsString());
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), text) != words.end();
  };
  if (is_one_of({"1", "on", "t", "true", "y", "yes"})) return true;
  if (is_one_of({"0", "off", "f", "false", "n", "no"})) return false;
  return std::nullopt;
}

// None is of the wrong type.
std::optional<InputValue> Convert(InputType type, const Value& value) {
  const auto wrapped = [](auto found) {
    return found ? std::optional<InputValue>(std::move(*found)) : std::nullopt;
  };
  switch (type) {
    case kText:
      return wrapped(TextOf(value));
    case kInteger:
      return wrapped(IntegerOf(value));
    case kNumber:
      return wrapped(NumberOf(value));
    case kBoolean:
      return wrapped(BooleanOf(value));
  }
  return std::nullopt;
}

FieldError WrongType(InputType type) {
  switch (type) {
    case kText:
      return {{}, "str type expected", "type_error.str", {}};
    case kInteger:
      return {{}, "value is not a valid integer", "type_error.integer", {}};
    case kNumber:
      return {{}, "value is not a valid float", "type_error.float", {}};
    case kBoolean:
      break;
  }
  return {{}, "value could not be parsed to a boolean", "type_error.bool", {}};
}

std::string LimitContext(std::string_view limit) {
  return R"({"limit_value":)" + std::string(limit) + '}';
}

// Also of NaN, which is in no bounds.
std::optional<FieldError> OutOfBounds(const InputField& field, const InputValue& value) {
  double number = 0;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || text->size() >= field.min_length) return std::nullopt;
    const std::string limit = std::to_string(field.min_length);
    return FieldError{{},
                      "ensure this value has at least " + limit + " characters",
                      "value_error.any_str.min_length",
                      LimitContext(limit)};
  }
  const auto misses = [&](std::string_view limit, const char* words, std::string_view type) {
    return FieldError{
        {},
        "ensure this value is " + std::string(words) + " than or equal to " + std::string(limit),
        type,
        LimitContext(limit)};
  };
  if (!field.at_least.empty() && !(number >= NumberIn(field.at_least)))
    return misses(field.at_least, "greater", "value_error.number.not_ge");
  if (!field.at_most.empty() && !(number <= NumberIn(field.at_most)))
    return misses(field.at_most, "less", "value_error.number.not_le");
  if (!std::isfinite(number)) return WrongType(field.type);
  return std::nullopt;
}

InputValue DefaultOf(size_t input, const InputDefaults& defaults) {
  if (input == kSystemPrompt) return defaults.system_prompt;
  if (input == kPromptTemplate) return defaults.prompt_template;
  if (input == kStopSequences)
    return defaults.stop_sequences.empty() ? InputValue{} : InputValue{defaults.stop_sequences};
  const InputField& field = kInputFields[input];
  if (field.default_json == "null") return {};
  if (field.type == kBoolean) return false;
  if (field.type == kInteger) return *IntegerInText(field.default_json);
  return NumberIn(field.default_json);
}

void WriteValue(const InputValue& value, json::Writer& out) {
  struct Visitor {
    json::Writer& out;
    void operator()(std::monostate) const { out.Null(); }
    void operator()(bool v) const { out.Bool(v); }
    void operator()(int64_t v) const { out.Int(v); }
    void operator()(double v) const { out.Double(v); }
    void operator()(const std::string& v) const { out.String(v); }
  };
  std::visit(Visitor{out}, value);
}

// "max_tokens" -> "Max Tokens"
std::string TitleOf(std::string_view name) {
  std::string title;
  for (const char c : name) {
    const bool begins = title.empty() || title.back() == ' ';
    title += c == '_' ? ' ' : begins ? static_cast<char>(c - 32) : c;
  }
  return title;
}

}  // namespace

std::span<const InputField> InputFields() { return kInputFields; }

std::optional<std::string> TextOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return *value.AsString();
    case Kind::kBool:
      return *value.AsBool() ? "True" : "False";
    case Kind::kNumber: {
      if (value.IsInteger()) return std::string(value.text());
      std::string text;
      json::AppendDouble(text, *value.AsDouble());
      return text;
    }
    default:
      return std::nullopt;
  }
}

std::string ErrorDetail(std::span<const FieldError> errors) {
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("detail").BeginArray();
  for (const FieldError& error : errors) {
    out.BeginObject().Key("loc").BeginArray().String("body");
    for (const std::string& step : error.location) {
      if (step.starts_with('#')) {
        out.Raw(std::string_view(step).substr(1));
      } else {
        out.String(step);
      }
    }
    out.EndArray().Key("msg").String(error.message).Key("type").String(error.type);
    if (!error.context.empty()) out.Key("ctx").Raw(error.context);
    out.EndObject();
  }
  out.EndArray().EndObject();
  return body;
}

Inputs ParseInputs(const Value& object, const InputDefaults& defaults,
                   std::vector<FieldError>& errors) {
  std::array<std::string_view, kNumInputs> names;
  for (size_t i = 0; i < kNumInputs; ++i) names[i] = kInputFields[i].name;
  const auto given = object.Pick<kNumInputs>(names);
  Inputs inputs;
  const auto refuse = [&](size_t i, FieldError error) {
    error.location = {"input", std::string(kInputFields[i].name)};
    errors.push_back(std::move(error));
  };
  for (size_t i = 0; i < kNumInputs; ++i) {
    const InputField& field = kInputFields[i];
    InputValue otherwise = field.is_required ? InputValue{} : DefaultOf(i, defaults);
    const bool may_be_null =
        !field.is_required && std::holds_alternative<std::monostate>(otherwise);
    if (!given[i]) {
      if (field.is_required) refuse(i, {{}, "field required", "value_error.missing", {}});
      inputs[i] = std::move(otherwise);
    } else if (given[i]->kind() == Kind::kNull) {
      if (!may_be_null)
        refuse(i, {{}, "none is not an allowed value", "type_error.none.not_allowed", {}});
    } else if (auto value = Convert(field.type, *given[i]); !value) {
      refuse(i, WrongType(field.type));
    } else if (auto error = OutOfBounds(field, *value)) {
      refuse(i, *std::move(error));
    } else {
      inputs[i] = *std::move(value);
    }
  }
  return inputs;
}

void WriteInputs(const Inputs& inputs, json::Writer& out) {
  out.BeginObject();
  for (size_t i = 0; i < kNumInputs; ++i) {
    if (kInputFields[i].is_own) continue;
    out.Key(kInputFields[i].name);
    WriteValue(inputs[i], out);
  }
  out.EndObject();
}

void WriteInputSchema(const InputDefaults& defaults, json::Writer& out) {
  static constexpr std::string_view kTypeNames[] = {"string", "integer", "number", "boolean"};
  out.BeginObject().Key("title").String("Input");
  out.Key("required").BeginArray();
  for (const InputField& field : kInputFields)
    if (field.is_required) out.String(field.name);
  out.EndArray().Key("type").String("object").Key("properties").BeginObject();
  for (size_t i = 0; i < kNumInputs; ++i) {
    const InputField& field = kInputFields[i];
    if (field.is_own) continue;
    out.Key(field.name).BeginObject().Key("title").String(TitleOf(field.name));
    if (!field.at_most.empty()) out.Key("maximum").Double(NumberIn(field.at_most));
    if (!field.at_least.empty()) out.Key("minimum").Double(NumberIn(field.at_least));
    if (field.min_length > 0) out.Key("minLength").Uint(field.min_length);
    out.Key("type").String(kTypeNames[static_cast<size_t>(field.type)]);
    out.Key("description").String(field.description);
    const InputValue otherwise = field.is_required ? InputValue{} : DefaultOf(i, defaults);
    if (!std::holds_alternative<std::monostate>(otherwise)) {
      out.Key("default");
      WriteValue(otherwise, out);
    }
    out.Key("x-order").Uint(i).EndObject();
  }
  out.EndObject().EndObject();
}

}  // namespace inflight::cog
