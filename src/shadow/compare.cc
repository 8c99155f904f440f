// SPDX-License-Identifier: Apache-2.0
#include "shadow/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/letter_case.h"
#include "protocol/http_listener/http_message.h"

namespace inflight::shadow {
namespace {

using http_client::Answer;
using nlohmann::json;

constexpr size_t kMostOfAKind = 5;
constexpr size_t kMostShown = 120;  // bytes of a value

// Of events: what an answer's text is made of, by the names that models give it.
constexpr std::string_view kTextNames[] = {"text_output", "chunk", "TEXT"};

const std::string* FindHeader(const Answer& answer, std::string_view name) {
  for (const auto& [key, value] : answer.headers)
    if (EqualInAnyCase(key, name)) return &value;
  return nullptr;
}

std::string TypeOf(const Answer& answer) {
  const std::string* header = FindHeader(answer, "Content-Type");
  return header == nullptr ? "" : std::string(http_listener::MediaType(*header));
}

std::string Shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

bool IsText(std::string_view name) {
  return std::ranges::find(kTextNames, name) != std::end(kTextNames);
}

class Comparison {
 public:
  explicit Comparison(const CompareRules& rules) : rules_(rules) {}

  void Add(Kind kind, const std::string& place, const json& old_value, const json& new_value) {
    const auto of_kind = std::ranges::count(found_, kind, &Difference::kind);
    if (static_cast<size_t>(of_kind) < kMostOfAKind)
      found_.push_back({kind, place, Shown(old_value), Shown(new_value)});
  }

  // Texts are told from where they begin to differ.
  void Texts(Kind kind, const std::string& place, const std::string& old_text,
             const std::string& new_text) {
    if (old_text == new_text) return;
    constexpr size_t kBefore = 20;
    const size_t common =
        static_cast<size_t>(std::ranges::mismatch(old_text, new_text).in1 - old_text.begin());
    const size_t begin = common > kBefore ? common - kBefore : 0;
    Add(kind, place + "[" + std::to_string(common) + "]", old_text.substr(begin, kMostShown / 2),
        new_text.substr(begin, kMostShown / 2));
  }

  void Values(Kind kind, const std::string& place, const json& old_value, const json& new_value) {
    if (old_value.is_object() && new_value.is_object())
      return Objects(kind, place, old_value, new_value);
    if (old_value.is_array() && new_value.is_array())
      return Arrays(kind, place, old_value, new_value);
    if (old_value.is_string() && new_value.is_string())
      return Texts(kind, place, old_value.get<std::string>(), new_value.get<std::string>());
    if (old_value.is_number() && new_value.is_number() ? !AreNear(old_value, new_value)
                                                       : old_value != new_value)
      Add(kind, place, old_value, new_value);
  }

  bool AreNear(const json& a, const json& b) const {
    if (!a.is_number_float() && !b.is_number_float()) return a == b;
    return AreNear(a.get<double>(), b.get<double>());
  }
  bool AreNear(double a, double b) const {
    if (a == b || (std::isnan(a) && std::isnan(b))) return true;
    return std::fabs(a - b) <= rules_.tolerance * std::max({1.0, std::fabs(a), std::fabs(b)});
  }
  bool IsIgnored(std::string_view name) const {
    return std::ranges::find(rules_.ignored, name) != rules_.ignored.end();
  }

  std::vector<Difference> Take() { return std::move(found_); }

 private:
  void Objects(Kind kind, const std::string& place, const json& a, const json& b) {
    std::set<std::string> names;
    for (const auto& object : {a, b})
      for (const auto& [name, value] : object.items()) names.insert(name);
    for (const std::string& name : names) {
      if (IsIgnored(name)) continue;
      std::string there = place;
      if (!there.empty()) there += '.';
      there += name;
      const Kind its_kind = IsText(name) ? Kind::kText : kind;
      if (!a.contains(name)) {
        Add(its_kind, there, "(none)", b[name]);
      } else if (!b.contains(name)) {
        Add(its_kind, there, a[name], "(none)");
      } else {
        Values(its_kind, there, a[name], b[name]);
      }
    }
  }

