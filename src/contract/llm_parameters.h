// SPDX-License-Identifier: Apache-2.0
// Parameters of the `tensorrt_llm` model's config.pbtxt -> executor options and request defaults.
// Each key is honoured or refused by name; unset and unfilled ones take our defaults, which for
// prefix reuse and chunked prefill are on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/decoding_mode.h"
#include "contract/key_report.h"
#include "inflight/executor.h"
#include "inflight/status.h"

namespace inflight::contract {

struct LlmParameters {
  std::string engine_dir;             // gpt_model_path; empty = the version directory
  bool has_memory_share = false;      // the file says how much of the device this model may take
  std::optional<int> max_beam_width;  // unset = the engine's
  bool exclude_input_in_output = false;
  bool normalize_log_probs = true;
  bool onboards_blocks = true;  // kv_cache_onboard_blocks
  int stats_check_period_ms = 100;
  DecodingMode decoding_mode = DecodingMode::kAuto;
  std::vector<int> gpu_device_ids;    // of each rank; empty = where --device says
  std::vector<int> participant_ids;   // processes of the launcher; empty = none are named
  std::string tokenizer_dir;          // whose texts guides are made of; empty = beside the engine
  std::string worker_program;         // executor_worker_path; empty = the server's own
  ExecutorOptions executor;           // the server's, changed where the parameters say so
  std::vector<std::string> warnings;  // accepted, but worth a line in the log
};

// kInvalidArgument for a value that no release knows, kUnimplemented for one that is not supported;
// both name the key and the value, and are the first of several. `report` gets a line for each key
// of the file and for each key that means something here, also when one is refused.
Result<LlmParameters> ParseLlmParameters(const std::map<std::string, std::string>& parameters,
                                         const ExecutorOptions& base, KeyReport* report = nullptr);

// What only the engine tells: where its load failed with a status that names a key, that key's line
// in `report` says so.
void NoteRefusal(const Status& status, KeyReport* report);

// The line of a key of the file that had no effect after all.
void NoteIgnored(std::string_view key, std::string_view reason, KeyReport* report);

// The widest beam search that a request may ask for: where the engine has less, a line in the log.
int MaxBeamWidth(const LlmParameters& parameters, const ExecutorLimits& limits);

}  // namespace inflight::contract
