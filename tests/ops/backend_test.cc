// SPDX-License-Identifier: Apache-2.0
#include "ops/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <fstream>

#include "ops/cpu/cpu_features.h"

namespace inflight::ops {
namespace {

std::vector<std::string> Names(const std::vector<OpTable>& tables) {
  std::vector<std::string> names;
  for (const OpTable& table : tables) names.push_back(table.name);
  return names;
}

#if defined(__aarch64__)

// What the kernel hands to programs comes from this register (Arm Architecture Reference Manual,
// "AArch64 Instruction Set Attribute Register 0"), which it lets them read too.
TEST(CpuFeaturesTest, AgreeWithTheProcessorsRegister) {
  uint64_t attributes = 0;
  asm("mrs %0, id_aa64isar0_el1" : "=r"(attributes));
  EXPECT_TRUE(cpu::GetCpuFeatures().neon);
  EXPECT_EQ(cpu::GetCpuFeatures().neon_dotprod, ((attributes >> 44) & 0xf) != 0);
  EXPECT_FALSE(cpu::GetCpuFeatures().avx2);
}

TEST(CpuFeaturesTest, IntegersHaveATableOfTheirOwnWhereThereIsADotProduct) {
  std::vector<std::string> of_integers = {"cpu/neon", "reference"};
  if (cpu::GetCpuFeatures().neon_dotprod)
    of_integers.insert(of_integers.begin(), "cpu/neon_dotprod");
  const auto names = [](DType weights) { return Names(CpuOpTables({.weight_dtype = weights})); };
  for (const DType dtype : {DType::kI8, DType::kI4}) EXPECT_EQ(names(dtype), of_integers);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_THAT(names(dtype), testing::ElementsAre("cpu/neon", "reference"));
}

#else

// What the kernel has granted this process: ARCH_GET_XCOMP_PERM of
// Documentation/arch/x86/xstate.rst, whose bit 18 are the tiles' data.
bool MayUseTiles() {
  uint64_t granted = 0;
#if defined(__x86_64__)
  if (syscall(SYS_arch_prctl, 0x1022, &granted) != 0) return false;
#endif
  return (granted >> 18 & 1) != 0;
}

// /proc/cpuinfo is what the kernel found out by itself.
TEST(CpuFeaturesTest, AgreeWithTheOperatingSystem) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "vector kernels exist for x86-64 and AArch64 only";
#endif
  std::string flags;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags")) {
      flags = line + " ";
      break;
    }
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const auto has = [&](const char* flag) {
    return flags.find(std::string(" ") + flag + " ") != std::string::npos;
  };
  const bool avx2 = has("avx2") && has("fma") && has("f16c");
  const bool avx512 =
      avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  EXPECT_EQ(cpu::GetCpuFeatures().avx2, avx2);
  EXPECT_EQ(cpu::GetCpuFeatures().avx512, avx512);
  EXPECT_EQ(cpu::GetCpuFeatures().avx512_vnni, avx512 && has("avx512_vnni"));
  EXPECT_EQ(cpu::GetCpuFeatures().avx512_bf16, avx512 && has("avx512_bf16"));
  const bool amx = has("amx_tile") && has("amx_bf16") && has("amx_int8");
  EXPECT_EQ(cpu::GetCpuFeatures().amx, amx && MayUseTiles());
}

#endif

class FindOpsTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = Device::Cpu(1);
};

TEST_F(FindOpsTest, EveryListedTableIsCompleteAndCanBeForced) {
  const ShapeClass shape = {.weight_dtype = DType::kBF16, .kv_dtype = DType::kBF16, .head_dim = 64};
  const std::vector<OpTable> tables = CpuOpTables(shape);
  EXPECT_EQ(tables.back().name, "reference");
  for (const OpTable& table : tables) {
    EXPECT_NE(table.embed, nullptr);
    EXPECT_NE(table.add_norm, nullptr);
    EXPECT_NE(table.qkv_rope_kv, nullptr);
    EXPECT_NE(table.attention, nullptr);
    EXPECT_NE(table.linear, nullptr);
    EXPECT_NE(table.gated_linear, nullptr);
    EXPECT_NE(table.lm_head, nullptr);
    const auto found = FindOps(*device_, shape, table.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->name, table.name);
    EXPECT_EQ(found->linear, table.linear);
  }
}

TEST_F(FindOpsTest, AFixedChoiceIsTheFirstOfTheListWhateverIsFaster) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8}) {
    const ShapeClass shape = {.weight_dtype = dtype, .kv_dtype = DType::kBF16, .head_dim = 64};
    const auto found = FindOps(*device_, shape, {}, OpChoice::kFixed);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->name, CpuOpTables(shape).front().name);
  }
}

TEST_F(FindOpsTest, WithoutAForcedNameATableOfTheListIsChosen) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const ShapeClass shape = {.weight_dtype = dtype, .kv_dtype = dtype, .head_dim = 64};
    const auto found = FindOps(*device_, shape);
    ASSERT_TRUE(found.ok());
    EXPECT_THAT(Names(CpuOpTables(shape)), testing::Contains(found->name));
    if (dtype != DType::kBF16) {
      EXPECT_EQ(found->name, CpuOpTables(shape).front().name);
    }
  }
}

TEST_F(FindOpsTest, AnUnknownNameListsWhatCanRun) {
  const auto found = FindOps(*device_, {}, "cpu/avx1024");
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(found.status().message(), testing::HasSubstr("got cpu/avx1024, here can run "));
  EXPECT_THAT(found.status().message(), testing::EndsWith("reference"));
}

// Where the build or the machine has no GPU, cuda is refused by name and with the remedy.
TEST_F(FindOpsTest, CudaIsAGpuOrAClearRefusal) {
  const auto gpu = Device::ByName("cuda");
  if (gpu.ok()) {
    EXPECT_EQ((*gpu)->kind(), DeviceKind::kCuda);
    return;
  }
  EXPECT_THAT(gpu.status().message(), testing::HasSubstr("device: got cuda"));
  EXPECT_THAT(gpu.status().message(), testing::HasSubstr("cpu"));
  const auto automatic = Device::ByName("auto", 1);
  ASSERT_TRUE(automatic.ok());
  EXPECT_EQ((*automatic)->kind(), DeviceKind::kCpu);
}

}  // namespace
}  // namespace inflight::ops
