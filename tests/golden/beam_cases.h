// SPDX-License-Identifier: Apache-2.0
// Beam searches and what transformers found in them (make_beam_golden.py), read back.
#pragma once

#include <string>
#include <vector>

#include "inflight/request.h"

namespace inflight::golden {

struct BeamCase {
  Request request;
  std::vector<std::vector<TokenId>> sequences;
  std::vector<float> scores;  // means of log-probabilities
};

// Every second one streams.
std::vector<BeamCase> ReadBeamCases(const std::string& model);

}  // namespace inflight::golden
