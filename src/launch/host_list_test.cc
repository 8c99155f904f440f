// SPDX-License-Identifier: Apache-2.0
#include "launch/host_list.h"

#include <gtest/gtest.h>

namespace inflight::launch {
namespace {

TEST(HostList, FirstHostIsWrittenOut) {
  // The list of scontrol(1), "show hostnames": tux[1-3,5] is tux1, tux2, tux3, tux5.
  EXPECT_EQ(FirstHost("tux[1-3,5]"), "tux1");
  EXPECT_EQ(FirstHost("gnode[10,20,25,37]"), "gnode10");
  EXPECT_EQ(FirstHost("gpu[008-011,20],login1"), "gpu008");
  EXPECT_EQ(FirstHost("login1,gpu[008-011]"), "login1");
  EXPECT_EQ(FirstHost("host.example.com"), "host.example.com");
  EXPECT_EQ(FirstHost("rack[0-1]node[2-3]-ib"), "rack0node2-ib");
}

TEST(HostList, WhatIsNoListOfHostsHasNone) {
  for (const char* list : {"", ",a", "gpu[1-2", "gpu1-2]", "gpu[1[2]]"})
    EXPECT_EQ(FirstHost(list), std::nullopt) << list;
}

TEST(HostList, TasksOfNodesAreRepeated) {
  // The example of srun(1), "SLURM_TASKS_PER_NODE".
  const int expected[] = {2, 2, 2, 1};
  for (int node = 0; node < 4; ++node) EXPECT_EQ(TasksOfNode("2(x3),1", node), expected[node]);
  EXPECT_EQ(TasksOfNode("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(TasksOfNode("8", 0), 8);
}

TEST(HostList, WhatIsNoListOfTasksHasNone) {
  for (const char* list : {"", "x", "2(x)", "2(x3", "-1", "2;3", "99999999999"})
    EXPECT_EQ(TasksOfNode(list, 0), std::nullopt) << list;
}

}  // namespace
}  // namespace inflight::launch
