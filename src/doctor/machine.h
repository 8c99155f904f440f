// SPDX-License-Identifier: Apache-2.0
// What a server meets on this machine, as the kernel tells it to this process: limits, memory,
// instruction sets, ports, libraries that are loaded when they are needed.
//
// Errors: none; what cannot be read is left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/cpu_features.h"

namespace inflight::doctor {

struct Port {
  std::string name;    // "HTTP"
  std::string option;  // that gives another: "--http-port"
  int number = 0;
  int error = 0;  // of errno: why nothing can listen there; 0 where something can
};

bool IsIpAddress(const std::string& text);

struct Library {
  std::string file;     // "libcurl.so.4"
  std::string used_by;  // "models in object stores"
  std::string package;  // Debian's
  bool is_there = false;
};

struct Gpu {
  bool is_in_build = false;    // the program has kernels for GPUs
  bool has_hardware = false;   // PCI functions of NVIDIA that compute or display
  std::string driver_version;  // of the kernel's module; empty where none is loaded
  std::string name;            // of the first that can be used
  std::string reason;          // why none can
};

struct Machine {
  std::string kernel;  // "6.1.0-28-amd64"
  std::string libc;    // "2.36"
  bool has_vector_kernels = false;
  ops::cpu::CpuFeatures cpu;
  int online_cores = 0;
  int usable_cores = 0;  // affinity and quotas of cgroups
  int memory_nodes = 0;  // NUMA nodes with cores that may be used; 0: unknown
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;                 // limits of cgroups included
  std::optional<uint64_t> memory_limit_bytes;   // of the cgroup
  std::string huge_pages;                       // "always", "madvise", "never"; empty: unknown
  std::optional<uint64_t> shared_memory_bytes;  // size of /dev/shm
  std::optional<uint64_t> open_files;           // the hard limit, to which a server raises its own
  std::optional<uint64_t> locked_bytes;         // UINT64_MAX: unlimited
  std::optional<uint64_t> threads;              // of this user, or of the cgroup where that is less
  int landlock = 0;
  bool has_seccomp = false;
  std::vector<Port> ports;
  std::vector<Library> libraries;
  Gpu gpu;
};

// `root` is "/", or a folder with proc and sys of tests. `ports` are tried at `address`, an IP
// address.
Machine ReadMachine(const std::filesystem::path& root, const std::string& address,
                    std::vector<Port> ports);

}  // namespace inflight::doctor
