// SPDX-License-Identifier: Apache-2.0
// What make_lora_golden.py keeps of models with merged adapters, read back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "golden_case.h"
#include "inflight/adapter.h"
#include "inflight/request.h"

namespace inflight::golden {

struct LoraCase : GoldenCase {
  std::string adapter;  // empty: none

  std::string Name() const { return model + " " + (adapter.empty() ? "alone" : adapter); }
};

std::vector<LoraCase> ReadLoraCases();

// As its directory says.
std::shared_ptr<const LoraTensors> ReadAdapter(const LoraCase& c);

// Greedy, the logits returned; with the case's adapter under task id `id`.
Request RequestOf(const LoraCase& c, uint64_t id);

// The whole of a case as a prompt, for its logits: near ties may be decided otherwise in half
// precision. And what of an answer to it, context_logits, WorstLogit expects.
Request WholeOf(const LoraCase& c, uint64_t id);
std::vector<float> LogitsOfWhole(const LoraCase& c, const std::vector<float>& context_logits);

}  // namespace inflight::golden
