// SPDX-License-Identifier: Apache-2.0
#include "loader/rank_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "builder/builder.h"
#include "builder/test_models.h"
#include "comm/rendezvous_fixture.h"
#include "loader/devices.h"
#include "loader/loader.h"

namespace inflight {
namespace {

std::shared_ptr<RankProcesses> JoinAs(const comm::FreePort& port, int rank) {
  auto group = comm::JoinTest(port, rank, 2);
  EXPECT_TRUE(group.ok()) << group.status().ToString();
  return std::make_shared<RankProcesses>(*std::move(group), /*ranks_of_this_host=*/1);
}

OpenOptions OnHostOf(uint64_t capacity_bytes) {
  OpenOptions options = {.devices = Devices::Only(Device::CpuWithCapacity(1, capacity_bytes))};
  options.tensor_parallel_size = 2;
  return options;
}

TEST(RankProcessesTest, ARankWithoutRoomForABlockIsNamed) {
  const auto dir =
      std::filesystem::path(testing::TempDir()) / ("rank_processes_" + std::to_string(getpid()));
  builder::TinyLlama().Write(dir);
  const auto part = builder::Describe(dir, {.ranks = {.tp_size = 2}, .rank = 1});
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  const comm::FreePort port;
  std::thread follower([&] {
    constexpr uint64_t kLittle = 1000;  // beside the weights
    const Status done =
        JoinAs(port, 1)->Follow(OnHostOf(part->weight_bytes + kLittle), [] { return false; });
    EXPECT_TRUE(done.ok()) << done.ToString();
  });
  const auto leader = JoinAs(port, 0);
  OpenOptions options = OnHostOf(uint64_t{256} << 20);
  options.rank_processes = [&](int) { return leader; };
  const Status loaded = loader::Load(dir, options).status();
  EXPECT_EQ(loaded.code(), StatusCode::kResourceExhausted) << loaded.ToString();
  EXPECT_THAT(std::string(loaded.message()), testing::HasSubstr("rank 1 has room for 0 KV blocks"));
  leader->SayGoodbye();
  follower.join();
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace inflight
