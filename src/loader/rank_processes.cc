// SPDX-License-Identifier: Apache-2.0
#include "loader/rank_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "comm/host_communicator.h"
#include "executor/rank_leader.h"
#include "loader/devices.h"
#include "loader/draft_model.h"
#include "loader/gpu_ranks.h"
#include "loader/leader_messages.h"
#include "loader/loader.h"
#include "loader/rank_answers.h"

namespace inflight {
namespace {

using comm::Group;
using executor::FollowerShape;
using nlohmann::json;

// Names of both sides: "field": what OpenOptions or FollowerShape call it.
json ToJson(const FollowerShape& shape) {
  return {{"max_num_tokens", shape.max_num_tokens}, {"max_logits", shape.max_logits},
          {"block_size", shape.block_size},         {"num_blocks", shape.num_blocks},
          {"windows", shape.windows.windows},       {"num_sinks", shape.windows.num_sinks},
          {"kv_groups", shape.windows.groups},      {"adapter_bytes", shape.adapter_bytes},
          {"states", shape.head_inputs.states},     {"layers", shape.head_inputs.layers}};
}

FollowerShape ShapeOf(const json& told) {
  return {.max_num_tokens = told.at("max_num_tokens"),
          .max_logits = told.at("max_logits"),
          .block_size = told.at("block_size"),
          .num_blocks = told.at("num_blocks"),
          .adapter_bytes = told.at("adapter_bytes"),
          .windows = {.windows = told.at("windows"),
                      .num_sinks = told.at("num_sinks"),
                      .groups = told.at("kv_groups")},
          .head_inputs = {.states = told.at("states"), .layers = told.at("layers")}};
}

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value ? json(*value) : json();
}
template <typename T>
std::optional<T> Optional(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

json ToJson(const std::filesystem::path& dir, const OpenOptions& options,
            const artifact::RankMapping& ranks) {
  return {{"directory", dir.string()},
          {"tensor_parallel_size", ranks.tp_size},
          {"pipeline_parallel_size", ranks.pp_size},
          {"moe_ep_size", ranks.moe_ep_size},
          {"dtype", options.dtype},
          {"quant_algo", options.quant_algo},
          {"draft_model", options.draft_model.string()},
          {"gpus", options.gpus},
          {"group_size", OrNull(options.group_size)},
          {"fp8_kv_cache", OrNull(options.fp8_kv_cache)},
          {"quantize_lm_head", OrNull(options.quantize_lm_head)}};
}

constexpr std::span<const std::byte> kGiveUp;  // of a load, or of the model that runs

// Those of a rank, which all ranks make at the same time; `made` keeps them.
Result<comm::RankGroups> MakeGroups(Group& group, const model::RankPart& part,
                                    std::vector<std::unique_ptr<comm::Communicator>>* made) {
  std::vector<int> tensor;
  std::vector<int> pipeline;
  for (int t = 0; t < part.tp_size; ++t) tensor.push_back(part.pp_rank * part.tp_size + t);
  for (int p = 0; p < part.pp_size; ++p) pipeline.push_back(p * part.tp_size + part.tp_rank);
  const auto make = [&](std::vector<int> members) -> Result<comm::Communicator*> {
    if (members.size() == 1) return nullptr;
    ASSIGN_OR_RETURN(made->emplace_back(), comm::MakeHostCommunicator(group, std::move(members)));
    return made->back().get();
  };
  comm::RankGroups groups;
  ASSIGN_OR_RETURN(groups.tensor, make(std::move(tensor)));
  ASSIGN_OR_RETURN(groups.pipeline, make(std::move(pipeline)));
  return groups;
}

}  // namespace

Result<std::unique_ptr<RankProcesses::Load>> RankProcesses::BeginLoad(
    const std::filesystem::path& dir, const OpenOptions& options,
    const artifact::RankMapping& ranks) {
  if (ranks.num_ranks() != size())
    return FailedPrecondition(fmt::format(
        "{}: tensor_parallel_size {} and pipeline_parallel_size {} are {} ranks, of which the "
        "launcher started {}: start as many processes, or one alone, whose threads they are",
        dir.string(), ranks.tp_size, ranks.pp_size, ranks.num_ranks(), size()));
  RETURN_IF_ERROR(status());
  {
    // A model that is being unloaded has them until its last request has ended.
    constexpr std::chrono::seconds kPatience{5};
    std::unique_lock lock(mutex_);
    if (!are_free_.wait_for(lock, kPatience, [this] { return loaded_.empty(); }))
      return FailedPrecondition(fmt::format(
          "{}: the ranks run {} already, and one model at a time: unload that one "
          "first, start one server with TRTLLM_ORCHESTRATOR=1, which starts ranks of "
          "their own for each model, or build this one for rank 0 alone (inflight build "
          "--merge-ranks)",
          dir.string(), loaded_));
    loaded_ = dir.string();
  }
  std::unique_ptr<Load> load(new Load(shared_from_this()));
  load->dir_ = dir;
  RETURN_IF_ERROR(load->Tell(ToJson(dir, options, ranks).dump()));
  return load;
}

Status RankProcesses::Load::Tell(const std::string& message) {
  is_awaited_ = true;
  return TellOthers(*processes_->group_, BytesOf(message));
}

Result<std::vector<json>> RankProcesses::Load::Answers() {
  is_awaited_ = false;
  return AnswersOf(*processes_->group_);
}

void RankProcesses::SayGoodbye() {
  if (const Status told = TellGoodbye(*group_); !told.ok())
    logging::Verbose("ranks are gone", {{"reason", told.message()}});
}

RankProcesses::Load::~Load() {
  if (processes_ == nullptr) return;
  // Each rank answers whatever it was told, also with an error.
  if (is_awaited_) static_cast<void>(Answers());
  processes_->GiveUpModel();
}

void RankProcesses::GiveUpModel() {
  if (const Status told = TellOthers(*group_, kGiveUp); !told.ok())
    logging::Verbose("ranks are gone", {{"reason", told.message()}});
  {
    const std::lock_guard lock(mutex_);
    loaded_.clear();
  }
  are_free_.notify_one();
}

Status RankProcesses::Load::CheckFiles() {
  ASSIGN_OR_RETURN(const uint64_t own, builder::RanksFingerprint(dir_));
  ASSIGN_OR_RETURN(const std::vector<json> loaded, Answers());
  for (size_t i = 0; i < loaded.size(); ++i)
    if (loaded[i].value("fingerprint", uint64_t{0}) != own)
      return FailedPrecondition(
          fmt::format("rank {} has other files in {} than rank 0: copy the model to its host again",
                      i + 1, dir_.string()));
  return Status::Ok();
}

Result<executor::LocalBackend> RankProcesses::Load::CreateBackend(
    const std::shared_ptr<const model::Engine>& engine, Device& device,
    const ExecutorOptions& options, const std::string& force_ops,
    const executor::DraftWeights& draft) {
  RETURN_IF_ERROR(CheckFiles());
  ExecutorOptions for_each = options;
  for_each.kv_cache_host_bytes /= static_cast<uint64_t>(processes_->ranks_of_this_host_);
  if (device.kind() == DeviceKind::kCuda) {
    Group& group = *processes_->group_;
    const std::shared_ptr<void> model(
        nullptr, [processes = std::move(processes_)](void*) { processes->GiveUpModel(); });
    return LeadGpuRanks(
        {.engine = engine, .device = device, .draft = draft, .options = for_each, .ops = force_ops},
        group, model);
  }
  const auto sizing = device.ledger().LockSizing();
  ASSIGN_OR_RETURN(
      const executor::MemoryPlan plan,
      executor::PlanShare(*engine, device, for_each, draft, processes_->ranks_of_this_host_));
  json asked = ToJson(executor::FollowerShapeOf(plan));
  asked["fraction"] = options.kv_cache_free_memory_fraction;
  RETURN_IF_ERROR(Tell(asked.dump()));
  ASSIGN_OR_RETURN(const std::vector<json> rooms, Answers());
  int64_t num_blocks = plan.num_blocks + plan.num_host_blocks;
  for (size_t i = 0; i < rooms.size(); ++i) {
    num_blocks = std::min(num_blocks, rooms[i].value("num_blocks", int64_t{0}));
    if (num_blocks > plan.num_host_blocks) continue;
    return OutOfMemory(fmt::format(
        "rank {} has room for {} KV blocks of {} tokens, {} are needed beside the host "
        "pool's {}; free memory on its host, or lower max_num_tokens or max_batch_size",
        i + 1, num_blocks, plan.block_size, plan.num_host_blocks + 1, plan.num_host_blocks));
  }
  for_each.max_kv_tokens = (num_blocks - plan.num_host_blocks) * plan.block_size;
  return executor::CreateLocalBackend(
      engine, device, for_each, force_ops, draft,
      [&](const executor::MemoryPlan& final_plan, const ops::OpTable& ops) {
        return Start(engine->config.part, final_plan, ops.name);
      });
}

class RankProcesses::Followers : public executor::RankFollowers {
 public:
  // Keeps the leader's communicators, too.
  Followers(std::shared_ptr<RankProcesses> processes,
            std::vector<std::unique_ptr<comm::Communicator>> communicators)
      : processes_(std::move(processes)), communicators_(std::move(communicators)) {}
  ~Followers() override { processes_->GiveUpModel(); }

