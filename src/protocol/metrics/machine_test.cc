// SPDX-License-Identifier: Apache-2.0
#include "protocol/metrics/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/metrics/nvml.h"

namespace inflight::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CpuTimesTest, IdleAndIoWaitAreNotBusy) {
  // user nice system idle iowait irq softirq steal guest guest_nice
  const auto times = ParseCpuTimes("cpu  10 1 5 100 20 2 3 4 7 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->total, 145U);
  EXPECT_EQ(times->busy, 25U);
  EXPECT_FALSE(ParseCpuTimes("cpu  10 1 5"));
  EXPECT_FALSE(ParseCpuTimes("intr 1"));
  EXPECT_FALSE(ParseCpuTimes(""));
}

TEST(CpuMemoryTest, UsedIsWhatIsNotAvailable) {
  const auto memory = ParseCpuMemory("MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n");
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total_bytes, 1024000U);
  EXPECT_EQ(memory->used_bytes, 614400U);
  EXPECT_FALSE(ParseCpuMemory("MemTotal: 1000 kB\n"));
  EXPECT_FALSE(ParseCpuMemory("MemTotal: 1 kB\nMemAvailable: 2 kB\n"));
}

TEST(VisibleGpusTest, NamesAreIndicesOrBeginningsOfUuidsUpToTheFirstUnknown) {
  const std::vector<std::string> uuids = {"GPU-aa11", "GPU-bb22", "GPU-bb33"};
  EXPECT_THAT(VisibleGpus("2,0", uuids), ElementsAre(2, 0));
  EXPECT_THAT(VisibleGpus("GPU-bb", uuids), ElementsAre(1));
  EXPECT_THAT(VisibleGpus("GPU-bb3,0", uuids), ElementsAre(2, 0));
  EXPECT_THAT(VisibleGpus("1,7,0", uuids), ElementsAre(1));
  EXPECT_THAT(VisibleGpus("-1", uuids), IsEmpty());
  EXPECT_THAT(VisibleGpus("", uuids), IsEmpty());
}

TEST(NvmlTest, ReadsWhatEachGpuHas) {
  const auto nvml = Nvml::Open(FAKE_NVML, nullptr);
  ASSERT_NE(nvml, nullptr);
  const std::vector<GpuReading> readings = nvml->Read();
  ASSERT_EQ(readings.size(), 2U);
  EXPECT_EQ(readings[0].uuid, "GPU-00");
  EXPECT_EQ(readings[0].utilization, 0.25);
  EXPECT_EQ(readings[0].memory_total_bytes, uint64_t{80} << 30);
  EXPECT_EQ(readings[0].memory_used_bytes, uint64_t{24} << 30);
  EXPECT_EQ(readings[0].power_watts, 123.5);
  EXPECT_EQ(readings[0].power_limit_watts, 700);
  EXPECT_EQ(readings[0].energy_joules, 1.5) << "since Open";
  EXPECT_EQ(readings[1].uuid, "GPU-11");
  EXPECT_EQ(readings[1].power_watts, std::nullopt);
  EXPECT_EQ(readings[1].energy_joules, std::nullopt);
}

TEST(NvmlTest, WithoutLibraryOrVisibleGpuThereIsNone) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so", nullptr), nullptr);
  EXPECT_EQ(Nvml::Open(FAKE_NVML, ""), nullptr);
  const auto second = Nvml::Open(FAKE_NVML, "1");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->Read()[0].uuid, "GPU-11");
}

TEST(MachinePageTest, FamiliesAreThoseThatHaveReadings) {
  TextWriter out;
  MachineReadings readings;
  readings.cpu_utilization = 0.5;
  readings.cpu_memory = CpuMemory{.total_bytes = 2048, .used_bytes = 1024};
  readings.gpus = {{.uuid = "GPU-00", .utilization = 0.25, .memory_used_bytes = 300},
                   {.uuid = "GPU-11", .utilization = 0}};
  WriteMachine(readings, out);
  const std::string page = out.Take();
  EXPECT_THAT(page, HasSubstr("# TYPE nv_gpu_utilization gauge\n"
                              "nv_gpu_utilization{gpu_uuid=\"GPU-00\"} 0.25\n"
                              "nv_gpu_utilization{gpu_uuid=\"GPU-11\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-00\"} 300\n"));
  EXPECT_THAT(page, Not(HasSubstr("nv_gpu_power_usage")));
  EXPECT_THAT(page, HasSubstr("\nnv_cpu_utilization 0.5\n"));
  EXPECT_THAT(page, HasSubstr("\nnv_cpu_memory_total_bytes 2048\n"));
  EXPECT_THAT(page, HasSubstr("\nnv_cpu_memory_used_bytes 1024\n"));
}

TEST(MachineMonitorTest, ReadsThisMachine) {
  const MachineMonitor monitor({.with_gpus = false, .interval = std::chrono::milliseconds(5)});
  const MachineReadings readings = monitor.readings();
  ASSERT_TRUE(readings.cpu_utilization);
  EXPECT_GE(*readings.cpu_utilization, 0);
  EXPECT_LE(*readings.cpu_utilization, 1);
  ASSERT_TRUE(readings.cpu_memory);
  EXPECT_GT(readings.cpu_memory->total_bytes, readings.cpu_memory->used_bytes);
  EXPECT_THAT(readings.gpus, IsEmpty());
}

TEST(MachineMonitorTest, WhatIsSwitchedOffIsNotRead) {
  const MachineMonitor monitor({.with_cpu = false, .with_gpus = false});
  EXPECT_FALSE(monitor.readings().cpu_utilization);
  EXPECT_FALSE(monitor.readings().cpu_memory);
}

}  // namespace
}  // namespace inflight::metrics
