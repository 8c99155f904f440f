// SPDX-License-Identifier: Apache-2.0
// What `inflight build` found to be fastest on this GPU, served: products run by the algorithms in
// the engine's file of hints, and without that file, or with another version's, by others.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "artifact/checkpoint.h"
#include "base/file.h"
#include "builder/builder.h"
#include "counted_loop.h"
#include "requests.h"

namespace inflight::gpu {
namespace {

class TuningTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    dir_ = std::filesystem::path(::testing::TempDir()) / ("tuning_" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
    Must(builder::Build(
        {.checkpoint_dir = std::filesystem::path(INFLIGHT_GOLDEN_DATA) / "llama_head64",
         .output_dir = dir_,
         .dtype = DType::kBF16,
         .limits = {.max_batch_size = 32, .max_num_tokens = 128},
         .target = DeviceKind::kCuda}));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  struct Served {
    std::set<std::string> algorithms;  // of the library's products, in hexadecimal
    int64_t num_heuristics = 0;
  };
  // Loads the engine, which runs every kind of step once, and answers a request.
  Served Serve() {
    counted_calls.algorithms.clear();
    counted_calls.keeps_algorithms = true;
    const int64_t before = counted_calls.num_heuristics;
    {
      CountedLoop loop(Must(builder::Open(dir_, device())), device());
      const auto sink = loop.Enqueue(RandomRequest(40, 5, 130, 1));
      while (loop.Step()) {
      }
      EXPECT_TRUE(sink->last.status.ok() && sink->last.is_final);
    }
    counted_calls.keeps_algorithms = false;
    Served served = {.num_heuristics = counted_calls.num_heuristics - before};
    for (const cublasLtMatmulAlgo_t& algorithm : counted_calls.algorithms)
      served.algorithms.insert(HexOf(algorithm));
    return served;
  }

  static std::string HexOf(const cublasLtMatmulAlgo_t& algorithm) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (const uint64_t word : algorithm.data)
      for (int shift = 60; shift >= 0; shift -= 4) hex += kDigits[(word >> shift) & 15];
    return hex;
  }

  std::filesystem::path tuning_file() const { return dir_ / artifact::kTuningFile; }

  std::filesystem::path dir_;
};

TEST_F(TuningTest, AServedEngineRunsTheStoredAlgorithms) {
  const std::string tuning = Must(ReadFile(tuning_file()));
  const Served tuned = Serve();
  ASSERT_FALSE(tuned.algorithms.empty());
  for (const std::string& algorithm : tuned.algorithms)
    EXPECT_NE(tuning.find(algorithm), std::string::npos) << algorithm << " in\n" << tuning;
  EXPECT_EQ(tuned.num_heuristics, 0) << "nothing was left to ask the library for";

  // The same plans by another version of the library: it is asked for its own.
  const size_t end_of_tag = tuning.find('\n');
  ASSERT_NE(end_of_tag, std::string::npos);
  Must(WriteFile(tuning_file(), tuning.substr(0, end_of_tag) + "1" + tuning.substr(end_of_tag)));
  EXPECT_GT(Serve().num_heuristics, 0);
  std::filesystem::remove(tuning_file());
  EXPECT_GT(Serve().num_heuristics, 0);
}

}  // namespace
}  // namespace inflight::gpu