  Status Tell(std::span<const std::byte> call) override {
    return TellOthers(*processes_->group_, call);
  }
  Status status() const override { return processes_->status(); }
  void Abort(const Status& reason) override { processes_->group_->Abort(reason); }

 private:
  const std::shared_ptr<RankProcesses> processes_;
  const std::vector<std::unique_ptr<comm::Communicator>> communicators_;
};

Result<executor::RankMembership> RankProcesses::Load::Start(const model::RankPart& part,
                                                            const executor::MemoryPlan& plan,
                                                            const std::string& ops) {
  Group& group = *processes_->group_;
  json start = ToJson(executor::FollowerShapeOf(plan));
  start["ops"] = ops;
  RETURN_IF_ERROR(Tell(start.dump()));
  std::vector<std::unique_ptr<comm::Communicator>> communicators;
  executor::RankMembership membership;
  ASSIGN_OR_RETURN(membership.groups, MakeGroups(group, part, &communicators));
  RETURN_IF_ERROR(Answers().status());
  auto followers = std::make_unique<Followers>(std::move(processes_), std::move(communicators));
  membership.leader = std::make_unique<executor::RankLeader>(std::move(followers), plan.block_size);
  return membership;
}

// What a rank above 0 does, from one model to the next.
class RankProcesses::Follower {
 public:
  Follower(Group& group, int ranks_of_this_host, int local_rank, const OpenOptions& options,
           const std::function<bool()>& is_asked_to_stop)
      : group_(group),
        ranks_of_this_host_(ranks_of_this_host),
        local_rank_(local_rank),
        options_(options),
        leader_(group, is_asked_to_stop) {}

