// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace inflight::doctor {
namespace {

using testing::HasSubstr;

// Of a machine on which nothing is to be said.
Machine Fine() {
  Machine machine;
  machine.kernel = "6.1.0";
  machine.libc = "2.36";
  machine.has_vector_kernels = true;
  machine.cpu = {.avx2 = true, .avx512 = true};
  machine.online_cores = machine.usable_cores = 8;
  machine.total_bytes = machine.available_bytes = uint64_t{16} << 30;
  machine.huge_pages = "madvise";
  machine.shared_memory_bytes = uint64_t{8} << 30;
  machine.open_files = 65536;
  machine.locked_bytes = 8 << 20;
  machine.threads = UINT64_MAX;
  machine.landlock = 2;
  machine.has_seccomp = true;
  machine.ports = {{"HTTP", "--http-port", 8000, {}}};
  machine.libraries = {{"libcurl.so.4", "object stores", "libcurl4", true}};
  return machine;
}

Finding Of(const Machine& machine, const std::string& subject) {
  const std::vector<Finding> findings = Judge(machine);
  const auto found = std::ranges::find(findings, subject, &Finding::subject);
  EXPECT_NE(found, findings.end()) << subject;
  return found == findings.end() ? Finding{} : *found;
}

TEST(FindingsTest, AFineMachineNeedsNothing) {
  for (const Finding& finding : Judge(Fine())) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.subject << ": " << finding.found;
    EXPECT_EQ(finding.remedy, "") << finding.subject;
    EXPECT_NE(finding.found, "") << finding.subject;
  }
}

TEST(FindingsTest, TheCpuIsItsInstructionSets) {
  Machine machine = Fine();
  EXPECT_EQ(Of(machine, "CPU").found, "AVX2, AVX-512");
  machine.cpu = {.neon = true, .neon_dotprod = true};
  EXPECT_EQ(Of(machine, "CPU").found, "NEON, dot product");
  EXPECT_EQ(Of(machine, "CPU").verdict, Verdict::kGood);
  machine.cpu = {};
  EXPECT_EQ(Of(machine, "CPU").found, "no AVX2");
  machine.has_vector_kernels = false;
  EXPECT_EQ(Of(machine, "CPU").verdict, Verdict::kAdvice);
  EXPECT_THAT(Of(machine, "CPU").found, HasSubstr("x86-64"));
}

TEST(FindingsTest, WhateverIsNotGoodHasARemedy) {
  Machine machine;  // nothing is known, nothing is there
  machine.ports = {{"gRPC", "--grpc-port", 8001, EADDRINUSE}};
  machine.libraries = {{"libzmq.so.5", "KV events", "libzmq5", false}};
  machine.gpu.has_hardware = true;
  machine.open_files = 64;
  machine.threads = 32;
  machine.huge_pages = "never";
  int bad = 0;
  for (const Finding& finding : Judge(machine)) {
    EXPECT_EQ(finding.remedy.empty(), finding.verdict == Verdict::kGood) << finding.subject;
    bad += finding.verdict == Verdict::kGood ? 0 : 1;
  }
  EXPECT_EQ(bad, 10);  // all but system, cores, locked memory
}

TEST(FindingsTest, APortInUseIsAFaultThatNamesItsOption) {
  Machine machine = Fine();
  machine.ports[0].error = EADDRINUSE;
  const Finding finding = Of(machine, "HTTP port");
  EXPECT_EQ(finding.verdict, Verdict::kFault);
  EXPECT_EQ(finding.found, "8000: Address already in use");
  EXPECT_THAT(finding.remedy, HasSubstr("ss -ltnp"));
  EXPECT_THAT(finding.remedy, HasSubstr("--http-port"));
  machine.ports[0].error = EADDRNOTAVAIL;
  EXPECT_THAT(Of(machine, "HTTP port").remedy, HasSubstr("--address"));
  machine.ports[0].error = EACCES;
  EXPECT_THAT(Of(machine, "HTTP port").remedy, HasSubstr("below 1024"));
}

TEST(FindingsTest, MemoryIsJudgedByWhatIsAvailable) {
  Machine machine = Fine();
  machine.available_bytes = uint64_t{1} << 30;
  EXPECT_EQ(Of(machine, "memory").verdict, Verdict::kAdvice);
  machine.available_bytes = 100 << 20;
  machine.memory_limit_bytes = 512 << 20;
  const Finding finding = Of(machine, "memory");
  EXPECT_EQ(finding.verdict, Verdict::kFault);
  EXPECT_EQ(finding.found, "100 MiB of 16.0 GiB available, limit of the cgroup 512 MiB");
  EXPECT_THAT(finding.remedy, HasSubstr("MemoryMax="));
}

TEST(FindingsTest, OpenFilesBoundConnections) {
  Machine machine = Fine();
  machine.open_files = 1024;
  const Finding finding = Of(machine, "open files");
  EXPECT_EQ(finding.verdict, Verdict::kAdvice);
  EXPECT_THAT(finding.remedy,
              HasSubstr("takes 576 connections"));  // 1024 * 9 / 16, as serve lowers
  machine.open_files = 100;
  EXPECT_EQ(Of(machine, "open files").verdict, Verdict::kFault);
  machine.open_files = UINT64_MAX;
  EXPECT_EQ(Of(machine, "open files").verdict, Verdict::kGood);
}

TEST(FindingsTest, AGpuIsOfInterestWhereTheProgramOrTheMachineHasOne) {
  Machine machine = Fine();
  EXPECT_EQ(Of(machine, "GPU").verdict, Verdict::kGood);
  machine.gpu.has_hardware = true;  // of a program for CPUs
  EXPECT_THAT(Of(machine, "GPU").remedy, HasSubstr("cuda-release"));
  machine.gpu.is_in_build = true;
  machine.gpu.reason = "no NVIDIA driver was found";
  EXPECT_EQ(Of(machine, "GPU").verdict, Verdict::kFault);
  EXPECT_THAT(Of(machine, "GPU").remedy, HasSubstr("driver"));
  machine.gpu.driver_version = "550.54.15";
  machine.gpu.name = "NVIDIA H100";
  EXPECT_EQ(Of(machine, "GPU").found, "NVIDIA H100, driver 550.54.15");
}

TEST(FindingsTest, WithoutLandlockOnlyTheSandboxIsLost) {
  Machine machine = Fine();
  machine.landlock = 0;
  const Finding finding = Of(machine, "sandbox");
  EXPECT_EQ(finding.verdict, Verdict::kAdvice);
  EXPECT_EQ(finding.found, "Landlock missing, seccomp there");
}

TEST(FindingsTest, OneCoreOfManyIsAdvice) {
  Machine machine = Fine();
  machine.usable_cores = 1;
  EXPECT_EQ(Of(machine, "cores").verdict, Verdict::kAdvice);
  machine.online_cores = 1;
  EXPECT_EQ(Of(machine, "cores").verdict, Verdict::kGood);  // there is nothing to change
}

TEST(FindingsTest, SeveralNodesOfMemoryAreNamed) {
  Machine machine = Fine();
  EXPECT_EQ(Of(machine, "cores").found, "8 of 8 may be used");
  machine.memory_nodes = 2;
  EXPECT_EQ(Of(machine, "cores").found,
            "8 of 8 may be used, on 2 nodes of memory, over which weights are spread");
}

}  // namespace
}  // namespace inflight::doctor
