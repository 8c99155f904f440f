// SPDX-License-Identifier: Apache-2.0
// Algorithms that the library has and does not suggest: a suggestion with other tiles, clusters and
// options.
//
// For 65 to 256 rows the library's list misses some of the fastest
// (bench/results/cuda-gemm.txt): of 4,096 features by 128 rows one with tiles of 72 by 64 in
// clusters of two takes 7 to 14 % less time, presumably for how few tiles fall on 132
// multiprocessors. A call alone tells fast ones from slow ones; which is the fastest, TuneRows
// finds as among suggestions.
#include <algorithm>

#include "base/status_macros.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/gemm_problem.h"

namespace inflight::ops::cuda {
namespace {

constexpr size_t kNumFast = 8;  // that are worth a second look
constexpr uint16_t kClusters[] = {CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_4x1x1,
                                  CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_1x4x1,
                                  CUBLASLT_CLUSTER_SHAPE_2x2x1};

// Nothing is changed where the algorithm refuses, which AlgoCheck finds.
template <typename Value>
void Configure(cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
               Value value) {
  (void)cublasLtMatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value));
}

std::vector<uint32_t> TilesOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<uint32_t> tiles(CUBLASLT_MATMUL_TILE_END);
  size_t bytes = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(),
                                        tiles.size() * sizeof(uint32_t),
                                        &bytes) != CUBLAS_STATUS_SUCCESS)
    return {};
  tiles.resize(bytes / sizeof(uint32_t));
  return tiles;
}

}  // namespace

bool GemmPlans::CanRun(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm) const {
  GemmProblem problem;
  if (!problem.Describe(params, fast_accumulation_).ok()) return false;
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_, &problem.operation, &problem.w, &problem.x, &problem.y,
                              &problem.y, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kGemmWorkspaceBytes;
}

// Tiles first, each in a cluster of its own, then clusters of the fastest.
Result<std::vector<cublasLtMatmulAlgo_t>> GemmPlans::FastVariants(
    const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm, int64_t num_weights,
    CudaStream& stream) {
  struct Variant {
    float us;
    cublasLtMatmulAlgo_t algorithm;
  };
  std::vector<Variant> variants;
  const auto add = [&](const cublasLtMatmulAlgo_t& variant) -> Status {
    if (!CanRun(params, variant)) return Status::Ok();
    ASSIGN_OR_RETURN(const float us, TimeCallMicros(params, variant, num_weights, stream));
    if (us >= 0) variants.push_back({us, variant});
    return Status::Ok();
  };
  const auto keep_fastest = [&] {
    std::ranges::sort(variants, {}, &Variant::us);
    variants.resize(std::min(variants.size(), kNumFast));
  };

  cublasLtMatmulAlgo_t variant = algorithm;
  Configure(variant, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{1});
  Configure(variant, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
            static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  Configure(variant, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{0});
  Configure(variant, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
            static_cast<uint16_t>(CUBLASLT_CLUSTER_SHAPE_1x1x1));
  for (const uint32_t tile : TilesOf(algorithm)) {
    Configure(variant, CUBLASLT_ALGO_CONFIG_TILE_ID, tile);
    RETURN_IF_ERROR(add(variant));
  }
  keep_fastest();
  for (const Variant& alone : std::vector(variants))
    for (const uint16_t cluster : kClusters) {
      variant = alone.algorithm;
      Configure(variant, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster);
      RETURN_IF_ERROR(add(variant));
    }
  keep_fastest();

  std::vector<cublasLtMatmulAlgo_t> fastest;
  for (const Variant& fast : variants) fastest.push_back(fast.algorithm);
  return fastest;
}

std::vector<cublasLtMatmulAlgo_t> GemmPlans::WithOtherOptions(
    const GemmParams& params, cublasLtMatmulAlgo_t algorithm) const {
  int32_t max_option = 0;
  size_t bytes = 0;
  (void)cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX,
                                          &max_option, sizeof(max_option), &bytes);
  std::vector<cublasLtMatmulAlgo_t> variants;
  for (int32_t option = 0; option <= std::min(max_option, 31); ++option) {
    Configure(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, static_cast<uint32_t>(option));
    if (CanRun(params, algorithm)) variants.push_back(algorithm);
  }
  return variants;
}

}  // namespace inflight::ops::cuda
