// SPDX-License-Identifier: Apache-2.0
// Each test's child enters a sandbox and says by its exit status how a call of the system ended.
#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "base/machine_fixture.h"

namespace inflight::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr int kNotEntered = 200;  // larger than the error numbers that the tests expect

// The exit status of a child that does this, or minus the signal that ended it.
int InChild(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// 0, or the error number of a call that gives -1.
int ErrorOf(int64_t result) { return result < 0 ? errno : 0; }

int ErrorOfOpening(const fs::path& path, int flags) {
  return ErrorOf(open(path.c_str(), flags, 0600));
}

// What the kernel itself says, without our code.
int KernelsLandlock() {
  return static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, 0, 1));
}

class SandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    if (KernelsLandlock() <= 0)
      SKIP_FOR_LACK_OF("Landlock (Linux 5.13), so that files are not shown");
    std::string name = (fs::temp_directory_path() / "sandbox_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    for (const char* folder : {"read", "write", "socket", "object", "other"}) {
      fs::create_directories(root_ / folder);
      std::ofstream(root_ / folder / "file") << "content";
    }
    fs::create_symlink(root_ / "other/file", root_ / "read/link");
    rules_.files = {.read = {root_ / "read", root_ / "absent"},
                    .write = {root_ / "write"},
                    .sockets = {root_ / "socket"},
                    .objects = {root_ / "object"},
                    .devices = {"/dev/null"}};
  }

  void TearDown() override {
    if (!root_.empty()) fs::remove_all(root_);
  }

  // How `call` ends in the sandbox.
  int Inside(const std::function<int()>& call) const {
    return InChild([&] { return Enter(rules_).ok() ? call() : kNotEntered; });
  }

  int Opening(const fs::path& path, int flags) const {
    return Inside([&] { return ErrorOfOpening(path, flags); });
  }

  fs::path root_;
  Rules rules_;
};

TEST_F(SandboxTest, FilesToReadAreReadAndNotWritten) {
  EXPECT_EQ(Opening(root_ / "read/file", O_RDONLY), 0);
  EXPECT_EQ(Opening(root_ / "read", O_RDONLY | O_DIRECTORY), 0);
  EXPECT_EQ(Opening(root_ / "read/file", O_WRONLY), EACCES);
  EXPECT_EQ(Opening(root_ / "read/new", O_WRONLY | O_CREAT), EACCES);
}

TEST_F(SandboxTest, OtherFilesAreNotOpenedByNameNorByLink) {
  EXPECT_EQ(Opening("/etc/passwd", O_RDONLY), EACCES);
  EXPECT_EQ(Opening(root_ / "read/../../../../../etc/passwd", O_RDONLY), EACCES);
  EXPECT_EQ(Opening(root_ / "other/file", O_RDONLY), EACCES);
  EXPECT_EQ(Opening(root_ / "read/link", O_RDONLY), EACCES);
  EXPECT_EQ(Opening("/", O_RDONLY | O_DIRECTORY), EACCES);
}

TEST_F(SandboxTest, FoldersToWriteTakeFilesAndRenames) {
  EXPECT_EQ(Opening(root_ / "write/new", O_RDWR | O_CREAT), 0);
  EXPECT_EQ(
      Inside([&] {
        return ErrorOf(rename((root_ / "write/new").c_str(), (root_ / "write/newer").c_str()));
      }),
      0);
  EXPECT_EQ(Inside([&] { return ErrorOf(mkdir((root_ / "write/folder").c_str(), 0700)); }), 0);
  EXPECT_EQ(Inside([&] { return ErrorOf(unlink((root_ / "write/newer").c_str())); }), 0);
  EXPECT_EQ(Inside([&] { return ErrorOf(symlink("/etc/passwd", (root_ / "write/link").c_str())); }),
            EACCES);
}

TEST_F(SandboxTest, ObjectsAreWrittenAndNotMade) {
  EXPECT_EQ(Opening(root_ / "object/file", O_RDWR), 0);
  EXPECT_EQ(Opening(root_ / "object/new", O_RDWR | O_CREAT), EACCES);
  EXPECT_EQ(Opening("/dev/null", O_RDWR), 0);
}

