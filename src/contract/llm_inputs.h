// SPDX-License-Identifier: Apache-2.0
// The table of what `tensorrt_llm` may be sent, by any release: how each tensor is declared by the
// model made from an engine, and how it is read. Its middle are the rows of
// parameters/parameters.h, whose names and types say all; here are the inputs that are no plain
// value of one field, and those that only pass where they ask for nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/memory_account.h"
#include "contract/llm_request.h"
#include "contract/tensor.h"
#include "parameters/parameters.h"

namespace inflight::contract {

// How an input is declared: its dims without the batch dimension, and how rows are grouped.
enum class Form : uint8_t {
  kRequired,        // [1], required
  kRequiredScalar,  // [1] with an empty reshape, required
  kRequiredIds,     // [-1] ragged, required
  kOne,             // [1]
  kScalar,          // [1] with an empty reshape
  kVector,          // [-1] ragged
  kWords,           // [2, -1] ragged
  kMatrix,          // [-1, -1] ragged
  kTriples,         // [-1, 3] ragged
  kUndeclared,      // known, but in no generated model
};

// What reading one request knows.
struct LlmParse {
  LlmRequest& out;
  const LlmRequestDefaults& defaults;
  // The client's, of which what is made of its tensors takes its size first.
  std::shared_ptr<AccountShare> memory = {};
  int input_length = -1;             // of input_lengths, -1 = not given
  std::string input_lengths_name{};  // as the client calls it
  std::optional<uint64_t> lora_task_id{};
  const Tensor* lora_weights = nullptr;  // with anything in them
  const Tensor* lora_config = nullptr;
  const Tensor* prompt_table = nullptr;  // with a table in it
  int prompt_vocab_size = 0;             // 0 = not given
  const Tensor* guide_type = nullptr;
  const Tensor* guide = nullptr;
};

struct LlmInput {
  std::string_view name;
  DataType type = DataType::kInvalid;
  Form form = Form::kUndeclared;
  Status (*read)(const Tensor& tensor, const LlmInput& input, LlmParse& parse) = nullptr;
  const parameters::Parameter* parameter = nullptr;  // of a row of parameters/parameters.h
  bool FactsAsked::*fact = nullptr;                  // of what asks for a fact
  int text_place = 0;                                // as parameters::Parameter has it
};

// In the order in which a generated model declares them.
std::span<const LlmInput> LlmInputTable();
const LlmInput* FindLlmInput(std::string_view name);  // null: no release has it
bool IsOurs(std::string_view name);                   // known, and of no release of upstream's

// Whether requests may only have the input with a value that asks for nothing.
bool IsRefusedWhereUsed(const LlmInput& input);

}  // namespace inflight::contract
