// SPDX-License-Identifier: Apache-2.0
#include "sandbox/system_calls.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
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

// clang-format off
constexpr uint32_t kRefused[] = {
    // programs and processes
    SYS_execve, SYS_execveat,
#ifdef SYS_fork  // of x86-64 alone
    SYS_fork, SYS_vfork, SYS_uselib, SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_mknod,
#endif
    SYS_mknodat, SYS_personality,
    // other processes
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_kcmp,
    // the kernel
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_syslog,
    SYS_add_key, SYS_keyctl, SYS_request_key, SYS_lookup_dcookie, SYS_fanotify_init,
    // places of files
    SYS_mount, SYS_umount2, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
    SYS_mount_setattr, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_open_by_handle_at, SYS_name_to_handle_at,
    SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_quotactl_fd, SYS_acct, SYS_vhangup,
    // the machine's time and name
    SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname,
    // who the process is
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid,
    SYS_setgroups, SYS_capset,
};
// clang-format on

constexpr uint32_t kOffsetOfNumber = offsetof(seccomp_data, nr);
constexpr uint32_t kOffsetOfArchitecture = offsetof(seccomp_data, arch);
constexpr uint32_t kOffsetOfFirstArgument = offsetof(seccomp_data, args);  // its lower half

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kIfEqual = BPF_JMP | BPF_JEQ | BPF_K;

sock_filter Load(uint32_t offset) { return BPF_STMT(kLoad, offset); }
sock_filter Return(uint32_t verdict) { return BPF_STMT(BPF_RET | BPF_K, verdict); }
sock_filter Refuse(int error) { return Return(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)); }
// Skips the next `count` instructions unless what was loaded is `value`.
sock_filter UnlessEqualSkip(uint32_t value, uint8_t count) {
  return BPF_JUMP(kIfEqual, value, 0, count);
}

std::vector<sock_filter> Program() {
  std::vector<sock_filter> program = {Load(kOffsetOfArchitecture),
                                      BPF_JUMP(kIfEqual, kArchitecture, 1, 0),
                                      Return(SECCOMP_RET_KILL_PROCESS),
                                      Load(kOffsetOfNumber),
                                      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1),
                                      Return(SECCOMP_RET_KILL_PROCESS)};
  const auto add = [&](std::initializer_list<sock_filter> instructions) {
    program.insert(program.end(), instructions);
  };
  for (const uint32_t number : kRefused) add({UnlessEqualSkip(number, 1), Refuse(EPERM)});
  add({UnlessEqualSkip(SYS_clone3, 1), Refuse(ENOSYS)});
  add({UnlessEqualSkip(SYS_clone, 4), Load(kOffsetOfFirstArgument),
       BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0), Refuse(EPERM),
       Return(SECCOMP_RET_ALLOW)});
  add({UnlessEqualSkip(SYS_socket, 6), Load(kOffsetOfFirstArgument),
       BPF_JUMP(kIfEqual, AF_UNIX, 4, 0), BPF_JUMP(kIfEqual, AF_INET, 3, 0),
       BPF_JUMP(kIfEqual, AF_INET6, 2, 0), BPF_JUMP(kIfEqual, AF_NETLINK, 1, 0),
       Refuse(EAFNOSUPPORT)});
  add({Return(SECCOMP_RET_ALLOW)});
  return program;
}

}  // namespace

bool HasSystemCallFilters() {
  const uint32_t action = SECCOMP_RET_ERRNO;
  return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

Status FilterSystemCalls() {
  std::vector<sock_filter> program = Program();
  const sock_fprog filter{.len = static_cast<uint16_t>(program.size()), .filter = program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0) return Status::Ok();
  return FailedPrecondition("the kernel does not take the filter of system calls: " +
                            std::generic_category().message(errno));
}

}  // namespace inflight::sandbox
