// SPDX-License-Identifier: Apache-2.0
// The inputs of a prediction: one table of names, types, bounds, defaults and descriptions, from
// which come parsing, the echo in a prediction object and the schema in /openapi.json.
//
// Values are converted as pydantic 1 does, whose texts of errors cog's clients know: "12" is an
// integer, 3.7 is 3, 5 is the text "5". Source: pydantic/validators.py and pydantic/errors.py of
// pydantic/pydantic, v1.10; the inputs are those of predict.py of replicate/cog-triton.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "json/json_reader.h"
#include "json/json_writer.h"

namespace inflight::cog {

// What is wrong with a body, as FastAPI lists it.
struct FieldError {
  std::vector<std::string> location;  // behind "body": names, and places in lists as "#1"
  std::string message;
  std::string_view type;  // "value_error.missing"
  std::string context;    // JSON of the bounds; empty: none
};

std::string ErrorDetail(std::span<const FieldError> errors);  // {"detail":[...]}

// None is what null says.
using InputValue = std::variant<std::monostate, bool, int64_t, double, std::string>;

enum class InputType : uint8_t { kText, kInteger, kNumber, kBoolean };

struct InputField {
  std::string_view name;
  InputType type;
  std::string_view description;
  bool is_required = false;
  std::string_view default_json = "null";  // of one that is not required
  // As they are written, which says whether they are whole; empty: none.
  std::string_view at_least = {};
  std::string_view at_most = {};
  size_t min_length = 0;  // of a text
  // Ours: the schema is cog's and does not have it, and no answer, event or webhook repeats it.
  bool is_own = false;
};

// Where an input stands in the table.
enum Input : uint8_t {
  kPrompt,
  kSystemPrompt,
  kMaxTokens,
  kMinTokens,
  kTemperature,
  kTopP,
  kTopK,
  kStopSequences,
  kLengthPenalty,
  kPresencePenalty,
  kSeed,
  kPromptTemplate,
  kLogPerformanceMetrics,
  kMaxNewTokens,
  kMinNewTokens,
  kCacheSalt,
  kNumInputs,
};

// Defaults that an operator sets, of texts.
struct InputDefaults {
  std::string system_prompt;                 // SYSTEM_PROMPT
  std::string prompt_template = "{prompt}";  // PROMPT_TEMPLATE
  std::string stop_sequences;                // STOP_SEQUENCES; empty: none
};

// By Input.
using Inputs = std::array<InputValue, kNumInputs>;

std::span<const InputField> InputFields();

// The member `input` of a body: members of other names are left out, as pydantic does. What is
// wrong is added to `errors`.
Inputs ParseInputs(const json::Value& object, const InputDefaults& defaults,
                   std::vector<FieldError>& errors);

// Those of cog.
void WriteInputs(const Inputs& inputs, json::Writer& out);
// The schema "Input" of OpenAPI.
void WriteInputSchema(const InputDefaults& defaults, json::Writer& out);

// A text as pydantic takes one: a number or a boolean is written out. Null or another type: unset.
std::optional<std::string> TextOf(const json::Value& value);

}  // namespace inflight::cog
