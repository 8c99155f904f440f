// SPDX-License-Identifier: Apache-2.0
// The C library of this machine has all of these functions: it is the oracle, asked by dlsym. What
// the test calls by name are ours, since the program is linked as releases are.
#include "old_glibc/functions.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace inflight::old_glibc {
namespace {

// A function of the system's C library.
template <typename Function>
Function* OfSystem(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Function*>(found);
}

int num_constructed = 0;
[[gnu::constructor]] void Construct() { ++num_constructed; }

TEST(OldGlibcTest, ConstructorsRunOnce) { EXPECT_EQ(num_constructed, 1); }

TEST(OldGlibcTest, TheProgramsOwnFunctionsAreCalled) {
  EXPECT_NE(&::fstatat, OfSystem<decltype(::fstatat)>("fstatat"));
  EXPECT_EQ(__libc_single_threaded, 0);
}

template <typename Stat>
bool Same(const Stat& a, const Stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_mode == b.st_mode &&
         a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec && a.st_nlink == b.st_nlink;
}

TEST(OldGlibcTest, FilesAreDescribedAsTheSystemDoes) {
  using OfPath = int(const char*, struct stat*);
  struct stat ours = {};
  struct stat theirs = {};
  for (const char* path : {"/etc/passwd", "/proc/self/exe", "/"}) {
    ASSERT_EQ(stat(path, &ours), 0);
    ASSERT_EQ(OfSystem<OfPath>("stat")(path, &theirs), 0);
    EXPECT_TRUE(Same(ours, theirs)) << path;
    struct stat64 wide = {};
    ASSERT_EQ(stat64(path, &wide), 0);
    EXPECT_EQ(wide.st_ino, theirs.st_ino);
    ASSERT_EQ(lstat(path, &ours), 0);
    ASSERT_EQ(OfSystem<OfPath>("lstat")(path, &theirs), 0);
    EXPECT_TRUE(Same(ours, theirs)) << path;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(fstat(file, &ours), 0);
    ASSERT_EQ(OfSystem<int(int, struct stat*)>("fstat")(file, &theirs), 0);
    EXPECT_TRUE(Same(ours, theirs)) << path;
    ASSERT_EQ(fstat64(file, &wide), 0);
    EXPECT_EQ(wide.st_ino, theirs.st_ino);
    close(file);
  }
  EXPECT_EQ(stat("/nowhere", &ours), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(fstat(-1, &ours), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(OldGlibcTest, TablesForExceptionsAreThoseThatTheSystemFinds) {
  const auto of_system = OfSystem<int(void*, dl_find_object*)>("_dl_find_object");
  void* const in_library = dlsym(RTLD_DEFAULT, "getpid");
  void* const in_program = reinterpret_cast<void*>(&WaitByRealTime);
  for (void* address : {in_library, in_program}) {
    dl_find_object ours = {};
    dl_find_object theirs = {};
    ASSERT_EQ(_dl_find_object(address, &ours), 0);
    ASSERT_EQ(of_system(address, &theirs), 0);
    EXPECT_EQ(ours.dlfo_eh_frame, theirs.dlfo_eh_frame);
  }
  dl_find_object nothing = {};
  EXPECT_EQ(_dl_find_object(nullptr, &nothing), -1);
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "thrown");
  }
}

TEST(OldGlibcTest, SignalsHaveTheSystemsWords) {
  const auto of_system = OfSystem<const char*(int)>("sigdescr_np");
  for (int signal = -1; signal < 70; ++signal) {
    const char* const theirs = of_system(signal);
    if (theirs == nullptr)
      EXPECT_EQ(sigdescr_np(signal), nullptr) << signal;
    else
      EXPECT_STREQ(sigdescr_np(signal), theirs);
  }
}

int64_t NanosecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000L + now.tv_nsec;
}

// Until `wait` says that the time is over; it may wake without a reason.
template <typename Wait>
int64_t WaitedUntil(const Wait& wait, int64_t end_ns) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  const timespec end = {end_ns / 1'000'000'000, end_ns % 1'000'000'000};
  pthread_mutex_lock(&mutex);
  int result = 0;
  while (result == 0) result = wait(&condition, &mutex, CLOCK_MONOTONIC, &end);
  EXPECT_EQ(result, ETIMEDOUT);
  pthread_mutex_unlock(&mutex);
  return NanosecondsOf(CLOCK_MONOTONIC);
}

TEST(OldGlibcTest, AWaitEndsByItsClock) {
  for (const auto wait : {&pthread_cond_clockwait, &WaitByRealTime}) {
    for (const int64_t ms : {-5, 0, 20}) {  // a real clock that is set meanwhile would show
      const int64_t end = NanosecondsOf(CLOCK_MONOTONIC) + ms * 1'000'000;
      EXPECT_GE(WaitedUntil(wait, end) + 1'000'000, end);
    }
  }
}

// The descriptors from 3 on that a child has which was started with `add(actions, first)`.
template <typename Add>
std::string OpenInAChild(const Add& add, int first) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(pipe(ends.data()), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  EXPECT_EQ(add(&actions, first), 0);
  std::string script = "for f in /proc/self/fd/*; do [ -e $f ] && echo -n ${f##*/},; done";
  std::array<char*, 4> words = {const_cast<char*>("sh"), const_cast<char*>("-c"), script.data(),
                                nullptr};
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, "/bin/sh", &actions, nullptr, words.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string told;
  std::array<char, 256> buffer = {};
  for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
    told.append(buffer.data(), static_cast<size_t>(n));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return told;
}

TEST(OldGlibcTest, AChildHasNoneOfTheFilesThatAreOpen) {
  const int file = open("/etc/passwd", O_RDONLY);  // NOLINT(android-cloexec-open): a child has it
  const int other = fcntl(file, F_DUPFD, 100);
  ASSERT_GE(other, 100);
  EXPECT_NE(OpenInAChild([](auto*, int) { return 0; }, 0).find(std::to_string(other)),
            std::string::npos);
  EXPECT_EQ(OpenInAChild(AddCloseOfOpenFiles, 3),
            OpenInAChild(posix_spawn_file_actions_addclosefrom_np, 3));
  EXPECT_EQ(OpenInAChild(AddCloseOfOpenFiles, 3).find(std::to_string(other)), std::string::npos);
  close(file);
  close(other);
}

TEST(OldGlibcTest, RandomBytesFillTheirRoom) {
  std::array<unsigned char, 1000> bytes = {};
  arc4random_buf(bytes.data(), 999);
  EXPECT_EQ(bytes.back(), 0);
  EXPECT_LT(std::ranges::count(bytes, 0), 30);  // 4 on average
  EXPECT_NE((uint64_t{arc4random()} << 32) | arc4random(),
            (uint64_t{arc4random()} << 32) | arc4random());
}

}  // namespace
}  // namespace inflight::old_glibc
