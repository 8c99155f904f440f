// SPDX-License-Identifier: Apache-2.0
#include "loader/orchestrator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/child_process.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "comm/tcp.h"
#include "loader/leader_messages.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

constexpr char kOwnProgram[] = "/proc/self/exe";
constexpr std::chrono::seconds kForEnding{10};

uint64_t NewSecret() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// Whoever writes a model's files shall not have programs of theirs started.
Status CheckProgram(const std::string& program) {
  std::error_code error;
  if (program.empty() || fs::equivalent(program, kOwnProgram, error)) return Status::Ok();
  return InvalidArgument(
      "executor_worker_path",
      fmt::format("got '{}', which is {}: leave it out, or make it a link to that program", program,
                  fs::exists(program, error) ? "not the server's own program" : "no file"));
}

}  // namespace

Result<std::shared_ptr<void>> IdClaims::Take(const std::vector<int>& ids,
                                             const std::string& model) {
  for (auto id = ids.begin(); id != ids.end(); ++id)
    if (std::find(ids.begin(), id, *id) != id)
      return InvalidArgument(key_, fmt::format("got {} twice, must be another for each rank", *id));
  std::unique_lock lock(mutex_);
  const auto taken = [&] {
    return std::ranges::find_if(ids, [&](int id) { return owners_.contains(id); });
  };
  given_back_.wait_for(lock, patience_, [&] { return taken() == ids.end(); });
  if (const auto id = taken(); id != ids.end())
    return FailedPrecondition(fmt::format("{}: got {}, which ranks of model {} have: name another, "
                                          "or unload that model first",
                                          key_, *id, owners_[*id]))
        .WithField(key_);
  for (const int id : ids) owners_[id] = model;
  return std::shared_ptr<void>(nullptr, [claims = shared_from_this(), ids](void*) {
    {
      const std::lock_guard end(claims->mutex_);
      for (const int id : ids) claims->owners_.erase(id);
    }
    claims->given_back_.notify_all();
  });
}

