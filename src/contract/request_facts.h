// SPDX-License-Identifier: Apache-2.0
// What a client may ask to know about its request beside the answer: how many tokens, why it ended,
// which KV blocks, when what happened (docs/reference/requests.md). Each output has shape [1, 1],
// finish_reason [1, beams].
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "contract/tensor.h"
#include "inflight/request.h"

namespace inflight::contract {

// As the inputs of these names ask; perf_metrics includes what kv_cache_reuse_stats has.
struct FactsAsked {
  bool num_input_tokens = false;
  bool num_output_tokens = false;
  bool num_cached_tokens = false;
  bool finish_reason = false;
  bool kv_cache_reuse_stats = false;
  bool perf_metrics = false;

  bool any() const { return *this != FactsAsked{}; }
  friend bool operator==(const FactsAsked&, const FactsAsked&) = default;
};

struct RequestFacts {
  FactsAsked asked;
  int num_input_tokens = 0;
  int block_size = 1;  // tokens per KV block
  // Of the response's sequence, or of each beam; where empty, those that the response says.
  std::span<const FinishReason> finish_reasons;
};

// Which responses have a fact.
enum class Due : uint8_t { kAlways, kAtSequenceEnd };

// An output that states a fact: of shape [1, 1], BYTES [1, beams].
struct FactOutput {
  std::string_view name;
  DataType type;
  bool is_in_generated_models;
  bool FactsAsked::*asked;
  Due due;
  Tensor (*write)(std::string name, const RequestFacts& facts, const Response& response);
};
std::span<const FactOutput> FactOutputs();

bool IsFact(std::string_view output);  // whether one of these outputs has the name

// Whether it was asked for, and is due with this response: each has counts and times, those not
// known yet as 0; the last response of each sequence says why that one ended.
bool IsIn(const FactOutput& fact, const RequestFacts& facts, const Response& response);
// The output `fact` under the name given; none where it is not in this response.
std::optional<Tensor> Fact(std::string_view fact, std::string name, const RequestFacts& facts,
                           const Response& response);

}  // namespace inflight::contract
