// SPDX-License-Identifier: Apache-2.0
#include "old_glibc/functions.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

// NOLINTBEGIN: names and forms are those of the C library

// ---- 2.34: before it, constructors were run by what is linked into the program ----

extern "C" {

using Main = int(int, char**, char**);
using Constructor = void(int, char**, char**);

extern Constructor* const __preinit_array_start[];
extern Constructor* const __preinit_array_end[];
extern Constructor* const __init_array_start[];
extern Constructor* const __init_array_end[];
void _init();
int __real___libc_start_main(Main* main, int argc, char** argv, Constructor* construct,
                             void (*finish)(), void (*finish_loader)(), void* stack_end);

static void Construct(int argc, char** argv, char** environment) {
  for (auto* each = __preinit_array_start; each != __preinit_array_end; ++each)
    (*each)(argc, argv, environment);
  _init();
  for (auto* each = __init_array_start; each != __init_array_end; ++each)
    (*each)(argc, argv, environment);
}

// Called by the compiler's start file, which knows the newer C library (-Wl,--wrap).
int __wrap___libc_start_main(Main* main, int argc, char** argv, Constructor* /*null*/,
                             void (*finish)(), void (*finish_loader)(), void* stack_end) {
  return __real___libc_start_main(main, argc, argv, Construct, finish, finish_loader, stack_end);
}

// ---- 2.32 ----

// Whether the process has one thread, so that counts need not be atomic: not known.
char __libc_single_threaded = 0;

const char* sigdescr_np(int signal) noexcept {
  return signal > 0 && signal < 32 ? strsignal(signal) : nullptr;
}

// ---- 2.33: functions that were inline, over __xstat ----

int fstatat(int folder, const char* path, struct stat* result, int flags) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, result, flags));
}
int stat(const char* path, struct stat* result) noexcept {
  return fstatat(AT_FDCWD, path, result, 0);
}
int lstat(const char* path, struct stat* result) noexcept {
  return fstatat(AT_FDCWD, path, result, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* result) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, result));
}
int stat64(const char* path, struct stat64* result) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, result, 0));
}
int fstat64(int file, struct stat64* result) noexcept {
  return static_cast<int>(syscall(SYS_fstat, file, result));
}

// ---- 2.30 ----

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static auto* const of_system = reinterpret_cast<decltype(&pthread_cond_clockwait)>(
      dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  const auto wait = of_system == nullptr ? inflight::old_glibc::WaitByRealTime : of_system;
  return wait(condition, mutex, clock, until);
}

// ---- 2.34 ----

int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions,
                                             int first) noexcept {
  static auto* const of_system = reinterpret_cast<int (*)(posix_spawn_file_actions_t*, int)>(
      dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np"));
  const auto add = of_system == nullptr ? inflight::old_glibc::AddCloseOfOpenFiles : of_system;
  return add(actions, first);
}

// ---- 2.35: where a loaded file has its table for exceptions ----

struct Search {
  uintptr_t address;
  dl_find_object* result;
};

// 1 where the file that `info` is of has the address in it.
static int FindIn(dl_phdr_info* info, size_t /*size*/, void* search_of) {
  const auto& search = *static_cast<Search*>(search_of);
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  uintptr_t table = 0;
  bool is_found = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) table = start;
    if (part.p_type != PT_LOAD) continue;
    if (start < begin) begin = start;
    if (start + part.p_memsz > end) end = start + part.p_memsz;
    is_found = is_found || search.address - start < part.p_memsz;
  }
  if (!is_found || table == 0) return 0;
  *search.result = {};
  search.result->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(table);
  return 1;
}

int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search = {reinterpret_cast<uintptr_t>(address), result};
  return dl_iterate_phdr(FindIn, &search) == 1 ? 0 : -1;
}

// ---- 2.36 ----

void arc4random_buf(void* bytes, size_t size) noexcept {
  constexpr size_t kMost = 256;  // of one call
  for (auto* at = static_cast<char*>(bytes); size > 0;) {
    const size_t part = size < kMost ? size : kMost;
    if (getentropy(at, part) != 0) abort();
    at += part;
    size -= part;
  }
}
uint32_t arc4random() noexcept {
  uint32_t number = 0;
  arc4random_buf(&number, sizeof number);
  return number;
}

}  // extern "C"

namespace inflight::old_glibc {

int WaitByRealTime(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                   const timespec* until) {
  constexpr int64_t kBillion = 1'000'000'000;
  timespec now{};
  timespec end{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &end);
  const int64_t left_ns = (until->tv_sec - now.tv_sec) * kBillion + until->tv_nsec - now.tv_nsec;
  const int64_t end_ns = end.tv_nsec + (left_ns > 0 ? left_ns : 0);
  end.tv_sec += end_ns / kBillion;
  end.tv_nsec = end_ns % kBillion;
  return pthread_cond_timedwait(condition, mutex, &end);
}

int AddCloseOfOpenFiles(posix_spawn_file_actions_t* actions, int first) {
  DIR* const files = opendir("/proc/self/fd");
  if (files == nullptr) return errno;
  int error = 0;
  for (const dirent* file = readdir(files); file != nullptr && error == 0; file = readdir(files)) {
    const int number = atoi(file->d_name);  // "." and "..": 0
    if (number >= first) error = posix_spawn_file_actions_addclose(actions, number);
  }
  closedir(files);
  return error;
}

}  // namespace inflight::old_glibc

// NOLINTEND
