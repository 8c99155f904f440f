// SPDX-License-Identifier: Apache-2.0
#include "loader/orchestrator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "loader/rank_order.h"

namespace inflight {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(IdClaimsTest, AnIdHasOneModelAtATime) {
  const auto claims = std::make_shared<IdClaims>("participant_ids", milliseconds(1));
  auto a = claims->Take({0, 1}, "a/1");
  ASSERT_TRUE(a.ok());
  const Status taken = claims->Take({2, 1}, "b/1").status();
  EXPECT_EQ(taken.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(taken.field(), "participant_ids");
  EXPECT_THAT(taken.message(), HasSubstr("got 1, which ranks of model a/1 have"));
  EXPECT_TRUE(claims->Take({2, 3}, "b/1").ok()) << "nothing was taken of what failed";
  *a = nullptr;
  EXPECT_TRUE(claims->Take({0, 1}, "b/1").ok());
}

// Unloads end behind the load that comes next.
TEST(IdClaimsTest, WaitsForAModelThatIsBeingUnloaded) {
  const auto claims = std::make_shared<IdClaims>("participant_ids", std::chrono::minutes(1));
  auto a = claims->Take({1}, "a/1");
  ASSERT_TRUE(a.ok());
  std::thread unload([&] {
    std::this_thread::sleep_for(milliseconds(20));
    *a = nullptr;
  });
  EXPECT_TRUE(claims->Take({1}, "b/1").ok());
  unload.join();
}

TEST(IdClaimsTest, RanksOfAModelHaveDifferentIds) {
  const auto claims = std::make_shared<IdClaims>("participant_ids", milliseconds(1));
  const Status twice = claims->Take({3, 3}, "a/1").status();
  EXPECT_EQ(twice,
            InvalidArgument("participant_ids", "got 3 twice, must be another for each rank"));
  EXPECT_TRUE(claims->Take({}, "a/1").ok());
}

TEST(RankOrderTest, IsReadAsItIsWritten) {
  const RankOrder order = {.model = "m/1",
                           .world = {.rank = 2,
                                     .size = 4,
                                     .local_size = 2,
                                     .leader_address = "10.0.0.1",
                                     .leader_port = 4711},
                           .secret = 0xfedcba9876543210,
                           .device = "cuda",
                           .num_threads = 5,
                           .log = {.info = false, .verbose_level = 2, .file = "/tmp/log"}};
  const std::string text = ToText(order);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto read = ParseRankOrder(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(ToText(*read), text);
  EXPECT_EQ(read->world.leader_port, 4711);
  EXPECT_EQ(read->secret, 0xfedcba9876543210);
  EXPECT_EQ(read->log.file, "/tmp/log");
}

TEST(RankOrderTest, OtherTextsAreNone) {
  for (const char* text : {"", "{}", "[1]", R"({"model": 1})"})
    EXPECT_EQ(ParseRankOrder(text).status().code(), StatusCode::kInvalidArgument) << text;
}

// What is refused before any process is started.
TEST(OrchestratorTest, RefusesByTheKeyAtFault) {
  const auto starts = Orchestrator::ThatStarts("cpu", 1, {});
  const auto refusal = [&](const RankRequest& request) {
    return starts->StartRanks(request).status();
  };
  const Status missing = refusal({.model = "m/1", .num_ranks = 2, .program = "/nosuch"});
  EXPECT_EQ(missing.field(), "executor_worker_path");
  EXPECT_THAT(missing.message(), HasSubstr("got '/nosuch', which is no file"));
  EXPECT_THAT(refusal({.model = "m/1", .num_ranks = 2, .program = "/bin/sh"}).message(),
              HasSubstr("got '/bin/sh', which is not the server's own program"));
}

TEST(OrchestratorTest, SaysWhyItMayNotStartProcesses) {
  const auto starts = Orchestrator::ThatStarts("cpu", 1, "--sandbox: no process is started in it");
  EXPECT_EQ(starts->StartRanks({.model = "m/1", .num_ranks = 2}).status(),
            FailedPrecondition("--sandbox: no process is started in it"));
}

TEST(OrchestratorTest, GivesOutTheProcessesThatThereAre) {
  const auto alone = Orchestrator::ThatGivesOut(nullptr, {.leader_address = "127.0.0.1"});
  const Status status =
      alone->StartRanks({.model = "m/1", .num_ranks = 2, .participants = {1, 2}}).status();
  EXPECT_EQ(status.field(), "participant_ids");
  EXPECT_THAT(status.message(), HasSubstr("got '1,2', must be one for each of 2 ranks, of the 1 "
                                          "processes that the launcher started"));
}

}  // namespace
}  // namespace inflight
