// SPDX-License-Identifier: Apache-2.0
// The table of what models answer with: `tensorrt_llm`, the ensemble and `tensorrt_llm_bls` make
// their tensors by it. A row says what an output is called, how the models made from an engine
// declare it, and which responses have it. Facts (request_facts.h) are rows too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/llm_response.h"
#include "contract/request_facts.h"
#include "contract/tensor.h"

namespace inflight::contract {

// What outputs are made from.
struct OutputSource {
  const Response& response;
  const LlmResponseOptions& options;
  std::span<const std::string> texts;       // [sequences] of a text model, else empty
  std::span<const SequenceView> sequences;  // of `tensorrt_llm`, else empty
};

struct Output {
  std::string_view name;
  DataType type = DataType::kInvalid;  // logits: unless the model's configuration has another
  std::vector<int64_t> dims;           // without the batch dimension
  // Places among the outputs of a generated `tensorrt_llm` and of a generated ensemble; 0: none.
  int llm_place = 0;
  int text_place = 0;
  bool passes_postprocessing = false;  // on its way out of a generated ensemble
  bool is_of_ids = false;              // of `tensorrt_llm` alone
  // Whether a response has it, and then its tensor under `name`, of `type` where it is logits.
  bool (*is_in)(const Output& output, const OutputSource& source) = nullptr;
  Tensor (*make)(const Output& output, std::string_view name, DataType type,
                 const OutputSource& source) = nullptr;
  const FactOutput* fact = nullptr;
  bool is_named_only =
      false;  // of one release alone: sent where a configuration or a client names it
};

// In the order in which `tensorrt_llm` sends them; facts last.
std::span<const Output> OutputTable();
// Of the ensemble and of BLS, which have no ids; null: no release has it.
const Output* FindTextOutput(std::string_view name);
// output_ids, which an ensemble has whose postprocessing passes them on.
const Output& IdsOutput();

// Logits are sent in the type that a model's configuration declares.
bool IsLogits(const Output& output);

}  // namespace inflight::contract
