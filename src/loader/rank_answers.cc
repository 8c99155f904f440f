// SPDX-License-Identifier: Apache-2.0
#include "loader/rank_answers.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "loader/leader_messages.h"

namespace inflight {

using comm::Group;
using nlohmann::json;

json ToJson(const Status& status) {
  return {{"code", static_cast<int>(status.code())}, {"message", status.message()}};
}

Result<std::vector<json>> AnswersOf(Group& group) {
  std::vector<json> answers;
  Status failed;
  for (int rank = 1; rank < group.size(); ++rank) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> message,
                     group.Receive(rank, comm::Deadline::max()));
    answers.push_back(json::parse(TextOf(message), nullptr, /*allow_exceptions=*/false));
    const json& answer = answers.back();
    if (!answer.is_object() || !answer.contains("code"))
      return DataLoss(fmt::format("rank {} answers what is no answer", rank));
    const auto code = static_cast<StatusCode>(answer["code"].get<int>());
    if (code != StatusCode::kOk && failed.ok())
      failed = Status(code, fmt::format("rank {}: {}", rank, answer["message"].get<std::string>()));
  }
  if (!failed.ok()) return failed;
  return answers;
}

}  // namespace inflight
