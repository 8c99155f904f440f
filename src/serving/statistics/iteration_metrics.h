// SPDX-License-Identifier: Apache-2.0
// What the TensorRT-LLM back-end told of an iteration: the samples of its nv_trt_llm_* gauges and
// the members of the JSON line in its log (docs/metrics.md). One table makes both, so
// that each sample has its member and the other way round, as that back-end's own checks demand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/executor.h"
#include "model_config.pb.h"

namespace inflight::serving {

// Which release a model's configuration is written for, and its model type: together they decide
// which samples exist.
struct IterationProfile {
  int release = 11;              // the n of 0.n
  bool is_static_batch = false;  // gpt_model_type V1
};

// The release is the newest one whose inputs the `tensorrt_llm` model declares.
IterationProfile ProfileOf(const ::inference::ModelConfig& config);

// One iteration, as of the end of its turn of the step loop.
struct Iteration {
  ExecutorStats stats;
  int block_size = 0;  // tokens
  int max_batch_size = 0, max_num_tokens = 0;
  int64_t timestamp_us = 0;  // of the epoch; 0 before the first iteration
  // Since the record before:
  int64_t num_terminated = 0;  // requests that ended, for whatever reason
  int64_t num_new_active = 0;  // requests that were admitted for the first time
  int64_t new_active_queue_ns = 0;
  int64_t rows_decoded = 0, tokens_decoded = 0;
};

enum class GaugeFamily : uint8_t {
  kRequest,
  kRuntimeMemory,
  kKvCacheBlock,
  kInflightBatcher,
  kV1,
  kGeneral
};

struct GaugeFamilyInfo {
  std::string_view name;
  std::string_view help;
  std::string_view label;  // that tells its samples apart
};
const GaugeFamilyInfo& InfoOf(GaugeFamily family);

struct IterationField {
  GaugeFamily family;
  std::string_view label_value;
  std::string_view json_key;
  double (*value)(const Iteration&, const IterationProfile&);
  int since = 0;  // first release
  int until = 99;
  // Of the two kinds of batching, which has it.
  bool in_flight = true, static_batch = true;
  bool is_fraction = false;  // else a whole number
  bool tells_reuse = false;  // over all requests, what was found in the KV cache
};

// Those of `profile`, in the order of the JSON line.
std::vector<const IterationField*> FieldsOf(const IterationProfile& profile);

// As both print it: whole numbers in full, fractions with six digits and none where they are whole.
std::string FieldText(const IterationField& field, const Iteration& iteration,
                      const IterationProfile& profile);

// "MM-DD-YYYY HH:MM:SS" in UTC; with microseconds: ".uuuuuu" behind it.
std::string TimestampText(int64_t epoch_us, bool with_microseconds);

// One line: {"Active Request Count":1,...,"Timestamp":"11-21-2026 10:02:03",...}, in UTC.
std::string IterationJson(const Iteration& iteration, const IterationProfile& profile);

}  // namespace inflight::serving