// What a model has beside its group.
class Orchestrator::Crew {
 public:
  explicit Crew(std::string model) : model_(std::move(model)) {}
  ~Crew() {
    if (ranks_ == nullptr) return;  // they wait for each other
    ranks_->SayGoodbye();
    const auto deadline = std::chrono::steady_clock::now() + kForEnding;
    for (const auto& worker : workers_) {
      const auto left = std::max(deadline - std::chrono::steady_clock::now(), {});
      if (!worker->WaitUntilEnded(std::chrono::duration_cast<std::chrono::milliseconds>(left)))
        logging::Warning("a worker does not end, and is killed",
                         {{"model", model_}, {"process", worker->id()}});
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void Keep(std::shared_ptr<void> claim) { claims_.push_back(std::move(claim)); }
  // All have met; `ranks` keep this.
  void Complete(RankProcesses& ranks) { ranks_ = &ranks; }

  Status StartWorker(const RankOrder& order) {
    const int rank = order.world.rank;
    const std::string name = fmt::format("rank {} of {}", rank, order.world.size);
    auto worker =
        ChildProcess::Start(kOwnProgram, {"inflight", "worker", model_, name},
                            [name, model = model_](const std::string& how) {
                              const auto level = how == "exit status 0" ? logging::Level::kInfo
                                                                        : logging::Level::kError;
                              logging::Log(level, "a worker has ended",
                                           {{"model", model}, {"worker", name}, {"how", how}});
                            });
    if (!worker.ok()) return worker.status().WithPrefix(name);
    workers_.push_back(*std::move(worker));
    return workers_.back()->Write(ToText(order) + "\n").WithPrefix(name);
  }

  // Whether all that have been started run.
  Status Check() const {
    for (size_t i = 0; i < workers_.size(); ++i)
      if (const auto how = workers_[i]->how_it_ended())
        return Unavailable(
            fmt::format("rank {} has ended before it could compute, with {}: see its "
                        "lines in the log",
                        i + 1, *how));
    return Status::Ok();
  }

 private:
  const std::string model_;
  RankProcesses* ranks_ = nullptr;
  std::vector<std::shared_ptr<void>> claims_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;  // of ranks 1, 2, ...
};

std::shared_ptr<Orchestrator> Orchestrator::ThatStarts(std::string device, int num_threads,
                                                       std::string cannot_start) {
  std::shared_ptr<Orchestrator> made(new Orchestrator(true, {.leader_address = "127.0.0.1"}));
  made->common_.device = std::move(device);
  made->common_.num_threads = num_threads;
  made->cannot_start_ = std::move(cannot_start);
  return made;
}

std::shared_ptr<Orchestrator> Orchestrator::ThatGivesOut(std::shared_ptr<comm::Group> launched,
                                                         const launch::World& world) {
  std::shared_ptr<Orchestrator> made(new Orchestrator(false, world));
  made->launched_ = std::move(launched);
  return made;
}

Orchestrator::~Orchestrator() {
  if (launched_ == nullptr) return;
  if (const Status told = TellGoodbye(*launched_); !told.ok())
    logging::Verbose("processes of the launcher are gone", {{"reason", told.message()}});
}

Status Orchestrator::Check(const RankRequest& request) const {
  const auto num_ranks = static_cast<size_t>(request.num_ranks);
  RETURN_IF_ERROR(CheckProgram(request.program));
  if (starts_) return cannot_start_.empty() ? Status::Ok() : FailedPrecondition(cannot_start_);
  const int num_launched = launched_ == nullptr ? 1 : launched_->size();
  const auto is_wrong = [&](int id) { return id < 1 || id >= num_launched; };
  if (request.participants.size() == num_ranks &&
      std::ranges::none_of(request.participants, is_wrong))
    return Status::Ok();
  return InvalidArgument(
      "participant_ids",
      fmt::format("got '{}', must be one for each of {} ranks, of the {} processes that the "
                  "launcher started from 1 on: 0 is the server",
                  fmt::join(request.participants, ","), num_ranks, num_launched));
}

Status Orchestrator::SetUp(const RankRequest& request, RankOrder order, Crew& crew) {
  for (int rank = 1; rank < request.num_ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    order.world.rank = rank;
    if (starts_) {
      RETURN_IF_ERROR(crew.StartWorker(order));
    } else {
      RETURN_IF_ERROR(launched_->Send(request.participants[at], BytesOf(ToText(order))));
    }
  }
  return Status::Ok();
}

Result<std::shared_ptr<RankProcesses>> Orchestrator::StartRanks(const RankRequest& request) {
  RETURN_IF_ERROR(Check(request));
  const auto crew = std::make_shared<Crew>(request.model);
  if (!starts_) {  // of the first the server does the work, and its process waits
    const auto first = request.participants.begin() + 1;
    ASSIGN_OR_RETURN(auto participants,
                     participants_->Take({first, request.participants.end()}, request.model));
    crew->Keep(std::move(participants));
  }
  ASSIGN_OR_RETURN(Descriptor listener, comm::Listen(world_.leader_address, /*port=*/0));
  RankOrder order = common_;
  order.model = request.model;
  order.world = {
      .rank = 0,
      .size = request.num_ranks,
      .local_size = starts_ ? request.num_ranks : std::min(request.num_ranks, world_.local_size),
      .leader_address = world_.leader_address,
      .leader_port = comm::PortOf(listener),
      .launcher = "the server"};
  order.secret = NewSecret();
  order.log = logging::CurrentSettings();
  {
    const std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(SetUp(request, order, *crew));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<RankProcesses> processes,
                   JoinAsOrdered(order, {.listener = listener.Release(), .check = [&] {
                                           return launched_ == nullptr ? crew->Check()
                                                                       : launched_->status();
                                         }}));
  crew->Complete(*processes);
  processes->Keep(crew);
  return processes;
}

}  // namespace inflight