  // Tensors by their names, whatever their order; others by their places.
  void Arrays(Kind kind, const std::string& place, const json& a, const json& b) {
    const auto by_name = [](const json& array) {
      std::optional<json> named = json::object();
      for (const json& element : array) {
        if (!element.is_object() || !element.contains("name") || !element["name"].is_string() ||
            named->contains(element["name"].get<std::string>()))
          return std::optional<json>();
        (*named)[element["name"].get<std::string>()] = element;
      }
      return named;
    };
    const auto a_named = by_name(a);
    const auto b_named = by_name(b);
    if (a_named && b_named && !a.empty() && !b.empty())
      return Objects(place == "outputs" ? Kind::kTensors : kind, place, *a_named, *b_named);
    if (a.size() != b.size()) Add(kind, place + ".length", a.size(), b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      Values(kind, place + "[" + std::to_string(i) + "]", a[i], b[i]);
  }

  const CompareRules& rules_;
  std::vector<Difference> found_;
};

// Elements of a binary tensor of numbers with a fraction, or none where bytes are compared.
std::optional<std::vector<double>> Reals(const std::string& type, std::string_view bytes) {
  std::vector<double> values;
  const auto read = [&]<typename T>(T value) {
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      std::memcpy(&value, bytes.data() + i, sizeof(T));
      values.push_back(value);
    }
  };
  if (type == "FP32") {
    read(float{});
  } else if (type == "FP64") {
    read(double{});
  } else {
    return std::nullopt;
  }
  return values;
}

// Puts the binary tensors of an answer to their outputs: as numbers, or as their bytes.
json WithBinaryTensors(json object, std::string_view bytes) {
  if (!object.is_object() || !object.contains("outputs") || !object["outputs"].is_array())
    return object;
  for (json& output : object["outputs"]) {
    if (!output.is_object()) continue;
    const json size = output.value("parameters", json::object()).value("binary_data_size", json());
    if (!size.is_number_unsigned()) continue;
    const std::string_view own = bytes.substr(0, size.get<size_t>());
    bytes.remove_prefix(own.size());
    const auto reals = Reals(output.value("datatype", ""), own);
    if (reals) {
      output["data"] = *reals;
    } else {
      output["data"] = json::binary(std::vector<uint8_t>(own.begin(), own.end()));
    }
  }
  return object;
}

std::optional<json> Parsed(const Answer& answer) {
  std::string_view text = answer.body;
  std::string_view bytes;
  if (const std::string* length = FindHeader(answer, "Inference-Header-Content-Length")) {
    size_t size = 0;
    std::from_chars(length->data(), length->data() + length->size(), size);
    if (size <= text.size()) {
      bytes = text.substr(size);
      text = text.substr(0, size);
    }
  }
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return std::nullopt;
  return WithBinaryTensors(object, bytes);
}

struct Events {
  std::string text;          // of all of them
  std::vector<json> others;  // what else each says
  std::vector<std::string> names;
};

Events EventsOf(const std::string& body) {
  Events events;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find("\n\n", begin), body.size());
    std::string name;
    std::string data;
    for (size_t line = begin; line < end;) {
      const size_t line_end = std::min(body.find('\n', line), end);
      const std::string_view field = std::string_view(body).substr(line, line_end - line);
      if (field.starts_with("event: ")) name = field.substr(7);
      if (field.starts_with("data: ")) data += field.substr(6);
      line = line_end + 1;
    }
    json value = json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) value = data;
    if (value.is_object()) {
      for (const std::string_view text_name : kTextNames) {
        const auto found = value.find(text_name);
        if (found == value.end() || !found->is_string()) continue;
        events.text += found->get<std::string>();
        value.erase(found);
      }
    }
    events.names.push_back(name);
    events.others.push_back(std::move(value));
    begin = end + 2;
  }
  return events;
}

// The text as a whole, however it is cut; how many events there are and what the last one says.
void CompareEvents(const Answer& old_answer, const Answer& new_answer, Comparison& comparison) {
  const Events old_events = EventsOf(old_answer.body);
  const Events new_events = EventsOf(new_answer.body);
  comparison.Texts(Kind::kText, "text", old_events.text, new_events.text);
  if (old_events.others.size() != new_events.others.size())
    comparison.Add(Kind::kFinish, "events", old_events.others.size(), new_events.others.size());
  if (old_events.others.empty() || new_events.others.empty()) return;
  comparison.Texts(Kind::kFinish, "last.event", old_events.names.back(), new_events.names.back());
  comparison.Values(Kind::kFinish, "last", old_events.others.back(), new_events.others.back());
}

}  // namespace

std::string_view NameOf(Kind kind) {
  static constexpr std::string_view kNames[] = {"status", "type",   "tensors",
                                                "text",   "finish", "body"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Difference> Compare(const Answer& old_answer, const Answer& new_answer,
                                const CompareRules& rules) {
  Comparison comparison(rules);
  if (old_answer.status != new_answer.status)
    comparison.Add(Kind::kStatus, "", old_answer.status, new_answer.status);
  const std::string old_type = TypeOf(old_answer);
  const std::string new_type = TypeOf(new_answer);
  if (!EqualInAnyCase(old_type, new_type)) comparison.Add(Kind::kType, "", old_type, new_type);
  constexpr std::string_view kEvents = "text/event-stream";
  if (EqualInAnyCase(old_type, kEvents) && EqualInAnyCase(new_type, kEvents)) {
    CompareEvents(old_answer, new_answer, comparison);
    return comparison.Take();
  }
  const auto old_json = Parsed(old_answer);
  const auto new_json = Parsed(new_answer);
  if (old_json && new_json) {
    comparison.Values(Kind::kBody, "", *old_json, *new_json);
  } else {
    comparison.Texts(Kind::kBody, "", old_answer.body, new_answer.body);
  }
  return comparison.Take();
}

}  // namespace inflight::shadow
