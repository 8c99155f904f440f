// SPDX-License-Identifier: Apache-2.0
// Each test's child ends by a signal; what it said is read from a pipe.
#include "base/crash_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"

namespace inflight {
namespace {

using ::testing::StartsWith;

class CrashTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    struct sigaction before {};
    sigaction(SIGBUS, nullptr, &before);
    if (before.sa_handler != SIG_DFL) GTEST_SKIP() << "the sanitizers take the signals themselves";
  }

  // How a child that does this ends, and what it says.
  static std::pair<int, std::string> Child(const std::function<void()>& work) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDERR_FILENO);
      InstallCrashTrace();
      work();
      _exit(0);
    }
    close(ends[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      said.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return {status, said};
  }
};

TEST_F(CrashTraceTest, ASignalIsTracedAndEndsTheProcess) {
  for (const auto& [signal, name] :
       {std::pair{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"}}) {
    const auto [status, said] = Child([signal = signal] { raise(signal); });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_THAT(said, StartsWith(std::string(name) + ", stack trace:\n"));
  }
}

// Threads of the CPU pool read the same weights.
TEST_F(CrashTraceTest, AFileThatWasCutShortIsNamedOnceHoweverManyReadIt) {
  constexpr size_t kPage = 4096;
  constexpr size_t kThreads = 4;
  const auto path =
      std::filesystem::temp_directory_path() / ("inflight_crash_trace_" + std::to_string(getpid()));
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(WriteFile(path, std::string((kThreads + 1) * kPage, 'x')).ok());
    const auto [status, said] = Child([&] {
      const auto mapped = MappedFile::Open(path);
      std::filesystem::resize_file(path, 1);
      std::atomic<bool> may_go = false;
      std::vector<std::thread> threads;
      for (size_t thread = 1; thread <= kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          while (!may_go) {
          }
          const volatile std::byte byte = mapped->bytes()[thread * kPage];
          (void)byte;
        });
      }
      may_go = true;
      for (std::thread& thread : threads) thread.join();
    });
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status << said;
    EXPECT_THAT(said, StartsWith("inflight: " + path.string() + ": was cut short"));
    EXPECT_EQ(said.find("inflight: ", 1), std::string::npos) << said;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace inflight
