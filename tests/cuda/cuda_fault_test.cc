// SPDX-License-Identifier: Apache-2.0
// Injected faults of the device: pending requests fail, health turns false, nothing hangs. Each
// runs in a process of its own, which a fault makes useless for the GPU.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "gpu_test.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

class CudaFaultDeathTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// Ends the process with 0 if everything is as it should be.
[[noreturn]] void RunIntoFault(Device& device, const char* fault) {
  setenv("INFLIGHT_CUDA_FAULT", fault, 1);
  setenv("INFLIGHT_CUDA_WATCHDOG_MS", "500", 1);
  const auto engine = RandomEngine(TinyLlama(), TinyLimits(), device);
  ExecutorOptions options;
  options.block_size = 16;
  options.max_kv_tokens = 4096;
  bool is_right = true;
  const auto check = [&is_right](bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "WRONG: %s\n", what);
    is_right &= holds;
  };
  {
    const auto executor = MakeExecutor(engine, device, options);
    check(executor->healthy(), "healthy at first");
    std::vector<Request> requests;
    for (unsigned i = 0; i < 5; ++i) requests.push_back(RandomRequest(20, 50, 512, i));
    const auto start = std::chrono::steady_clock::now();
    for (const auto& sink : RunAll(*executor, requests)) {
      check(sink->last.status.code() == StatusCode::kInternal, "requests end with kInternal");
      std::fprintf(stderr, "%s\n", sink->last.status.ToString().c_str());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    check(took.count() < 5, "requests end soon");
    check(!executor->healthy(), "not healthy afterwards");
    const auto refused = executor->Enqueue(requests[0], std::make_shared<CollectingSink>());
    check(refused.status().code() == StatusCode::kUnavailable, "new requests are refused");
  }
  std::fprintf(stderr, "executor gone\n");
  std::exit(is_right ? 0 : 1);
}

TEST_F(CudaFaultDeathTest, ARefusedLaunchFailsPendingRequests) {
  EXPECT_EXIT(RunIntoFault(device(), "launch@7"), testing::ExitedWithCode(0), "executor gone");
}

TEST_F(CudaFaultDeathTest, ATrapFailsPendingRequests) {
  EXPECT_EXIT(RunIntoFault(device(), "trap@7"), testing::ExitedWithCode(0), "executor gone");
}

TEST_F(CudaFaultDeathTest, AStuckStepFailsPendingRequestsAndTheProcessEnds) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EXIT(RunIntoFault(device(), "stuck@7"), testing::ExitedWithCode(0), "executor gone");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 30) << "the GPU would be busy for a minute";
}

}  // namespace
}  // namespace inflight::gpu
