// SPDX-License-Identifier: Apache-2.0
#include "loader/gpu_ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/hex.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/remote_ranks.h"
#include "loader/rank_answers.h"

namespace inflight {
namespace {

using executor::CudaFollower;
using executor::MemoryPlan;
using executor::RankCall;
using executor::RankMeeting;
using executor::RankOfProcess;
using nlohmann::json;

// What ranks are planned by and compute by; the rest is the leader's alone. The same for both
// sides: `field` gets each by its name.
template <typename Field, typename Options>
void VisitOptions(const Field& field, Options& o) {
  field("max_batch_size", o.max_batch_size);
  field("max_num_tokens", o.max_num_tokens);
  field("max_seq_len", o.max_seq_len);
  field("max_kv_tokens", o.max_kv_tokens);
  field("kv_cache_free_memory_fraction", o.kv_cache_free_memory_fraction);
  field("block_size", o.block_size);
  field("attention_windows", o.attention_windows);
  field("sink_tokens", o.sink_tokens);
  field("kv_cache_host_bytes", o.kv_cache_host_bytes);
  field("adapter_memory_fraction", o.adapter_memory_fraction);
  field("max_adapter_rank", o.max_adapter_rank);
  field("drafts", o.drafts);
  field("max_draft_len", o.max_draft_len);
  field("deterministic", o.deterministic);
}

struct ToField {
  json& out;
  template <typename T>
  void operator()(const char* name, const T& value) const {
    out[name] = value;
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) const {
    out[name] = value ? json(*value) : json();
  }
};

struct OfField {
  const json& in;
  template <typename T>
  void operator()(const char* name, T& value) const {
    value = in.at(name).get<T>();
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) const {
    value = in.at(name).is_null() ? std::nullopt : std::optional<T>(in.at(name).get<T>());
  }
};

json RoomOf(const Result<MemoryPlan>& plan) {
  json answer = ToJson(plan.status());
  if (!plan.ok()) return answer;
  answer["kv_tokens"] = plan->kv_tokens();
  answer["adapter_bytes"] = plan->adapter_bytes;
  answer["host_blocks"] = plan->num_host_blocks;
  return answer;
}

}  // namespace

Result<executor::LocalBackend> LeadGpuRanks(RankOfProcess rank, comm::Group& group,
                                            const std::shared_ptr<void>& model) {
  json question;
  VisitOptions(ToField{question}, rank.options);
  RETURN_IF_ERROR(TellOthers(group, BytesOf(question.dump())));
  // The others answer whatever becomes of this one.
  const Result<MemoryPlan> own = PlanCudaRank(rank);
  ASSIGN_OR_RETURN(const std::vector<json> rooms, AnswersOf(group));
  RETURN_IF_ERROR(own.status());
  int64_t kv_tokens = own->kv_tokens();
  RankMeeting meeting = {
      .nccl_ids = {}, .adapter_bytes = own->adapter_bytes, .num_host_blocks = own->num_host_blocks};
  for (const json& room : rooms) {
    kv_tokens = std::min(kv_tokens, room.value("kv_tokens", int64_t{0}));
    meeting.adapter_bytes =
        std::min(meeting.adapter_bytes, room.value("adapter_bytes", uint64_t{0}));
    meeting.num_host_blocks =
        std::min(meeting.num_host_blocks, room.value("host_blocks", int64_t{0}));
  }
  rank.options.max_kv_tokens = kv_tokens;
  ASSIGN_OR_RETURN(meeting.nccl_ids, executor::MakeNcclIds(rank.engine->config.part));
  json ids = json::array();
  for (const std::string& id : meeting.nccl_ids) ids.push_back(ToHex(id));
  RETURN_IF_ERROR(TellOthers(group, BytesOf(json{{"kv_tokens", kv_tokens},
                                                 {"adapter_bytes", meeting.adapter_bytes},
                                                 {"host_blocks", meeting.num_host_blocks},
                                                 {"ids", std::move(ids)}}
                                                .dump())));
  return executor::CreateCudaLeader(
      rank, meeting, group,
      [&group]() -> Result<int64_t> {
        ASSIGN_OR_RETURN(const std::vector<json> made, AnswersOf(group));
        int64_t bytes = 0;
        for (const json& answer : made) bytes += answer.value("gpu_bytes", int64_t{0});
        return bytes;
      },
      model);
}

Status FollowOnGpu(RankOfProcess rank, comm::Group& group, LeaderMessages& leader) {
  const auto answer = [&group](const json& said) { return group.Send(0, BytesOf(said.dump())); };
  ASSIGN_OR_RETURN(const std::vector<std::byte> question, leader.Next());
  if (question.empty()) return Status::Ok();
  VisitOptions(OfField{json::parse(TextOf(question))}, rank.options);
  RETURN_IF_ERROR(answer(RoomOf(PlanCudaRank(rank))));
  ASSIGN_OR_RETURN(const std::vector<std::byte> start, leader.Next());
  if (start.empty()) return Status::Ok();
  const json told = json::parse(TextOf(start));
  rank.options.max_kv_tokens = told.at("kv_tokens").get<int64_t>();
  RankMeeting meeting = {.nccl_ids = {},
                         .adapter_bytes = told.at("adapter_bytes").get<uint64_t>(),
                         .num_host_blocks = told.at("host_blocks").get<int64_t>()};
  for (const json& id : told.at("ids"))
    meeting.nccl_ids.push_back(FromHex(id.get<std::string>()).value_or(""));
  Result<std::unique_ptr<CudaFollower>> follower =
      executor::CreateCudaFollower(rank, meeting, group);
  json made = ToJson(follower.status());
  if (follower.ok()) made["gpu_bytes"] = (*follower)->gpu_memory_bytes();
  RETURN_IF_ERROR(answer(made));
  if (!follower.ok()) return Status::Ok();
  logging::Info("this rank computes on a GPU", {{"rank", group.rank()}, {"size", group.size()}});
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> call, leader.Next());
    if (call.empty()) return Status::Ok();
    RankCall::Kind kind{};
    const Status done = (*follower)->Do(TextOf(call), &kind);
    if (!IsAnswered(kind)) {
      RETURN_IF_ERROR(done);
    } else {
      RETURN_IF_ERROR(group.Send(0, BytesOf(executor::AnswerOf(done))));
    }
  }
}

}  // namespace inflight