TEST_F(SandboxTest, SocketsAreMadeInTheirFoldersAlone) {
  const auto binding = [&](const char* folder) {
    return Inside([&] {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      const std::string path = root_ / folder / "made";
      path.copy(address.sun_path, sizeof address.sun_path - 1);
      return ErrorOf(bind(socket(AF_UNIX, SOCK_STREAM, 0),
                          reinterpret_cast<const sockaddr*>(&address), sizeof address));
    });
  };
  EXPECT_EQ(binding("socket"), 0);
  EXPECT_EQ(Inside([&] { return ErrorOf(unlink((root_ / "socket/made").c_str())); }), 0);
  EXPECT_EQ(binding("write"), EACCES);
  EXPECT_EQ(binding("read"), EACCES);
  EXPECT_EQ(Opening(root_ / "socket/file", O_RDONLY), EACCES);
  EXPECT_EQ(Opening(root_ / "socket/new", O_WRONLY | O_CREAT), EACCES);
}

TEST_F(SandboxTest, ThreadsThatStartLaterAreInIt) {
  EXPECT_EQ(Inside([&] {
              int error = 0;
              std::thread([&] { error = ErrorOfOpening("/etc/passwd", O_RDONLY); }).join();
              return error;
            }),
            EACCES);
}

TEST_F(SandboxTest, NoProgramAndNoProcessIsStarted) {
  EXPECT_EQ(Inside([] { return ErrorOf(execl("/bin/true", "true", nullptr)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(fork()); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(SYS_clone3, nullptr, 0)); }), ENOSYS);
}

TEST_F(SandboxTest, WhatIsOfNoUseToAServerIsRefused) {
  const std::vector<int64_t> numbers = {SYS_ptrace,        SYS_mount,      SYS_bpf,
                                        SYS_keyctl,        SYS_kexec_load, SYS_io_uring_setup,
                                        SYS_init_module,   SYS_unshare,    SYS_perf_event_open,
                                        SYS_finit_module,  SYS_setuid,     SYS_process_vm_readv,
                                        SYS_delete_module, SYS_setns,      SYS_userfaultfd};
  for (const int64_t number : numbers) {
    EXPECT_EQ(Inside([&] { return ErrorOf(syscall(number, 0, 0, 0, 0, 0, 0)); }), EPERM)
        << "system call " << number;
  }
}

// Whatever version Landlock has: none knows of these but of truncate, since Linux 6.2.
TEST_F(SandboxTest, OtherFilesStayAsTheyAre) {
  const std::string file = (root_ / "read/file").string();
  EXPECT_EQ(Inside([&] { return ErrorOf(truncate(file.c_str(), 0)); }), EPERM);
  EXPECT_EQ(Inside([&] { return ErrorOf(chmod(file.c_str(), 0666)); }), EPERM);
  EXPECT_EQ(Inside([&] { return ErrorOf(fchmodat(AT_FDCWD, file.c_str(), 0666, 0)); }), EPERM);
  EXPECT_EQ(Inside([&] { return ErrorOf(lchown(file.c_str(), getuid(), getgid())); }), EPERM);
  EXPECT_EQ(Inside([&] { return ErrorOf(setxattr(file.c_str(), "user.x", "1", 1, 0)); }), EPERM);
  EXPECT_EQ(fs::file_size(file), 7U);
}

TEST_F(SandboxTest, OtherProcessesAreNotReached) {
  EXPECT_EQ(Inside([] { return ErrorOf(kill(getppid(), 0)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(kill(0, 0)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(SYS_tgkill, getppid(), getppid(), 0)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(SYS_tkill, getppid(), 0)); }), EPERM);
  EXPECT_EQ(Inside([] {
              rlimit limit{};
              return ErrorOf(prlimit(getppid(), RLIMIT_CORE, nullptr, &limit));
            }),
            EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(shmget(IPC_PRIVATE, 1, 0600)); }), EPERM);
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(SYS_mq_open, "a", O_RDONLY, 0, nullptr)); }), EPERM);
}

