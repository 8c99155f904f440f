// SPDX-License-Identifier: Apache-2.0
// Environments as the launchers' documentation describes them.
#include "launch/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace inflight::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Set = std::map<std::string, std::string>;

Result<World> Find(const Set& set) {
  return FindWorld([&set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  });
}

struct Expected {
  int rank, size, local_rank, local_size;
  std::string leader_address;
  int leader_port;
  std::string launcher;
};

void ExpectWorld(const Set& set, const Expected& expected) {
  const auto world = Find(set);
  ASSERT_TRUE(world.ok()) << world.status().ToString();
  EXPECT_EQ(world->rank, expected.rank);
  EXPECT_EQ(world->size, expected.size);
  EXPECT_EQ(world->local_rank, expected.local_rank);
  EXPECT_EQ(world->local_size, expected.local_size);
  EXPECT_EQ(world->leader_address, expected.leader_address);
  EXPECT_EQ(world->leader_port, expected.leader_port);
  EXPECT_EQ(world->launcher, expected.launcher);
}

void ExpectError(const Set& set, const std::string& field, const std::string& words) {
  const auto world = Find(set);
  ASSERT_FALSE(world.ok()) << field;
  EXPECT_EQ(world.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(world.status().message(), AllOf(HasSubstr(field + ": "), HasSubstr(words)));
  EXPECT_EQ(world.status().field(), field);
}

TEST(World, IsOneRankWhereNothingIsSet) { ExpectWorld({}, {0, 1, 0, 1, "127.0.0.1", 29500, ""}); }

TEST(World, OfOpenMpiOnOneHost) {
  ExpectWorld({{"OMPI_COMM_WORLD_RANK", "2"},
               {"OMPI_COMM_WORLD_SIZE", "4"},
               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
               {"OMPI_COMM_WORLD_NODE_RANK", "2"},
               {"OMPI_UNIVERSE_SIZE", "8"},
               {"PMIX_RANK", "2"}},
              {2, 4, 2, 4, "127.0.0.1", 29500, "Open MPI"});
}

TEST(World, OfOpenMpiOnTwoHostsHasTheLeaderOfTheScript) {
  Set set = {{"OMPI_COMM_WORLD_RANK", "5"},
             {"OMPI_COMM_WORLD_SIZE", "8"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  ExpectWorld(set, {5, 8, 1, 4, "", 29500, "Open MPI"});
  set.insert({{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "12345"}});
  ExpectWorld(set, {5, 8, 1, 4, "node0", 12345, "Open MPI"});
}

TEST(World, OfMpichAndIntelMpi) {
  ExpectWorld(
      {{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
      {4, 5, 1, 2, "", 29500, "PMI"});
}

const Set kSrun = {{"SLURM_JOB_ID", "200505"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_PROCID", "6"},
                   {"SLURM_NTASKS", "7"},
                   {"SLURM_STEP_NUM_TASKS", "7"},
                   {"SLURM_LOCALID", "0"},
                   {"SLURM_NODEID", "3"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                   {"SLURM_STEP_NODELIST", "gnode[10,20,25,37]"}};

TEST(World, OfSrun) { ExpectWorld(kSrun, {6, 7, 0, 1, "gnode10", 29500, "Slurm"}); }

TEST(World, OfSrunOnANodeOfTwoTasks) {
  Set set = kSrun;
  set["SLURM_PROCID"] = "5";
  set["SLURM_LOCALID"] = "1";
  set["SLURM_NODEID"] = "2";
  ExpectWorld(set, {5, 7, 1, 2, "gnode10", 29500, "Slurm"});
}

TEST(World, OfSrunWithPmi2IsCompletedBySlurm) {
  Set set = kSrun;  // srun --mpi=pmi2
  set.insert({{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}});
  ExpectWorld(set, {6, 7, 0, 1, "gnode10", 29500, "PMI"});
}

TEST(World, OfMpirunInAJobOfSlurmIsMpiruns) {
  // Open MPI starts a daemon on each node by srun, whose variables the ranks inherit.
  Set set = kSrun;
  set["SLURM_PROCID"] = "1";
  set["SLURM_STEP_NUM_TASKS"] = "2";
  set.insert({{"OMPI_COMM_WORLD_RANK", "5"},
              {"OMPI_COMM_WORLD_SIZE", "8"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ExpectWorld(set, {5, 8, 1, 4, "", 29500, "Open MPI"});
}

TEST(World, OfAScriptOfSbatchIsOneRank) {
  ExpectWorld({{"SLURM_JOB_ID", "200505"},
               {"SLURM_PROCID", "0"},
               {"SLURM_LOCALID", "0"},
               {"SLURM_NODEID", "0"},
               {"SLURM_NTASKS", "4"},
               {"SLURM_TASKS_PER_NODE", "1(x4)"}},
              {0, 1, 0, 1, "127.0.0.1", 29500, ""});
}

TEST(World, OfAShellOfSallocIsOneRank) {
  ExpectWorld({{"SLURM_JOB_ID", "200505"}, {"SLURM_NTASKS", "4"}},
              {0, 1, 0, 1, "127.0.0.1", 29500, ""});
}

const Set kTorchrun = {{"RANK", "9"},
                       {"WORLD_SIZE", "16"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "8"},
                       {"MASTER_ADDR", "10.0.0.1"},
                       {"MASTER_PORT", "29401"},
                       {"GROUP_RANK", "1"}};

TEST(World, OfTorchrun) { ExpectWorld(kTorchrun, {9, 16, 1, 8, "10.0.0.1", 29401, "torchrun"}); }

TEST(World, OfTorchrunInPodsOfALeaderWorkerSetIsTorchruns) {
  Set set = kTorchrun;
  set.insert({{"LWS_GROUP_SIZE", "2"}, {"LWS_WORKER_INDEX", "1"}, {"LWS_LEADER_ADDRESS", "a.b"}});
  ExpectWorld(set, {9, 16, 1, 8, "10.0.0.1", 29401, "torchrun"});
}

TEST(World, OfALeaderWorkerSetHasOneRankForEachPod) {
  ExpectWorld({{"LWS_GROUP_SIZE", "4"},
               {"LWS_WORKER_INDEX", "3"},
               {"LWS_LEADER_ADDRESS", "vllm-0.vllm.default"}},
              {3, 4, 0, 1, "vllm-0.vllm.default", 29500, "LeaderWorkerSet"});
}

TEST(World, EmptyVariablesAreNone) {
  ExpectWorld({{"RANK", ""}, {"WORLD_SIZE", ""}}, {0, 1, 0, 1, "127.0.0.1", 29500, ""});
}

TEST(World, HalfOfAPairIsRefused) {
  ExpectError({{"RANK", "1"}}, "WORLD_SIZE", "RANK");
  ExpectError({{"WORLD_SIZE", "2"}}, "RANK", "WORLD_SIZE");
  ExpectError({{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  ExpectError({{"LWS_GROUP_SIZE", "2"}}, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE");
  ExpectError({{"SLURM_PROCID", "1"}}, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  ExpectError({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}, "LOCAL_WORLD_SIZE",
              "LOCAL_RANK");
  ExpectError({{"PMIX_RANK", "1"}}, "PMIX_RANK", "WORLD_SIZE");
}

TEST(World, ContradictionsAreRefused) {
  ExpectError({{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK", "got '2'");
  ExpectError({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK", "got '-1'");
  ExpectError({{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK", "got 'one'");
  ExpectError({{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE", "got '0'");
  ExpectError({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}},
              "LOCAL_WORLD_SIZE", "from 1 to 2");
  ExpectError({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}},
              "LOCAL_RANK", "below 1");
  Set set = kTorchrun;
  set["MASTER_PORT"] = "65536";
  ExpectError(set, "MASTER_PORT", "got '65536'");
  set = kSrun;
  set["SLURM_NODEID"] = "4";
  ExpectError(set, "SLURM_STEP_TASKS_PER_NODE", "node 4");
  set = kSrun;
  set["SLURM_STEP_NODELIST"] = "gnode[10";
  ExpectError(set, "SLURM_STEP_NODELIST", "gnode[10");
}

}  // namespace
}  // namespace inflight::launch
