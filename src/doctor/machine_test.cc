// SPDX-License-Identifier: Apache-2.0
#include "doctor/machine.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "base/descriptor.h"
#include "tensor/cpu_pool.h"

namespace inflight::doctor {
namespace {

namespace fs = std::filesystem;

// A folder with files of /proc and /sys.
class MachineTest : public testing::Test {
 protected:
  MachineTest()
      : root_(fs::temp_directory_path() /
              ("inflight_doctor_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~MachineTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Machine Read(std::vector<Port> ports = {}, const std::string& address = "127.0.0.1") const {
    return ReadMachine(root_, address, std::move(ports));
  }

  const fs::path root_;
};

TEST_F(MachineTest, FilesOfTheKernelAreRead) {
  Write("proc/meminfo", "MemTotal:       16384 kB\nMemFree:  1 kB\nHugePages_Total:       0\n");
  Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Write("proc/self/cgroup", "0::/system.slice/inflight.service\n");
  Write("sys/fs/cgroup/system.slice/inflight.service/memory.max", "536870912\n");
  Write("sys/fs/cgroup/system.slice/pids.max", "77\n");
  const Machine machine = Read();
  EXPECT_EQ(machine.total_bytes, uint64_t{16384} * 1024);
  EXPECT_EQ(machine.huge_pages, "madvise");
  EXPECT_EQ(machine.memory_limit_bytes, uint64_t{536870912});
  EXPECT_EQ(machine.threads, uint64_t{77});
  EXPECT_FALSE(machine.gpu.has_hardware);
}

TEST_F(MachineTest, NodesOfMemoryAreThoseWithCoresOfThisProcess) {
  EXPECT_EQ(Read().memory_nodes, 0);
  const int core = CoresOfAffinityMask().front();
  Write("sys/devices/system/node/node0/cpulist", std::to_string(core) + "\n");
  Write("sys/devices/system/node/node1/cpulist", "100000-100003\n");
  EXPECT_EQ(Read().memory_nodes, 1);
}

TEST_F(MachineTest, WhatIsNotThereIsUnknownAndNoLimit) {
  Write("proc/self/cgroup", "5:memory:/\n0::/\n");
  Write("sys/fs/cgroup/memory.max", "max\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const Machine machine = Read();
  EXPECT_EQ(machine.total_bytes, 0u);
  EXPECT_EQ(machine.huge_pages, "");
  EXPECT_FALSE(machine.memory_limit_bytes.has_value());
  EXPECT_FALSE(machine.shared_memory_bytes.has_value());
}

TEST_F(MachineTest, NvidiaHardwareIsToldByVendorAndClass) {
  Write("sys/bus/pci/devices/0000:00:01.0/vendor", "0x10de\n");
  Write("sys/bus/pci/devices/0000:00:01.0/class", "0x040300\n");  // its sound
  EXPECT_FALSE(Read().gpu.has_hardware);
  Write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x10de\n");
  Write("sys/bus/pci/devices/0000:00:02.0/class", "0x030200\n");
  Write(
      "proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n");
  const Gpu gpu = Read().gpu;
  EXPECT_TRUE(gpu.has_hardware);
  EXPECT_EQ(gpu.driver_version, "550.54.15");
}

TEST_F(MachineTest, APortThatIsListenedOnIsNotFree) {
  const Descriptor taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int number = ntohs(address.sin_port);
  const Machine machine =
      Read({{"HTTP", "--http-port", number, {}}, {"gRPC", "--grpc-port", 0, {}}});
  EXPECT_EQ(machine.ports[0].error, EADDRINUSE);
  EXPECT_EQ(machine.ports[1].error, 0);
  // Of no machine: RFC 5737.
  EXPECT_EQ(Read({{"HTTP", "--http-port", 1, {}}}, "192.0.2.1").ports[0].error, EADDRNOTAVAIL);
}

TEST_F(MachineTest, ThisProcessHasLimitsCoresAndMemory) {
  const Machine machine = Read();
  EXPECT_GE(machine.online_cores, 1);
  EXPECT_GE(machine.usable_cores, 1);
  EXPECT_LE(machine.usable_cores, machine.online_cores);
  EXPECT_GT(machine.available_bytes, 0u);
  EXPECT_GT(machine.open_files.value_or(0), 0u);
  EXPECT_FALSE(machine.kernel.empty());
  EXPECT_EQ(machine.libc.substr(0, 2), "2.");
}

}  // namespace
}  // namespace inflight::doctor