TEST_F(SandboxTest, ItsOwnProcessIs) {
  EXPECT_EQ(Inside([] { return ErrorOf(kill(getpid(), 0)); }), 0);
  EXPECT_EQ(Inside([] { return raise(SIGTERM); }), -SIGTERM);
  EXPECT_EQ(Inside([] {
              rlimit limit{};
              return ErrorOf(getrlimit(RLIMIT_NOFILE, &limit));
            }),
            0);
}

// TIOCSTI is the key that a shell would read next; its number has 32 bits for the kernel.
TEST_F(SandboxTest, NoKeysAreTypedIntoTheTerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const uint64_t request : {uint64_t{TIOCSTI}, uint64_t{TIOCLINUX}, TIOCSTI | 1UL << 32}) {
    EXPECT_EQ(Inside([&] { return ErrorOf(syscall(SYS_ioctl, ends[0], request, "x")); }), EPERM);
  }
  int num_bytes = 0;
  EXPECT_EQ(Inside([&] { return ErrorOf(ioctl(ends[0], FIONREAD, &num_bytes)); }), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SandboxTest, NumbersOfAnotherArchitectureEndTheProcess) {
#ifdef __x86_64__
  EXPECT_EQ(Inside([] { return ErrorOf(syscall(0x40000000 | SYS_getpid)); }), -SIGSYS);
#else
  GTEST_SKIP() << "x86-64 alone has two";
#endif
}

TEST_F(SandboxTest, SocketsAreOfTheNetworkOrUnix) {
  const auto opening = [&](int family, int type = SOCK_DGRAM, int protocol = 0) {
    return Inside([=] { return ErrorOf(socket(family, type, protocol)); });
  };
  for (const int family : {AF_UNIX, AF_INET, AF_NETLINK}) EXPECT_EQ(opening(family), 0) << family;
  for (const int family : {AF_PACKET, AF_ALG, AF_VSOCK})
    EXPECT_EQ(opening(family), EAFNOSUPPORT) << family;
  EXPECT_EQ(opening(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP), 0);
  EXPECT_EQ(opening(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP), 0);
  constexpr int kMptcp = 262;
  for (const int protocol : {kMptcp, int{IPPROTO_SCTP}, int{IPPROTO_ICMP}}) {
    for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW})
      EXPECT_EQ(opening(AF_INET, type, protocol), EPROTONOSUPPORT) << type << " " << protocol;
  }
  EXPECT_EQ(opening(AF_INET, SOCK_RAW, IPPROTO_TCP), EPROTONOSUPPORT);
  EXPECT_EQ(opening(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), 0);
  EXPECT_EQ(opening(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT), EPROTONOSUPPORT);
}

TEST_F(SandboxTest, UnixSocketsAreThereWhereTheyAreNeeded) {
  int pair[2];
  const auto pairing = [&] { return ErrorOf(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)); };
  EXPECT_EQ(Inside(pairing), 0);
  rules_.has_unix_sockets = false;
  EXPECT_EQ(Inside([] { return ErrorOf(socket(AF_UNIX, SOCK_STREAM, 0)); }), EAFNOSUPPORT);
  EXPECT_EQ(Inside(pairing), EAFNOSUPPORT);
  EXPECT_EQ(Inside([] { return ErrorOf(socket(AF_INET, SOCK_STREAM, 0)); }), 0);
}

