// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <system_error>

namespace inflight::doctor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLeastBytes = 256 * kMiB;  // the demo model and its server
constexpr uint64_t kFewBytes = 2 * kGiB;      // a model of a billion parameters in 16 bits
constexpr uint64_t kLeastOpenFiles = 256;     // a model's files, sockets, a few dozen clients
constexpr uint64_t kManyOpenFiles = (uint64_t{16384} * 16 + 8) / 9;  // for 16,384 HTTP connections
static_assert(HttpConnectionsOf(kManyOpenFiles) == 16384);
constexpr uint64_t kLeastThreads = 256;
constexpr uint64_t kFewSharedBytes = 128 * kMiB;  // above what container engines give unless asked

std::string Size(uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
  return fmt::format("{} MiB", bytes / kMiB);
}

Finding Good(std::string subject, std::string found) {
  return {std::move(subject), Verdict::kGood, std::move(found), {}};
}

Finding OfSystem(const Machine& machine) {
  return Good("system", fmt::format("Linux {}, glibc {}", machine.kernel, machine.libc));
}

Finding OfCpu(const Machine& machine) {
  std::vector<std::string> sets;
  if (machine.cpu.avx2) sets.emplace_back("AVX2");
  if (machine.cpu.avx512) sets.emplace_back("AVX-512");
  if (machine.cpu.avx512_vnni) sets.emplace_back("VNNI");
  if (machine.cpu.avx512_bf16) sets.emplace_back("BF16");
  if (machine.cpu.amx) sets.emplace_back("AMX");
  if (machine.cpu.neon) sets.emplace_back("NEON");
  if (machine.cpu.neon_dotprod) sets.emplace_back("dot product");
  if (!sets.empty()) return Good("CPU", fmt::format("{}", fmt::join(sets, ", ")));
  if (!machine.has_vector_kernels)
    return {"CPU", Verdict::kAdvice, "neither x86-64 nor AArch64, which the vector kernels are for",
            "models run by the plain kernels, many times slower: take a machine with one of them"};
  return {"CPU", Verdict::kAdvice, "no AVX2",
          "models run by the plain kernels, many times slower: take a machine, or a CPU model of "
          "the virtual machine, with AVX2, FMA and F16C"};
}

Finding OfCores(const Machine& machine) {
  std::string found =
      fmt::format("{} of {} may be used", machine.usable_cores, machine.online_cores);
  if (machine.memory_nodes > 1)
    found +=
        fmt::format(", on {} nodes of memory, over which weights are spread", machine.memory_nodes);
  if (machine.usable_cores >= 2 || machine.online_cores < 2) return Good("cores", found);
  return {"cores", Verdict::kAdvice, found,
          "kernels and I/O share a core: raise the CPU quota (CPUQuota=, --cpus) or the affinity "
          "mask"};
}

Finding OfMemory(const Machine& machine) {
  std::string found =
      fmt::format("{} of {} available", Size(machine.available_bytes), Size(machine.total_bytes));
  if (machine.memory_limit_bytes)
    found += fmt::format(", limit of the cgroup {}", Size(*machine.memory_limit_bytes));
  if (machine.available_bytes >= kFewBytes) return Good("memory", found);
  const char* const remedy =
      machine.memory_limit_bytes
          ? "raise the limit of the cgroup (MemoryMax=, --memory) or end what uses it; `inflight "
            "inspect DIR` says what a model takes"
          : "end what uses it, or take a machine with more; `inflight inspect DIR` says what a "
            "model takes";
  return {"memory", machine.available_bytes < kLeastBytes ? Verdict::kFault : Verdict::kAdvice,
          found, remedy};
}

