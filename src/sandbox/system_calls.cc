// SPDX-License-Identifier: Apache-2.0
#include "sandbox/system_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <vector>

namespace inflight::sandbox {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the filter of system calls knows x86-64 and AArch64"
#endif
constexpr uint32_t kX32 = 0x40000000;  // numbers of x86's x32 begin here; AArch64 has none of them

// Newer than the kernel's headers of Debian 12; on every architecture.
constexpr uint32_t kFchmodat2 = 452;
constexpr uint32_t kSetxattrat = 463;
constexpr uint32_t kRemovexattrat = 466;
constexpr uint32_t kOpenTreeAttr = 467;

// clang-format off
constexpr uint32_t kRefused[] = {
    // programs and processes
    SYS_execve, SYS_execveat,
#ifdef SYS_fork  // of x86-64 alone
    SYS_fork, SYS_vfork, SYS_uselib, SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_mknod, SYS_chmod, SYS_chown, SYS_lchown,
#endif
    SYS_mknodat, SYS_personality,
    // other processes
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_kcmp,
    SYS_move_pages, SYS_migrate_pages, SYS_tkill, SYS_pidfd_send_signal,
    SYS_shmget, SYS_shmat, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
    SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink,
    // files that Landlock does not keep from these: whose they are, who may open them; their length before Linux 6.2
    SYS_truncate, SYS_fchmodat, kFchmodat2, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, kSetxattrat, kRemovexattrat,
    // the kernel
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_syslog,
    SYS_add_key, SYS_keyctl, SYS_request_key, SYS_lookup_dcookie, SYS_fanotify_init,
    // places of files
    SYS_mount, SYS_umount2, SYS_move_mount, SYS_open_tree, kOpenTreeAttr, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_open_by_handle_at, SYS_name_to_handle_at,
    SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_quotactl_fd, SYS_acct, SYS_vhangup,
    // the machine's time and name
    SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname,
    // who the process is
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid,
    SYS_setgroups, SYS_capset,
};
// clang-format on

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kIfEqual = BPF_JMP | BPF_JEQ | BPF_K;
constexpr uint32_t kIfAnyBit = BPF_JMP | BPF_JSET | BPF_K;

sock_filter Load(uint32_t offset) { return BPF_STMT(kLoad, offset); }
// Its lower half: of what is looked at here the kernel takes no more.
sock_filter LoadArgument(uint32_t index) {
  return Load(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
}
sock_filter Keep(uint32_t bits) { return BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits); }
sock_filter Return(uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
sock_filter Permit() { return Return(SECCOMP_RET_ALLOW); }
sock_filter Refuse(int error) { return Return(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)); }
// Skips the next `count` instructions unless what was loaded is `value`.
sock_filter UnlessEqualSkip(uint32_t value, size_t count) {
  return BPF_JUMP(kIfEqual, value, 0, static_cast<uint8_t>(count));
}

using Instructions = std::vector<sock_filter>;

Instructions& operator+=(Instructions& all, const Instructions& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Instructions operator+(Instructions all, const Instructions& more) { return all += more; }

// Ends here unless what was loaded is one of `values`.
Instructions OneOf(const std::vector<uint32_t>& values, int else_error) {
  Instructions found;
  for (size_t left = values.size(); left > 0; --left) {
    const uint32_t value = values[values.size() - left];
    found.push_back(BPF_JUMP(kIfEqual, value, static_cast<uint8_t>(left), 0));
  }
  found.push_back(Refuse(else_error));
  return found;
}

// `then`, which comes to a verdict, where what was loaded is `value`.
Instructions If(uint32_t value, const Instructions& then) {
  return Instructions{UnlessEqualSkip(value, then.size())} + then;
}

Instructions RefuseWithBits(uint32_t argument, uint32_t bits) {
  return {LoadArgument(argument), BPF_JUMP(kIfAnyBit, bits, 0, 1), Refuse(EPERM), Permit()};
}

Instructions OwnProcessAlone(const std::vector<uint32_t>& names) {
  return Instructions{LoadArgument(0)} + OneOf(names, EPERM) + Instructions{Permit()};
}

// TCP, UDP, routes for look-ups of names, and Unix sockets. Of the others MPTCP connects to what
// listens by TCP, and Landlock does not see it.
Instructions Sockets(bool has_unix) {
  std::vector<uint32_t> families = {AF_INET, AF_INET6, AF_NETLINK};
  if (has_unix) families.push_back(AF_UNIX);
  return Instructions{LoadArgument(0)} + OneOf(families, EAFNOSUPPORT) + If(AF_UNIX, {Permit()}) +
         If(AF_NETLINK, Instructions{LoadArgument(2)} + OneOf({NETLINK_ROUTE}, EPROTONOSUPPORT) +
                            Instructions{Permit()}) +
         Instructions{LoadArgument(1), Keep(0xf)} +  // the rest of it are flags
         OneOf({SOCK_STREAM, SOCK_DGRAM}, EPROTONOSUPPORT) + Instructions{LoadArgument(2)} +
         OneOf({0, IPPROTO_TCP, IPPROTO_UDP}, EPROTONOSUPPORT) + Instructions{Permit()};
}

Instructions Program(const Rules& rules) {
  const auto self = static_cast<uint32_t>(getpid());
  Instructions program = {Load(offsetof(seccomp_data, arch)),
                          BPF_JUMP(kIfEqual, kArchitecture, 1, 0),
                          Return(SECCOMP_RET_KILL_PROCESS),
                          Load(offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1),
                          Return(SECCOMP_RET_KILL_PROCESS)};
  // What connects on the way, past Landlock. First, since each answer is sent by one of these.
  program += If(SYS_sendmsg, RefuseWithBits(2, MSG_FASTOPEN));
  program += If(SYS_sendto, RefuseWithBits(3, MSG_FASTOPEN));
  program += If(SYS_sendmmsg, RefuseWithBits(3, MSG_FASTOPEN));
  // Keys that are typed into the terminal are commands of the shell behind it.
  program += If(SYS_ioctl, Instructions{LoadArgument(1)} + If(TIOCSTI, {Refuse(EPERM)}) +
                               If(TIOCLINUX, {Refuse(EPERM)}) + Instructions{Permit()});
  for (const uint32_t number : kRefused) program += If(number, {Refuse(EPERM)});
  program += If(SYS_clone3, {Refuse(ENOSYS)});
  program += If(SYS_clone, {LoadArgument(0), BPF_JUMP(kIfAnyBit, CLONE_THREAD, 1, 0), Refuse(EPERM),
                            Permit()});
  for (const uint32_t number : {SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo})
    program += If(number, OwnProcessAlone({self}));
  program += If(SYS_prlimit64, OwnProcessAlone({0, self}));
  program += If(SYS_socket, Sockets(rules.has_unix_sockets));
  if (!rules.has_unix_sockets && !rules.has_socket_pairs)
    program += If(SYS_socketpair, {Refuse(EAFNOSUPPORT)});
  return program + Instructions{Permit()};
}

}  // namespace

bool HasSystemCallFilters() {
  const uint32_t action = SECCOMP_RET_ERRNO;
  return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

Status FilterSystemCalls(const Rules& rules) {
  Instructions program = Program(rules);
  const sock_fprog filter{.len = static_cast<uint16_t>(program.size()), .filter = program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0) return Status::Ok();
  return FailedPrecondition("the kernel does not take the filter of system calls: " +
                            std::generic_category().message(errno));
}

}  // namespace inflight::sandbox