  Status Run() {
    while (true) {
      auto message = leader_.Next();
      if (IsGoodbye(message.status())) return Status::Ok();
      if (!message.ok()) return message.status();
      if (message->empty()) continue;  // of a load that failed here
      Status done;
      try {
        done = RunModel(*message);
      } catch (const json::exception& error) {
        done = Caught("what rank 0 says", error);
      }
      if (IsGoodbye(done)) return Status::Ok();
      RETURN_IF_ERROR(done);
    }
  }

 private:
  using Bytes = std::vector<std::byte>;

  static bool IsGoodbye(const Status& status) { return status.code() == StatusCode::kCancelled; }

  static json Parse(const Bytes& message) { return json::parse(TextOf(message)); }
  Status Answer(const json& answer) { return group_.Send(0, BytesOf(answer.dump())); }

  // From the order to load a model to its end. Errors of the model itself are the leader's to tell;
  // what is returned ends this rank.
  Status RunModel(const Bytes& order) {
    Result<std::shared_ptr<const model::Engine>> engine = Open(Parse(order));
    json answer = ToJson(engine.status());
    if (engine.ok()) {
      const auto fingerprint = builder::RanksFingerprint(directory_);
      answer = ToJson(fingerprint.status());
      if (fingerprint.ok()) answer["fingerprint"] = *fingerprint;
    }
    RETURN_IF_ERROR(Answer(answer));
    if (engine.ok() && device_->kind() == DeviceKind::kCuda)
      return FollowOnGpu(
          {.engine = *engine, .device = *device_, .draft = drafts_, .ops = options_.ops}, group_,
          leader_);
    ASSIGN_OR_RETURN(const Bytes plan, leader_.Next());
    if (plan.empty() || !engine.ok()) return Status::Ok();
    RETURN_IF_ERROR(Answer(RoomFor(Parse(plan), (*engine)->config, (*engine)->limits)));
    ASSIGN_OR_RETURN(const Bytes start, leader_.Next());
    if (start.empty()) return Status::Ok();
    std::vector<std::unique_ptr<comm::Communicator>> communicators;
    ASSIGN_OR_RETURN(const comm::RankGroups groups,
                     MakeGroups(group_, (*engine)->config.part, &communicators));
    auto follower = Create(*engine, Parse(start), groups);
    RETURN_IF_ERROR(Answer(ToJson(follower.status())));
    if (!follower.ok()) return Status::Ok();
    logging::Info(
        "this rank computes",
        {{"rank", group_.rank()}, {"size", group_.size()}, {"path", directory_.string()}});
    while (true) {
      ASSIGN_OR_RETURN(const Bytes call, leader_.Next());
      if (call.empty()) break;
      RETURN_IF_ERROR((*follower)->Do(call));
    }
    logging::Info("this rank waits for the next model");
    return Status::Ok();
  }

