// SPDX-License-Identifier: Apache-2.0
#include "tensor/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "tensor/buffer.h"
#include "tensor/cpu_pool.h"
#include "tensor/device.h"

namespace inflight {
namespace {

class NumaTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("numa_test_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void WriteNode(const std::string& name, const std::string& cores) const {
    const std::filesystem::path folder = root_ / "sys/devices/system/node" / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cpulist") << cores << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(NumaTest, NodesHaveTheCoresThatMayBeUsed) {
  WriteNode("node1", "4-7,12-13");
  WriteNode("node0", "0-3,8");
  WriteNode("node10", "20");
  WriteNode("node2", "");  // memory without cores
  WriteNode("power", "0-31");
  const std::vector<NumaNode> nodes = NumaNodes(root_, std::vector<int>{2, 3, 6, 8, 13, 14, 20});
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[0].cores, (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(nodes[1].id, 1);
  EXPECT_EQ(nodes[1].cores, (std::vector<int>{6, 13}));
  EXPECT_EQ(nodes[2].id, 10);
  EXPECT_EQ(nodes[2].cores, (std::vector<int>{20}));
}

TEST_F(NumaTest, ATasksetToOneNodeLeavesOne) {
  WriteNode("node0", "0-3");
  WriteNode("node1", "4-7");
  EXPECT_EQ(NumaNodes(root_, std::vector<int>{4, 5}).size(), 1U);
}

TEST_F(NumaTest, AMachineWithoutNodesHasNone) {
  EXPECT_TRUE(NumaNodes(root_, std::vector<int>{0, 1}).empty());
}

TEST(NumaThreadsTest, NodesHaveThreadsInEqualParts) {
  std::vector<int> nodes;
  for (int i = 0; i < 7; ++i) nodes.push_back(NodeOfThread(i, 7, 2));
  EXPECT_EQ(nodes, (std::vector<int>{0, 0, 0, 0, 1, 1, 1}));
  nodes.clear();
  for (int i = 0; i < 8; ++i) nodes.push_back(NodeOfThread(i, 8, 4));
  EXPECT_EQ(nodes, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(NumaThreadsTest, AThreadRunsOnTheCoresOfItsNode) {
  const std::vector<int> before = CoresOfAffinityMask();
  std::vector<int> within;
  std::thread([&] {
    RunOn({0, {before.back()}});
    within = CoresOfAffinityMask();
  }).join();
  EXPECT_EQ(within, std::vector<int>{before.back()});
  EXPECT_EQ(CoresOfAffinityMask(), before) << "the mask is the thread's alone";
}

// What the kernel says of the page at `address`; none where it keeps no policies.
std::optional<int> PolicyAt(void* address) {
  int mode = -1;
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, address, MPOL_F_ADDR) != 0) return std::nullopt;
  return mode;
}

TEST(NumaMemoryTest, PagesLieOnNodesInTurns) {
  if (UsableNumaNodes().empty()) GTEST_SKIP() << "the kernel of this system has no nodes";
  constexpr size_t kBytes = size_t{4} << 20;
  void* const data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  EXPECT_EQ(PolicyAt(data), MPOL_DEFAULT);
  Interleave(UsableNumaNodes(), data, kBytes);
  EXPECT_EQ(PolicyAt(data), MPOL_INTERLEAVE);
  EXPECT_EQ(PolicyAt(static_cast<char*>(data) + kBytes - 1), MPOL_INTERLEAVE);
  std::memset(data, 1, kBytes);  // there is memory behind it
  munmap(data, kBytes);
}

TEST(NumaMemoryTest, LargeBuffersAreSpreadWhereThereAreSeveralNodes) {
  if (UsableNumaNodes().empty()) GTEST_SKIP() << "the kernel of this system has no nodes";
  const std::unique_ptr<Device> device = Device::Cpu(1);
  Result<Buffer> buffer = Buffer::Allocate(*device, "weights", size_t{4} << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(PolicyAt(buffer->data()),
            UsableNumaNodes().size() > 1 ? MPOL_INTERLEAVE : MPOL_DEFAULT);
}

}  // namespace
}  // namespace inflight
