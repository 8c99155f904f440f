// SPDX-License-Identifier: Apache-2.0
// Parameters of the config.pbtxt of preprocessing, postprocessing and tensorrt_llm_bls. Each key is
// honoured, ignored for a reason or refused by name, as ParseLlmParameters does it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "contract/key_report.h"
#include "inflight/status.h"

namespace inflight::contract {

using ParameterMap = std::map<std::string, std::string>;

struct TextParameters {
  std::string tokenizer_dir;  // empty = the tokenizer beside the engine
  // add_special_tokens of preprocessing, skip_special_tokens of postprocessing.
  bool special_tokens = true;
  std::vector<std::string> warnings;
};

// Up to 0.10 an unset or unknown add_special_tokens means false, later true.
Result<TextParameters> ParsePreprocessingParameters(const ParameterMap& parameters,
                                                    bool default_add_special_tokens,
                                                    KeyReport* report = nullptr);
Result<TextParameters> ParsePostprocessingParameters(const ParameterMap& parameters,
                                                     KeyReport* report = nullptr);

struct BlsParameters {
  // Upstream names the LLM alone; two pipelines in one repository need the others too.
  std::string preprocessing = "preprocessing";
  std::string llm = "tensorrt_llm";
  std::string postprocessing = "postprocessing";
  std::string draft_llm;           // proposes tokens to `llm`; empty: none
  bool accumulate_tokens = false;  // each streamed text is all of the answer so far
  std::vector<std::string> warnings;
};

Result<BlsParameters> ParseBlsParameters(const ParameterMap& parameters,
                                         KeyReport* report = nullptr);

}  // namespace inflight::contract
