// SPDX-License-Identifier: Apache-2.0
#include "doctor/machine.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/descriptor.h"
#include "sandbox/landlock.h"
#include "tensor/cgroup.h"
#include "tensor/cpu_pool.h"
#include "tensor/cuda_runtime_calls.h"
#include "tensor/device.h"
#include "tensor/numa.h"

namespace inflight::doctor {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<uint64_t> Number(const fs::path& path) {
  uint64_t number = 0;
  if (!(std::ifstream(path) >> number)) return std::nullopt;  // "max" is none
  return number;
}

uint64_t TotalBytes(const fs::path& root) {
  std::ifstream meminfo(root / "proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  for (std::string line; std::getline(meminfo, line);)
    if (std::istringstream(line) >> key >> kib && key == "MemTotal:") return kib * 1024;
  return 0;
}

// The word in brackets of "always [madvise] never".
std::string Chosen(const std::string& line) {
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return line.substr(begin + 1, end - begin - 1);
}

// The least number in a file of the process's cgroups.
std::optional<uint64_t> CgroupLimit(const fs::path& root, std::string_view controller,
                                    const char* file_v2, const char* file_v1) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // of version 1: a number near 2^63
  std::optional<uint64_t> least;
  for (const CgroupFolder& folder : CgroupFolders(root, controller)) {
    const auto limit = Number(folder.path / (folder.version == 2 ? file_v2 : file_v1));
    if (limit && *limit < kNoLimit) least = least ? std::min(*least, *limit) : *limit;
  }
  return least;
}

std::optional<uint64_t> HardLimit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return std::nullopt;
  return limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : uint64_t{limit.rlim_max};
}

std::optional<uint64_t> Threads(const fs::path& root) {
  const auto of_user = HardLimit(RLIMIT_NPROC);
  const auto of_group = CgroupLimit(root, "pids", "pids.max", "pids.max");
  if (!of_user || !of_group) return of_user ? of_user : of_group;
  return std::min(*of_user, *of_group);
}

std::optional<uint64_t> SharedMemoryBytes(const fs::path& root) {
  struct statvfs file_system {};
  if (statvfs((root / "dev/shm").c_str(), &file_system) != 0) return std::nullopt;
  return uint64_t{file_system.f_blocks} * file_system.f_frsize;
}

// Why nothing can listen there, of errno; 0 where something can. Binds and lets go again.
int WhyNotBound(const std::string& address, int port) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<uint16_t>(port));
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return EADDRNOTAVAIL;
  const Descriptor socket_of(socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;  // as the server: connections that end slowly keep nobody from the port
  setsockopt(socket_of.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* const bound =
      is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  const socklen_t size = is_v4 ? sizeof(v4) : sizeof(v6);
  if (bind(socket_of.get(), bound, size) == 0 && listen(socket_of.get(), 1) == 0) return 0;
  return errno;
}

std::vector<Library> Libraries() {
  std::vector<Library> libraries = {
      {"libcurl.so.4", "models in object stores (s3://, gs://, as://)", "libcurl4", false},
      {"libzmq.so.5", "KV events (--kv-events-endpoint)", "libzmq5", false}};
  for (Library& library : libraries) {
    void* const loaded = dlopen(library.file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    library.is_there = loaded != nullptr;
    if (loaded != nullptr) dlclose(loaded);
  }
  return libraries;
}

// Among PCI functions: vendor NVIDIA, class display or processing accelerator.
bool HasNvidiaHardware(const fs::path& root) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    const std::string kind = FirstLine(entry.path() / "class");
    if (FirstLine(entry.path() / "vendor") == "0x10de" &&
        (kind.starts_with("0x03") || kind.starts_with("0x12")))
      return true;
  }
  return false;
}

Gpu ReadGpu(const fs::path& root) {
  Gpu gpu;
  gpu.is_in_build = cuda::HasRuntime();
  gpu.has_hardware = HasNvidiaHardware(root);
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...": the word that begins with
  // a digit after the name of the machine.
  std::istringstream words(FirstLine(root / "proc/driver/nvidia/version"));
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word[0] >= '0' && word[0] <= '9') {
      gpu.driver_version = word;
      break;
    }
  if (!gpu.is_in_build) return gpu;
  const auto probed = cuda::Probe(0);
  if (probed.ok())
    gpu.name = probed->name;
  else
    gpu.reason = probed.status().message();
  return gpu;
}

}  // namespace

bool IsIpAddress(const std::string& text) {
  in6_addr address{};  // large enough for both
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

Machine ReadMachine(const fs::path& root, const std::string& address, std::vector<Port> ports) {
  Machine machine;
  utsname names{};
  if (uname(&names) == 0) machine.kernel = names.release;
  machine.libc = gnu_get_libc_version();
#if defined(__x86_64__) || defined(__aarch64__)
  machine.has_vector_kernels = true;
#endif
  machine.cpu = ops::cpu::GetCpuFeatures();
  machine.online_cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  machine.usable_cores = NumUsableCores();
  machine.memory_nodes = static_cast<int>(NumaNodes(root, CoresOfAffinityMask()).size());
  machine.total_bytes = TotalBytes(root);
  machine.available_bytes = AvailableHostBytes();
  machine.memory_limit_bytes = CgroupLimit(root, "memory", "memory.max", "memory.limit_in_bytes");
  machine.huge_pages = Chosen(FirstLine(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  machine.shared_memory_bytes = SharedMemoryBytes(root);
  machine.open_files = HardLimit(RLIMIT_NOFILE);
  machine.locked_bytes = HardLimit(RLIMIT_MEMLOCK);
  machine.threads = Threads(root);
  machine.landlock = sandbox::LandlockVersion();
  machine.has_seccomp = prctl(PR_GET_SECCOMP) >= 0;
  for (Port& port : ports) port.error = WhyNotBound(address, port.number);
  machine.ports = std::move(ports);
  machine.libraries = Libraries();
  machine.gpu = ReadGpu(root);
  return machine;
}

}  // namespace inflight::doctor
