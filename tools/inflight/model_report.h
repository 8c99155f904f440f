// SPDX-License-Identifier: Apache-2.0
// What `inflight inspect` says of a model: its shape, its parameters, its tokenizer, and the memory
// that its weights and its KV cache take in each type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "builder/builder.h"
#include "loader/loader.h"

namespace inflight::tool {

// The model in one type, in memory of a kind of device.
struct TypeSize {
  std::string type;  // "bfloat16", "W4A16"
  DeviceKind device = DeviceKind::kCpu;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t sequence_kv_bytes = 0;  // of one sequence of ModelReport::max_seq_len tokens
  // That the KV cache has room for beside the weights, of `memory_bytes`; 0: not even the weights
  // fit. What steps work in is not counted.
  int64_t kv_tokens = 0;
};

struct ModelReport {
  std::filesystem::path dir;
  builder::Description description;
  builder::ParameterCounts parameters;
  uint64_t kv_bytes_per_token = 0;
  std::optional<int>
      tokenizer_size;              // largest id + 1; none: there is no tokenizer that can be read
  std::string tokenizer_kind;      // "BPE", "Unigram", ...
  std::string tokenizer_file;      // "tokenizer.json", ...
  std::string chat_template;       // the file that has it, or the name of a family's; empty: none
  std::optional<int> max_seq_len;  // of a sequence whose memory is asked for
  uint64_t memory_bytes = 0;       // that the sizes are for
  double kv_fraction = 0;          // of what the weights leave of it, for the KV cache
  std::vector<TypeSize> sizes;
  bool has_weights = true;  // false: config.json is all that is there
};

// `memory_bytes`, `kv_fraction` and `max_seq_len` as of ModelReport.
ModelReport ReportOf(const std::filesystem::path& dir, builder::Description description,
                     uint64_t memory_bytes, double kv_fraction, std::optional<int> max_seq_len);

std::string ToText(const ModelReport& report);  // a line for each part
// A table of the sizes, with the memory that they are for.
std::string SizesText(const ModelReport& report);

// The same for programs. `plan` may be null, with the reason.
nlohmann::ordered_json ToJson(const ModelReport& report, const loader::Plan* plan,
                              const std::string& why_no_plan);

}  // namespace inflight::tool
