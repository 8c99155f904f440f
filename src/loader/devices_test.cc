// SPDX-License-Identifier: Apache-2.0
#include "loader/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "builder/test_models.h"

namespace inflight {
namespace {

using ::testing::HasSubstr;

class DevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        std::filesystem::temp_directory_path() / ("inflight_devices_" + std::to_string(::getpid()));
    builder::TinyLlama().Write(hf());
    has_gpu_ = cuda::Probe(0).ok();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path hf() const { return root_ / "hf"; }
  std::filesystem::path engine() const { return root_ / "engine"; }
  void BuildEngine(DeviceKind target) {
    const Status built = builder::Build(
        {.checkpoint_dir = hf(), .output_dir = engine(), .limits = {}, .target = target});
    ASSERT_TRUE(built.ok()) << built.ToString();
  }

  std::filesystem::path root_;
  bool has_gpu_ = false;
};

TEST_F(DevicesTest, AutoRunsAnEngineForTheCpuThere) {
  BuildEngine(DeviceKind::kCpu);
  const auto devices = Devices::ByName("auto", 1);
  ASSERT_TRUE(devices.ok());
  const auto device = (*devices)->For(engine());
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ((*device)->kind(), DeviceKind::kCpu);
}

TEST_F(DevicesTest, AutoTakesTheCpuForModelsThatTheGpuCannotRun) {
  const auto devices = Devices::ByName("auto", 1);
  ASSERT_TRUE(devices.ok());
  const auto device = (*devices)->For(hf());  // heads of 8
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_EQ((*device)->kind(), DeviceKind::kCpu);
}

TEST_F(DevicesTest, ModelsOfOneProcessShareADevice) {
  const auto devices = Devices::ByName("auto", 1);
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ((*devices)->For(hf())->get(), (*devices)->For(hf())->get());
}

TEST_F(DevicesTest, AnEngineForCudaNeedsAGpu) {
  if (has_gpu_) GTEST_SKIP() << "shows a machine without a GPU; CI's have none and run it";
  BuildEngine(DeviceKind::kCuda);
  const auto devices = Devices::ByName("auto", 1);
  ASSERT_TRUE(devices.ok());
  const Status status = (*devices)->For(engine()).status();
  EXPECT_EQ(status.code(), cuda::Probe(0).status().code());
  EXPECT_THAT(status.message(), HasSubstr("built for target 'cuda': device: got cuda"));
}

TEST_F(DevicesTest, AGpuThatAModelAsksForIsThatOneOrAnError) {
  const auto devices = Devices::ByName("auto", 1);
  ASSERT_TRUE(devices.ok());
  const auto first = (*devices)->ForGpu(hf(), 0);
  EXPECT_EQ(first.ok(), has_gpu_);
  if (has_gpu_) {
    EXPECT_EQ((*first)->name(), "cuda:0");
  }
  constexpr int kNowhere = 4096;
  const Status status = (*devices)->ForGpu(hf(), kNowhere).status();
  EXPECT_EQ(status.message(), cuda::Probe(kNowhere).status().message());
  EXPECT_FALSE(status.ok());
  BuildEngine(DeviceKind::kCpu);
  EXPECT_THAT((*devices)->ForGpu(engine(), 0).status().message(),
              HasSubstr("was built for the CPU (build it with --target cuda"));
  // An option that names a device goes before the files.
  const auto named = Devices::ByName("cpu", 1);
  EXPECT_EQ((*(*named)->ForGpu(hf(), 0))->kind(), DeviceKind::kCpu);
}

TEST_F(DevicesTest, ANamedDeviceThatIsNotThereIsAnErrorAtOnce) {
  if (!has_gpu_) {
    EXPECT_EQ(Devices::ByName("cuda").status().message(), cuda::Probe(0).status().message());
  }
  EXPECT_THAT(Devices::ByName("tpu").status().message(),
              HasSubstr("device: got 'tpu', must be auto, cpu, cuda or cuda:N"));
}

TEST_F(DevicesTest, AnEngineOpensOnlyOnItsKindOfDevice) {
  BuildEngine(DeviceKind::kCuda);
  const auto cpu = Device::Cpu(1);
  const Status status = builder::Open(engine(), *cpu).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("built for target 'cuda', the device is 'cpu'"));
  EXPECT_THAT(status.message(), HasSubstr("--target cpu"));
}

TEST_F(DevicesTest, Float32BecomesBfloat16ForCudaUnlessItIsNamed) {
  BuildEngine(DeviceKind::kCuda);
  const auto description = builder::Describe(engine());
  ASSERT_TRUE(description.ok()) << description.status().ToString();
  EXPECT_EQ(description->config.dtype, DType::kBF16);
  EXPECT_EQ(description->target, DeviceKind::kCuda);
  builder::BuildOptions named = {.checkpoint_dir = hf(),
                                 .output_dir = engine(),
                                 .dtype = DType::kF32,
                                 .limits = {},
                                 .target = DeviceKind::kCuda};
  ASSERT_EQ(builder::Build(named), Status::Ok());
  const auto wide = builder::Describe(engine());
  ASSERT_TRUE(wide.ok()) << wide.status().ToString();
  EXPECT_EQ(wide->config.dtype, DType::kF32);
  EXPECT_GT(wide->weight_bytes, description->weight_bytes);
  named.tp_size = 2;
  EXPECT_THAT(builder::Build(named).message(),
              HasSubstr("dtype: got float32 on 2 ranks for target cuda"));
  named.tp_size = std::nullopt;
  named.quant_algo = model::QuantAlgo::kW8A16;
  EXPECT_THAT(builder::Build(named).message(),
              HasSubstr("quant_algo: got W8A16 beside dtype float32 for target cuda"));
}

}  // namespace
}  // namespace inflight
