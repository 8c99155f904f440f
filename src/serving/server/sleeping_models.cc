// SPDX-License-Identifier: Apache-2.0
#include "serving/server/sleeping_models.h"

#include <algorithm>

#include "base/status_macros.h"
#include "serving/repository/candidate.h"

namespace inflight::serving {

Result<std::vector<std::shared_ptr<LlmModel>>> LlmsOf(const HeldTable& table,
                                                      const std::string& model) {
  if (model.empty()) {
    if (table->llms().empty()) return FailedPrecondition("sleep: no LLM is loaded");
    return table->llms();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> found, table->Find(model, /*version=*/""));
  const std::vector<std::string> members = MembersOf(found->config());
  std::vector<std::shared_ptr<LlmModel>> llms;
  std::string names;
  for (const auto& llm : table->llms()) {
    names += (names.empty() ? "" : ", ") + llm->name();
    if (llm->name() == model || std::ranges::find(members, llm->name()) != members.end())
      llms.push_back(llm);
  }
  if (!llms.empty()) return llms;
  return InvalidArgument("model", "got '" + model + "', must be an LLM or run one: " + names);
}

Status PutToSleep(const std::vector<std::shared_ptr<LlmModel>>& llms, const SleepOptions& options) {
  for (const auto& llm : llms)
    if (const Status slept = llm->executor().Sleep(options); !slept.ok())
      return slept.WithPrefix(llm->name());
  return Status::Ok();
}

Status Wake(const std::vector<std::shared_ptr<LlmModel>>& llms, const WakeOptions& options) {
  for (const auto& llm : llms)
    if (const Status woken = llm->executor().WakeUp(options); !woken.ok())
      return woken.WithPrefix(llm->name());
  return Status::Ok();
}

std::vector<SleepingModel> StatesOf(const std::vector<std::shared_ptr<LlmModel>>& llms) {
  std::vector<SleepingModel> states;
  for (const auto& llm : llms)
    states.push_back(
        {.name = llm->name(), .version = llm->version(), .state = llm->executor().sleep_state()});
  return states;
}

}  // namespace inflight::serving
