// SPDX-License-Identifier: Apache-2.0
// A rank that is killed before each message of a load and of a request's steps, one after the
// other: all others end by themselves, without success, and name it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "comm/rendezvous_fixture.h"

namespace inflight {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int wait_status = 0;
  std::string out, errors;

  bool WasKilled() const { return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL; }
  int exit_code() const { return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1; }
};

class RankDeaths : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::temp_directory_path() / ("inflight_deaths_" + std::to_string(getpid()));
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // All ranks of a group, of which one dies at `step`.
  std::vector<Ended> Run(int tp_size, int pp_size, int mortal, int step, const std::string& way) {
    const comm::FreePort port;
    const int size = tp_size * pp_size;
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.push_back(
          Start({std::to_string(tp_size), std::to_string(pp_size), std::to_string(rank),
                 std::to_string(port.number()), std::to_string(rank == mortal ? step : 0), way},
                rank));
    std::vector<Ended> ended(static_cast<size_t>(size));
    // Nobody waits for a rank that is gone; a hang is found here.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (size_t rank = 0; rank < ended.size(); ++rank) {
      while (waitpid(ranks[rank], &ended[rank].wait_status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > patience) {
          ADD_FAILURE() << "rank " << rank << " hangs";
          kill(ranks[rank], SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ended[rank].out = TextOf("out", static_cast<int>(rank));
      ended[rank].errors = TextOf("err", static_cast<int>(rank));
    }
    return ended;
  }

 private:
  std::string PathOf(const std::string& kind, int rank) const {
    return (root_ / (kind + std::to_string(rank))).string();
  }
  std::string TextOf(const std::string& kind, int rank) const {
    auto text = ReadFile(PathOf(kind, rank));
    return text.ok() ? *text : text.status().ToString();
  }
  pid_t Start(std::vector<std::string> words, int rank) {
    words.insert(words.begin(), {INFLIGHT_MORTAL_RANK, INFLIGHT_GOLDEN_DATA "/llama_gqa2"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 1, PathOf("out", rank).c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&files, 2, PathOf("err", rank).c_str(), kFlags, 0600);
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, INFLIGHT_MORTAL_RANK, &files, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    return child;
  }

  std::filesystem::path root_;
};

struct Case {
  int tp_size, pp_size, mortal;
  std::string way;  // of sums: of ranks on one host "memory", on several "messages"
  int min_steps;
};

class RankDeathsAt : public RankDeaths, public testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RankDeathsAt,
                         testing::Values(Case{2, 1, 1, "messages", 30},
                                         Case{2, 1, 0, "messages", 30},
                                         Case{1, 2, 1, "messages", 15},
                                         Case{1, 2, 0, "messages", 15},
                                         Case{2, 2, 3, "messages", 20}, Case{2, 1, 1, "memory", 10},
                                         Case{1, 2, 0, "memory", 10}, Case{2, 2, 3, "memory", 10}),
                         [](const auto& info) {
                           return std::to_string(info.param.tp_size) + "x" +
                                  std::to_string(info.param.pp_size) + "rank" +
                                  std::to_string(info.param.mortal) + info.param.way;
                         });

TEST_P(RankDeathsAt, AnyStepEndsTheGroupWithItsNumber) {
  const auto& [tp_size, pp_size, mortal, way, min_steps] = GetParam();
  const std::vector<Ended> whole = Run(tp_size, pp_size, mortal, 0, way);
  for (const Ended& rank : whole) ASSERT_EQ(rank.exit_code(), 0) << rank.errors;
  const std::string& counted = whole[static_cast<size_t>(mortal)].errors;
  const size_t said = counted.rfind("steps ");
  ASSERT_NE(said, std::string::npos) << counted;
  const int num_steps = std::stoi(counted.substr(said + 6));
  EXPECT_GE(num_steps, min_steps);
  // Rank 0 awaits nothing from a rank that it has told to give the model up, and to end.
  const int num_awaited = mortal == 0 ? num_steps : num_steps - 2;
  for (int step = 1; step <= num_awaited; ++step) {
    SCOPED_TRACE("step " + std::to_string(step) + " of " + std::to_string(num_steps));
    const std::vector<Ended> ranks = Run(tp_size, pp_size, mortal, step, way);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (static_cast<int>(rank) == mortal) {
        EXPECT_TRUE(ranks[rank].WasKilled()) << ranks[rank].errors;
        continue;
      }
      EXPECT_EQ(ranks[rank].exit_code(), 1) << "rank " << rank << ": " << ranks[rank].errors;
      EXPECT_THAT(ranks[rank].errors,
                  HasSubstr("UNAVAILABLE: rank " + std::to_string(mortal) + " is gone"));
    }
  }
}

}  // namespace
}  // namespace inflight
