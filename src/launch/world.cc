// SPDX-License-Identifier: Apache-2.0
#include "launch/world.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "base/status_macros.h"
#include "launch/host_list.h"
#include "launch/number.h"

namespace inflight::launch {
namespace {

constexpr int kMaxPort = 65535;

// The variables of one launcher; null where it has none for that.
struct Launcher {
  std::string_view name;
  const char* rank;
  std::array<const char*, 2> size;  // the first that is set
  const char* local_rank;
  const char* local_size;
  const char* leader_address;
};

// clang-format off
constexpr Launcher kLaunchers[] = {  // the innermost first
    {"torchrun", "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"Slurm", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "SLURM_LOCALID", nullptr, nullptr},
    {"LeaderWorkerSet", "LWS_WORKER_INDEX", {"LWS_GROUP_SIZE"}, nullptr, nullptr, "LWS_LEADER_ADDRESS"},
};
// clang-format on
constexpr std::string_view kSlurm = "Slurm";

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<std::string_view> Text(const char* name) const {
    const char* value = name == nullptr ? nullptr : environment_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  bool Has(const char* name) const { return Text(name).has_value(); }

  // In [least, limit); `bound` says where the limit comes from.
  Result<int> Number(const char* name, int least, int limit, std::string_view bound) const {
    const std::string_view text = Text(name).value_or("");
    const auto number = WholeNumber(text);
    if (number && *number >= least && *number < limit) return *number;
    return InvalidArgument(name, fmt::format("got '{}', must be a whole number {}", text, bound));
  }

 private:
  const Environment& environment_;
};

Status Lacks(const char* set, const char* missing) {
  return InvalidArgument(missing,
                         fmt::format("is not set, although {} is: set both, or neither", set));
}

// A job's script has the variables of a rank without being one: `sbatch` starts it alone.
bool IsScriptOfJob(const Variables& variables) {
  return variables.Has("SLURM_JOB_ID") && !variables.Has("SLURM_STEP_ID") &&
         !variables.Has("SLURM_STEPID");
}

const char* SizeVariable(const Launcher& launcher, const Variables& variables) {
  for (const char* name : launcher.size)
    if (variables.Has(name)) return name;
  return nullptr;
}

bool Started(const Launcher& launcher, const Variables& variables) {
  // A shell of salloc knows the job's size and has no rank; a job's script has both.
  if (launcher.name == kSlurm) return variables.Has(launcher.rank) && !IsScriptOfJob(variables);
  return variables.Has(launcher.rank) || SizeVariable(launcher, variables) != nullptr;
}

// Slurm writes how many tasks each node has; SLURM_NODEID is this node's place in that list.
Result<int> TasksOfThisNode(const Variables& variables) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto list = variables.Text(name);
    if (!list) continue;
    if (!variables.Has("SLURM_NODEID")) return Lacks(name, "SLURM_NODEID");
    ASSIGN_OR_RETURN(const int node, variables.Number("SLURM_NODEID", 0, 1 << 20, "of a node"));
    const auto tasks = TasksOfNode(*list, node);
    if (tasks && *tasks > 0) return *tasks;
    return InvalidArgument(
        name, fmt::format("got '{}', which has no number of tasks for node {}, SLURM_NODEID; a "
                          "list is 2(x3),1",
                          *list, node));
  }
  return Lacks("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE");
}

Status ReadLocal(const Launcher& launcher, const Variables& variables, World& world) {
  const bool has_rank = variables.Has(launcher.local_rank);
  const bool has_size = variables.Has(launcher.local_size);
  if (!has_rank && !has_size) return Status::Ok();
  if (!has_rank) return Lacks(launcher.local_size, launcher.local_rank);
  if (launcher.name == kSlurm) {
    ASSIGN_OR_RETURN(world.local_size, TasksOfThisNode(variables));
  } else {
    if (!has_size) return Lacks(launcher.local_rank, launcher.local_size);
    ASSIGN_OR_RETURN(
        world.local_size,
        variables.Number(launcher.local_size, 1, world.size + 1,
                         fmt::format("from 1 to {}, the ranks of all hosts", world.size)));
  }
  ASSIGN_OR_RETURN(
      world.local_rank,
      variables.Number(launcher.local_rank, 0, world.local_size,
                       fmt::format("below {}, the ranks of this host", world.local_size)));
  return Status::Ok();
}

Result<std::string> LeaderAddress(const Launcher& launcher, const Variables& variables,
                                  const World& world) {
  if (launcher.name == kSlurm) {
    // Rank 0 runs on the first node of its step.
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
      const auto list = variables.Text(name);
      if (!list) continue;
      auto host = FirstHost(*list);
      if (host) return *std::move(host);
      return InvalidArgument(
          name, fmt::format("got '{}', must be a list of hosts as gpu[008-011,20]", *list));
    }
  }
  if (const auto address = variables.Text(launcher.leader_address)) return std::string(*address);
  if (world.local_size == world.size) return std::string("127.0.0.1");
  return std::string();
}

Result<World> ReadWorld(const Launcher& launcher, const Variables& variables) {
  World world{.launcher = launcher.name};
  const char* size = SizeVariable(launcher, variables);
  if (size == nullptr) return Lacks(launcher.rank, launcher.size[0]);
  if (!variables.Has(launcher.rank)) return Lacks(size, launcher.rank);
  ASSIGN_OR_RETURN(world.size, variables.Number(size, 1, 1 << 20, "from 1 to 1048575"));
  ASSIGN_OR_RETURN(world.rank,
                   variables.Number(launcher.rank, 0, world.size,
                                    fmt::format("below {}, which {} says", world.size, size)));
  RETURN_IF_ERROR(ReadLocal(launcher, variables, world));
  ASSIGN_OR_RETURN(world.leader_address, LeaderAddress(launcher, variables, world));
  return world;
}

// Takes from `other`, a world of the same rank and size, what `world` leaves open.
void Complete(World& world, const World& other) {
  if (world.local_size == 1) {
    world.local_rank = other.local_rank;
    world.local_size = other.local_size;
  }
  if (world.leader_address.empty()) world.leader_address = other.leader_address;
}

// A convention of PyTorch that scripts of all launchers keep.
Status ReadMaster(const Variables& variables, World& world) {
  if (const auto address = variables.Text("MASTER_ADDR"))
    world.leader_address = std::string(*address);
  if (!variables.Has("MASTER_PORT")) return Status::Ok();
  ASSIGN_OR_RETURN(world.leader_port,
                   variables.Number("MASTER_PORT", 1, kMaxPort + 1, "from 1 to 65535"));
  return Status::Ok();
}

}  // namespace

Result<World> FindWorld(const Environment& environment) {
  const Variables variables(environment);
  std::optional<World> world;
  for (const Launcher& launcher : kLaunchers) {
    if (!Started(launcher, variables)) continue;
    auto found = ReadWorld(launcher, variables);
    if (!world) {
      if (!found.ok()) return found.status();
      world = *std::move(found);
    } else if (found.ok() && found->rank == world->rank && found->size == world->size) {
      Complete(*world, *found);
    }
  }
  if (!world && variables.Has("PMIX_RANK"))
    return InvalidArgument(
        "PMIX_RANK", fmt::format("is set to '{}', and no variable says of how many ranks: set "
                                 "RANK and WORLD_SIZE, or unset it",
                                 *variables.Text("PMIX_RANK")));
  if (!world) world.emplace().leader_address = "127.0.0.1";
  if (world->size > 1) RETURN_IF_ERROR(ReadMaster(variables, *world));
  return *std::move(world);
}

}  // namespace inflight::launch
