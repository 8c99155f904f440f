// SPDX-License-Identifier: Apache-2.0
#include "tensor/cpu_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "tensor/cgroup.h"

namespace inflight {
namespace {

TEST(CpuPoolTest, EveryItemRunsOnceForEverySizeAndThreadCount) {
  for (const int threads : {1, 2, 3, 7}) {
    CpuPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int64_t n : {0, 1, 2, 3, 64, 1000}) {
      std::vector<int> runs(static_cast<size_t>(n), 0);  // plain ints: TSan sees a second runner
      pool.ParallelFor(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](int r) { return r == 1; }));
    }
  }
}

TEST(CpuPoolTest, WhatARegionWroteIsSeenByTheNext) {
  // With no spin every region is begun and ended by futex.
  for (const auto spin : {std::chrono::microseconds(0), CpuPool::kSpin}) {
    CpuPool pool(4, spin);
    std::vector<int64_t> a(64, 0);
    std::vector<int64_t> b(64, 0);
    for (int64_t round = 1; round <= 2000; ++round) {
      pool.ParallelFor(64, [&](int64_t i) { a[static_cast<size_t>(i)] = round; });
      pool.ParallelFor(
          64, [&](int64_t i) { b[static_cast<size_t>(i)] = a[static_cast<size_t>(63 - i)]; });
      ASSERT_EQ(*std::min_element(b.begin(), b.end()), round);
    }
  }
}

TEST(CpuPoolTest, WorkersThatParkedAreWokenByTheNextRegion) {
  CpuPool pool(2, std::chrono::microseconds(0));
  std::atomic<int> started{0};
  for (int round = 0; round < 100; ++round) {
    started = 0;
    // Both items must run at the same time, so the region ends only if the worker wakes.
    pool.ParallelFor(2, [&](int64_t) {
      ++started;
      while (started.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(started.load(), 2);
  }
}

TEST(CpuPoolTest, AtMostMaxThreadsWorkAtATime) {
  CpuPool pool(4);
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  const auto body = [&](int64_t) {
    int seen = most.load();
    const int mine = ++now;
    while (mine > seen && !most.compare_exchange_weak(seen, mine)) {
    }
    std::this_thread::yield();
    --now;
  };
  for (int round = 0; round < 200; ++round) pool.ParallelFor(16, body, /*max_threads=*/2);
  EXPECT_LE(most.load(), 2);
  std::set<std::thread::id> threads;
  pool.ParallelFor(
      16, [&](int64_t) { threads.insert(std::this_thread::get_id()); }, 1);
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(CpuPoolTest, RegionsOfSeveralCallersRunOneAfterAnother) {
  CpuPool pool(3);
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  std::vector<int64_t> shared(16, 0);  // written without locks by whichever region runs
  for (size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 300; ++round)
        pool.ParallelFor(16, [&](int64_t i) {
          ++shared[static_cast<size_t>(i)];
          if (i == 0) ++sums[c];
        });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, (std::vector<int64_t>(4, 300)));
  EXPECT_EQ(shared, (std::vector<int64_t>(16, 1200)));
}

TEST(UsableCoresTest, AtLeastOneAndAtMostTheMachines) {
  EXPECT_GE(NumUsableCores(), 1);
  EXPECT_LE(NumUsableCores(), static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_EQ(CpuPool(0).num_threads(), NumUsableCores());
}

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("cgroup_test_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(CgroupTest, V2QuotaIsTheLeastAlongThePathRoundedUp) {
  Write("cpu.max", "max 100000\n");
  Write("pod/cpu.max", "250000 100000\n");
  Write("pod/box/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_, "0::/pod/box\n"), 3);
  Write("pod/box/cpu.max", "50000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_, "0::/pod/box\n"), 1);
  EXPECT_EQ(CgroupCpuQuota(root_, "0::/\n"), std::nullopt);
}

TEST_F(CgroupTest, V2QuotaAtTheRootOfANamespaceIsRead) {
  Write("cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_, "0::/\n"), 2);
}

TEST_F(CgroupTest, V1QuotaIsReadFromTheCpuController) {
  Write("cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
  Write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  Write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupCpuQuota(root_, "5:memory:/box\n4:cpu,cpuacct:/box\n"), 2);
  EXPECT_EQ(CgroupCpuQuota(root_, "5:memory:/box\n4:cpuset:/box\n"), std::nullopt);
}

// A service of systemd: its own group has the limit, and the root none.
TEST_F(CgroupTest, MemoryIsWhatTheOwnGroupsLeave) {
  EXPECT_EQ(LeftByCgroups(root_, 5000), 5000U);
  Write("proc/self/cgroup", "0::/system.slice/inflight.service\n");
  Write("sys/fs/cgroup/system.slice/inflight.service/memory.max", "max\n");
  Write("sys/fs/cgroup/system.slice/inflight.service/memory.current", "600\n");
  EXPECT_EQ(LeftByCgroups(root_, 5000), 5000U);
  Write("sys/fs/cgroup/system.slice/inflight.service/memory.max", "1000\n");
  EXPECT_EQ(LeftByCgroups(root_, 5000), 400U);
  Write("sys/fs/cgroup/system.slice/memory.max", "1100\n");
  Write("sys/fs/cgroup/system.slice/memory.current", "1200\n");
  EXPECT_EQ(LeftByCgroups(root_, 5000), 0U);
}

TEST_F(CgroupTest, MemoryOfVersionOneIsRead) {
  Write("proc/self/cgroup", "4:memory:/docker/box\n3:pids:/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");  // the box's own, in the box
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500\n");
  EXPECT_EQ(LeftByCgroups(root_, 5000), 1500U);
}

TEST_F(CgroupTest, MalformedTextMeansNoQuota) {
  EXPECT_EQ(CgroupCpuQuota(root_, ""), std::nullopt);
  EXPECT_EQ(CgroupCpuQuota(root_, "no colons\n:\n"), std::nullopt);
}

}  // namespace
}  // namespace inflight