Finding OfHugePages(const Machine& machine) {
  if (machine.huge_pages.empty()) return Good("huge pages", "unknown");
  if (machine.huge_pages != "never") return Good("huge pages", machine.huge_pages);
  return {"huge pages", Verdict::kAdvice, "never",
          "weights are read over small pages, slower: echo madvise > "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding OfOpenFiles(const Machine& machine) {
  if (!machine.open_files) return Good("open files", "unknown");
  const uint64_t limit = *machine.open_files;
  const std::string found = limit == UINT64_MAX ? "unlimited" : fmt::format("{} at once", limit);
  if (limit >= kManyOpenFiles) return Good("open files", found);
  return {"open files", limit < kLeastOpenFiles ? Verdict::kFault : Verdict::kAdvice, found,
          fmt::format("a connection is one; raise the hard limit to 65536 (LimitNOFILE=, --ulimit "
                      "nofile, `ulimit -Hn`): at {} a server takes {} connections over HTTP",
                      limit, HttpConnectionsOf(limit))};
}

Finding OfLockedMemory(const Machine& machine) {
  if (!machine.locked_bytes) return Good("locked memory", "unknown");
  return Good("locked memory", (*machine.locked_bytes == UINT64_MAX ? std::string("unlimited")
                                                                    : Size(*machine.locked_bytes)) +
                                   "; the server locks none");
}

Finding OfThreads(const Machine& machine) {
  if (!machine.threads) return Good("threads", "unknown");
  const std::string found =
      *machine.threads == UINT64_MAX ? "unlimited" : fmt::format("{} at once", *machine.threads);
  if (*machine.threads >= kLeastThreads) return Good("threads", found);
  return {"threads", Verdict::kFault, found,
          "raise the limit of threads (TasksMax=, --pids-limit, `ulimit -Hu`) to 4096"};
}

Finding OfSharedMemory(const Machine& machine) {
  if (!machine.shared_memory_bytes)
    return {"shared memory", Verdict::kAdvice, "no /dev/shm",
            "mount a tmpfs there for clients that send tensors in shared memory"};
  const std::string found = Size(*machine.shared_memory_bytes);
  if (*machine.shared_memory_bytes >= kFewSharedBytes) return Good("shared memory", found);
  return {"shared memory", Verdict::kAdvice, found,
          "clients that send tensors in shared memory need more: mount /dev/shm larger (--shm-size "
          "1g)"};
}

Finding OfSandbox(const Machine& machine) {
  const std::string found =
      fmt::format("Landlock {}, seccomp {}",
                  machine.landlock > 0 ? std::to_string(machine.landlock) : std::string("missing"),
                  machine.has_seccomp ? "there" : "missing");
  if (machine.landlock > 0 && machine.has_seccomp) return Good("sandbox", found);
  return {"sandbox", Verdict::kAdvice, found,
          "--sandbox on ends the start: take Linux 5.13 or later with landlock among lsm= of its "
          "command line, or --sandbox best-effort"};
}

Finding OfPort(const Port& port) {
  const std::string subject = port.name + " port";
  if (port.error == 0) return Good(subject, fmt::format("{} is free", port.number));
  const char* remedy = "stop what has it (`ss -ltnp`)";
  if (port.error == EACCES)
    remedy = "ports below 1024 are for root and CAP_NET_BIND_SERVICE: be it";
  if (port.error == EADDRNOTAVAIL) remedy = "give an IP address of this machine by --address";
  return {subject, Verdict::kFault,
          fmt::format("{}: {}", port.number, std::generic_category().message(port.error)),
          fmt::format("{}, or give another port by {}", remedy, port.option)};
}

Finding OfLibrary(const Library& library) {
  if (library.is_there) return Good(library.file, "there, for " + library.used_by);
  return {
      library.file, Verdict::kAdvice, "missing",
      fmt::format("needed for {} alone: install the package {}", library.used_by, library.package)};
}

Finding OfGpu(const Machine& machine) {
  const Gpu& gpu = machine.gpu;
  const std::string driver =
      gpu.driver_version.empty() ? "" : fmt::format(", driver {}", gpu.driver_version);
  if (!gpu.name.empty()) return Good("GPU", gpu.name + driver);
  if (!gpu.is_in_build) {
    if (!gpu.has_hardware && gpu.driver_version.empty())
      return Good("GPU", "none; this program is built for CPUs");
    return {"GPU", Verdict::kAdvice, "one of NVIDIA" + driver + ", which this program cannot use",
            "models run on the CPU: build with the preset cuda-release (docs/cuda.md)"};
  }
  if (!gpu.has_hardware && gpu.driver_version.empty())
    return Good("GPU", "none; models run on the CPU");
  return {"GPU", Verdict::kFault, gpu.reason + driver,
          gpu.driver_version.empty()
              ? "install NVIDIA's driver, or let the devices into the container (--gpus all)"
              : "update the driver to what docs/cuda.md names, and let /dev/nvidia* in"};
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kAdvice:
      return "advice";
    case Verdict::kFault:
      return "fault";
  }
  return "";
}

std::vector<Finding> Judge(const Machine& machine) {
  std::vector<Finding> findings = {
      OfSystem(machine),       OfCpu(machine),       OfCores(machine),        OfMemory(machine),
      OfHugePages(machine),    OfOpenFiles(machine), OfLockedMemory(machine), OfThreads(machine),
      OfSharedMemory(machine), OfSandbox(machine),   OfGpu(machine),
  };
  for (const Port& port : machine.ports) findings.push_back(OfPort(port));
  for (const Library& library : machine.libraries) findings.push_back(OfLibrary(library));
  return findings;
}

}  // namespace inflight::doctor