TEST_F(SandboxTest, ConnectionsAreRefusedWhereNoneIsNeeded) {
  if (KernelsLandlock() < 4)
    SKIP_FOR_LACK_OF("Landlock of version 4 (Linux 6.7), which knows ports");
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, to, size), 0);
  ASSERT_EQ(listen(listener, 2), 0);
  ASSERT_EQ(getsockname(listener, to, &size), 0);
  const auto connecting = [&] {
    return Inside([&] { return ErrorOf(connect(socket(AF_INET, SOCK_STREAM, 0), to, size)); });
  };
  EXPECT_EQ(connecting(), 0);
  rules_.may_connect = false;
  EXPECT_EQ(connecting(), EACCES);
  // Ways past it that Landlock does not see.
  EXPECT_EQ(
      Inside([&] {
        return ErrorOf(sendto(socket(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_FASTOPEN, to, size));
      }),
      EPERM);
  EXPECT_EQ(Inside([&] {
              char byte = 'x';
              iovec part{.iov_base = &byte, .iov_len = 1};
              mmsghdr message{};
              message.msg_hdr = {
                  .msg_name = to, .msg_namelen = size, .msg_iov = &part, .msg_iovlen = 1};
              const int socket_of_two = socket(AF_INET, SOCK_STREAM, 0);
              if (sendmsg(socket_of_two, &message.msg_hdr, MSG_FASTOPEN) == 0 || errno != EPERM)
                return 1;
              return ErrorOf(sendmmsg(socket_of_two, &message, 1, MSG_FASTOPEN));
            }),
            EPERM);
  close(listener);
}

TEST_F(SandboxTest, TheKernelSaysWhatIsInForce) {
  const fs::path report = root_ / "write/status";
  EXPECT_EQ(Inside([&] {
              std::ifstream source("/proc/self/status");
              std::ofstream(report) << source.rdbuf();
              return 0;
            }),
            0);
  EXPECT_TRUE(fs::is_empty(report)) << "/proc is not among the files to read";
  rules_.files.read.emplace_back("/proc/self");
  EXPECT_EQ(Inside([&] {
              std::ifstream source("/proc/self/status");
              std::ofstream(report) << source.rdbuf();
              return 0;
            }),
            0);
  std::ifstream status(report);
  const std::string text(std::istreambuf_iterator<char>(status), {});
  EXPECT_THAT(text, testing::HasSubstr("\nNoNewPrivs:\t1\n"));
  EXPECT_THAT(text, testing::HasSubstr("\nSeccomp:\t2\n"));
}

TEST_F(SandboxTest, AProcessThatHasThreadsIsNotTaken) {
  EXPECT_EQ(InChild([&] {
              std::thread sleeper([] { pause(); });
              const auto entered = Enter(rules_);
              if (entered.ok()) return 1;
              const bool says = entered.status().message().find("2 threads run already") == 0;
              _exit(says ? 0 : 2);
            }),
            0);
}

// In a child: system call `number` fails as on a kernel that does not have it.
void TakeAway(uint32_t number) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = std::size(program), .filter = program};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

TEST_F(SandboxTest, AKernelWithoutLandlockIsRefusedUnlessLessWillDo) {
  EXPECT_EQ(InChild([&] {
              TakeAway(SYS_landlock_create_ruleset);
              const auto whole = Enter(rules_);
              if (whole.ok() || whole.status().message().find("no Landlock") == std::string::npos)
                return 1;
              rules_.must_be_whole = false;
              const auto part = Enter(rules_);
              if (!part.ok() || part->landlock != 0 || part->lacks.size() != 1) return 2;
              if (ErrorOfOpening(root_ / "other/file", O_RDONLY) != 0) return 3;
              return ErrorOf(execl("/bin/true", "true", nullptr)) == EPERM ? 0 : 4;
            }),
            0);
}

TEST_F(SandboxTest, AKernelWithoutFiltersIsRefusedUnlessLessWillDo) {
  EXPECT_EQ(InChild([&] {
              TakeAway(SYS_seccomp);
              const auto whole = Enter(rules_);
              if (whole.ok() ||
                  whole.status().message().find("filters of system calls") == std::string::npos)
                return 1;
              rules_.must_be_whole = false;
              const auto part = Enter(rules_);
              if (!part.ok() || part->has_filter || part->lacks.size() != 1) return 2;
              if (ErrorOfOpening(root_ / "other/file", O_RDONLY) != EACCES) return 3;
              const bool knows_signals = KernelsLandlock() >= 6;
              return !knows_signals || ErrorOf(kill(getppid(), 0)) == EPERM ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace inflight::sandbox