  Result<std::shared_ptr<const model::Engine>> Open(const json& order) {
    OpenOptions options = options_;
    directory_ = order.at("directory").get<std::string>();
    options.tensor_parallel_size = order.at("tensor_parallel_size").get<int>();
    options.pipeline_parallel_size = order.at("pipeline_parallel_size").get<int>();
    options.moe_ep_size = order.at("moe_ep_size").get<int>();
    options.moe_tp_size = std::nullopt;
    options.dtype = order.at("dtype");
    options.quant_algo = order.at("quant_algo");
    options.group_size = Optional<int>(order.at("group_size"));
    options.fp8_kv_cache = Optional<bool>(order.at("fp8_kv_cache"));
    options.quantize_lm_head = Optional<bool>(order.at("quantize_lm_head"));
    ASSIGN_OR_RETURN(builder::OpenOptions open, loader::BuilderOptions(directory_, options));
    open.rank = group_.rank();
    ASSIGN_OR_RETURN(device_, DeviceOfRank(options, order.at("gpus"), open.rank));
    if (device_->kind() == DeviceKind::kCuda)
      open.rank = executor::CudaRankOf(group_.rank(), open.ranks.tp_size, open.ranks.pp_size);
    ASSIGN_OR_RETURN(auto engine, builder::Open(directory_, *device_, open));
    drafts_ = {};
    options.draft_model = order.at("draft_model").get<std::string>();
    if (device_->kind() == DeviceKind::kCuda && !options.draft_model.empty()) {
      ASSIGN_OR_RETURN(const loader::OpenedDrafts opened,
                       loader::OpenDrafts(*engine, *device_, options));
      drafts_ = opened.weights;
    }
    return engine;
  }

  // A GPU of its own for each rank of a host: that which the model names for it, or of this
  // process's the one of its place; the only one, where its launcher lets it see no other.
  Result<std::shared_ptr<Device>> DeviceOfRank(OpenOptions options, const std::vector<int>& gpus,
                                               int rank) const {
    if (options.devices == nullptr) {
      ASSIGN_OR_RETURN(options.devices, FindDevices(options.device, options.num_threads));
    }
    ASSIGN_OR_RETURN(const auto first, loader::DeviceFor(directory_, options, rank));
    if (first->kind() != DeviceKind::kCuda || local_rank_ == 0) return first;
    const auto place = static_cast<size_t>(local_rank_);
    if (!gpus.empty())
      return options.devices->ForGpu(directory_, gpus[std::min(place, gpus.size() - 1)]);
    if (!Device::Cuda(1).ok()) return first;
    return options.devices->Behind(*first, local_rank_);
  }

  // How many blocks fit into this rank's share of its host.
  json RoomFor(const json& plan, const model::ModelConfig& config,
               const model::EngineLimits& limits) {
    const FollowerShape shape = ShapeOf(plan);
    const uint64_t share = device_->FreeBytes() / static_cast<uint64_t>(ranks_of_this_host_);
    const uint64_t workspace = model::Decoder::WorkspaceBytes(
        config, device_->kind(), limits.max_seq_len, shape.max_num_tokens, shape.max_logits);
    const uint64_t taken = workspace + shape.adapter_bytes;
    const auto left = static_cast<double>(share - std::min(share, taken));
    json answer = ToJson(Status::Ok());
    answer["num_blocks"] =
        executor::FollowerBlocks(config, device_->kind(), shape,
                                 static_cast<uint64_t>(plan.at("fraction").get<double>() * left));
    return answer;
  }

  Result<std::unique_ptr<executor::RankFollower>> Create(
      const std::shared_ptr<const model::Engine>& engine, const json& start,
      comm::RankGroups groups) {
    const std::string name = start.at("ops");
    ASSIGN_OR_RETURN(const ops::OpTable ops,
                     ops::FindOps(*device_, model::KernelShape(engine->config), name));
    return executor::RankFollower::Create(engine, *device_, ShapeOf(start), ops, groups);
  }

  Group& group_;
  const int ranks_of_this_host_;
  const int local_rank_;
  const OpenOptions& options_;
  LeaderMessages leader_;
  std::filesystem::path directory_;
  std::shared_ptr<Device> device_;
  executor::DraftWeights drafts_;  // on GPUs: each rank drafts
};

Status RankProcesses::Follow(const OpenOptions& options,
                             const std::function<bool()>& is_asked_to_stop) {
  Status done =
      Follower(*group_, ranks_of_this_host_, local_rank_, options, is_asked_to_stop).Run();
  if (!done.ok()) group_->Abort(done);  // else the others would think that this rank left
  return done;
}

}  // namespace inflight
