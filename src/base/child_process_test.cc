// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>

namespace inflight {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

// What becomes of a shell that runs `script`, whose input is `input` and then stays open.
std::string EndOf(const std::string& script, const std::string& input = {}) {
  std::promise<std::string> end;
  auto child = ChildProcess::Start("/bin/sh", {"sh", "-c", script},
                                   [&](const std::string& how) { end.set_value(how); });
  if (!child.ok()) return child.status().ToString();
  EXPECT_TRUE((*child)->Write(input).ok());
  return end.get_future().get();
}

TEST(ChildProcessTest, SaysWhatBecameOfTheProgram) {
  EXPECT_EQ(EndOf("exit 0"), "exit status 0");
  EXPECT_EQ(EndOf("exit 7"), "exit status 7");
  EXPECT_EQ(EndOf("kill -9 $$"), "signal 9 (Killed)");
}

TEST(ChildProcessTest, SaysSoToWhereSignalsOfChildrenWereIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(EndOf("exit 7"), "exit status 7");
  signal(SIGCHLD, SIG_DFL);
}

TEST(ChildProcessTest, HasTheInputThatIsWritten) {
  EXPECT_EQ(EndOf("read a; test \"$a\" = 'an order'", "an order\n"), "exit status 0");
}

TEST(ChildProcessTest, HasNoDescriptorOfThisProcess) {
  const Descriptor open_here(open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  ASSERT_TRUE(open_here.ok());
  EXPECT_EQ(EndOf("test ! -e /proc/$$/fd/" + std::to_string(open_here.get())), "exit status 0");
}

TEST(ChildProcessTest, BlocksTheSignalsToStopAndNoOther) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  // SIGINT is 2 and SIGTERM 15: bits 1 and 14.
  EXPECT_EQ(EndOf("exec grep -q '^SigBlk:.*0000000000004002$' /proc/self/status"), "exit status 0");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(ChildProcessTest, EndsWithItsOwner) {
  pid_t id = 0;
  {
    auto child = ChildProcess::Start("/bin/sleep", {"sleep", "1000"}, nullptr);
    ASSERT_TRUE(child.ok());
    id = (*child)->id();
    EXPECT_FALSE((*child)->WaitUntilEnded(milliseconds(1)));
    EXPECT_EQ((*child)->how_it_ended(), std::nullopt);
  }
  EXPECT_EQ(kill(id, 0), -1);
}

TEST(ChildProcessTest, OneThatHasEndedTakesNoInput) {
  auto child = ChildProcess::Start("/bin/cat", {"cat"}, nullptr);
  ASSERT_TRUE(child.ok());
  kill((*child)->id(), SIGKILL);
  EXPECT_TRUE((*child)->WaitUntilEnded(kLong));
  EXPECT_EQ((*child)->how_it_ended(), "signal 9 (Killed)");
  EXPECT_EQ((*child)->Write("x").code(), StatusCode::kUnavailable);
}

TEST(ChildProcessTest, AProgramThatCannotBeStartedIsNamed) {
  const Status missing = ChildProcess::Start("/nosuch/program", {"program"}, nullptr).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "/nosuch/program is not started: No such file or directory");
  EXPECT_EQ(ChildProcess::Start("/etc/passwd", {"passwd"}, nullptr).status().code(),
            StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace inflight
