// SPDX-License-Identifier: Apache-2.0
// Putting the LLMs of a server to sleep and waking them (docs/sleep.md).
//
// Threads: any. Calls wait for the models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inflight/executor.h"
#include "serving/llm/llm_model.h"
#include "serving/repository/model_table.h"

namespace inflight::serving {

struct SleepingModel {
  std::string name;
  std::string version;
  SleepState state;
};

// The LLMs that `model` is, or whose steps it runs; all where it is empty. kNotFound for an unknown
// name, kInvalidArgument for a model without one.
Result<std::vector<std::shared_ptr<LlmModel>>> LlmsOf(const HeldTable& table,
                                                      const std::string& model);

// One after the other; the first error, with the model's name, ends it: those before it sleep, or
// are awake.
Status PutToSleep(const std::vector<std::shared_ptr<LlmModel>>& llms, const SleepOptions& options);
Status Wake(const std::vector<std::shared_ptr<LlmModel>>& llms, const WakeOptions& options);

std::vector<SleepingModel> StatesOf(const std::vector<std::shared_ptr<LlmModel>>& llms);

}  // namespace inflight::serving
