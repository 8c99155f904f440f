// SPDX-License-Identifier: Apache-2.0
// Values from JSON and to JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "chat_template/text.h"
#include "chat_template/value.h"

namespace inflight::chat_template {
namespace {

using Json = nlohmann::ordered_json;

Result<Value> FromParsed(const Json& json, int depth) {
  if (depth > kMaxNesting)
    return InvalidArgument(fmt::format("lists and objects nest deeper than {}", kMaxNesting));
  switch (json.type()) {
    case Json::value_t::null:
      return Value(None{});
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX))
        return InvalidArgument(fmt::format("got {}, integers have 64 bits with sign", value));
      return Value(static_cast<int64_t>(value));
    }
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return Value(json.get<std::string>());
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) {
        ASSIGN_OR_RETURN(items.emplace_back(), FromParsed(item, depth + 1));
      }
      return Value::MakeList(std::move(items));
    }
    case Json::value_t::object: {
      DictItems items;
      for (const auto& [key, item] : json.items()) {
        ASSIGN_OR_RETURN(Value value, FromParsed(item, depth + 1));
        items.emplace_back(key, std::move(value));
      }
      return Value::MakeDict(std::move(items));
    }
    default:
      return InvalidArgument("not a JSON value");
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status Write(const Value& value, int level) {
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* flag = value.boolean()) {
      out_ += *flag ? "true" : "false";
    } else if (const auto whole = value.integer()) {
      out_ += fmt::format("{}", *whole);
    } else if (const auto number = value.number()) {
      WriteFloat(*number);
    } else if (const std::string* text = value.string()) {
      AppendJsonText(*text, style_.ensure_ascii, out_);
    } else if (const List* list = value.list(); list != nullptr && !list->is_generator) {
      return WriteItems('[', ']', list->items, level,
                        [&](const Value& item) { return Write(item, level + 1); });
    } else if (const Dict* dict = value.dict()) {
      DictItems items = dict->items;
      if (style_.sort_keys) RETURN_IF_ERROR(Sort(items));
      return WriteItems('{', '}', items, level, [&](const auto& item) {
        AppendJsonText(item.first.AsValue().ToText(), style_.ensure_ascii, out_);
        out_ += style_.key_separator;
        return Write(item.second, level + 1);
      });
    } else {
      return InvalidArgument(
          fmt::format("tojson: a value of type {} has no JSON form", value.TypeName()));
    }
    return Status::Ok();
  }

  std::string Take() { return std::move(out_); }

 private:
  // As Python does, integers among themselves by their size.
  static Status Sort(DictItems& items) {
    const auto is_number = [](const auto& item) { return item.first.number().has_value(); };
    const auto num_numbers =
        static_cast<size_t>(std::count_if(items.begin(), items.end(), is_number));
    if (num_numbers != 0 && num_numbers != items.size())
      return InvalidArgument("tojson: keys that are texts and integers cannot be sorted together");
    std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
      const auto& number = a.first.number();
      return number ? *number < *b.first.number() : *a.first.text() < *b.first.text();
    });
    return Status::Ok();
  }

  void WriteFloat(double number) {
    if (std::isnan(number))
      out_ += "NaN";
    else if (std::isinf(number))
      out_ += number < 0 ? "-Infinity" : "Infinity";
    else
      out_ += Value(number).Repr();
  }

  void NewLine(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(
        static_cast<size_t>(std::max<int64_t>(0, *style_.indent)) * static_cast<size_t>(level),
        ' ');
  }

  template <typename Items, typename WriteItem>
  Status WriteItems(char open, char close, const Items& items, int level, WriteItem write_item) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      NewLine(level + 1);
      RETURN_IF_ERROR(write_item(item));
    }
    if (!items.empty()) NewLine(level);
    out_ += close;
    return Status::Ok();
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Result<Value> Value::FromJson(std::string_view json) {
  // The parser keeps its own stack, but a tree that deep would be destroyed by recursion.
  int depth = 0;
  int deepest = 0;
  const auto watch = [&](int, Json::parse_event_t event, Json&) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start)
      deepest = std::max(deepest, ++depth);
    if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end)
      --depth;
    return deepest <= kMaxNesting;  // discards what is deeper
  };
  const Json parsed = Json::parse(json, watch, /*allow_exceptions=*/false);
  if (deepest > kMaxNesting)
    return InvalidArgument(fmt::format("lists and objects nest deeper than {}", kMaxNesting));
  if (parsed.is_discarded()) return InvalidArgument("not valid JSON");
  return FromParsed(parsed, 0);
}

Result<std::string> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace inflight::chat_template
