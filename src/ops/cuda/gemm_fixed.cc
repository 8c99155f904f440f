// SPDX-License-Identifier: Apache-2.0
// Algorithms that give a row the same bits however many rows there are (OpChoice::kFixed).
//
// The library likes other tiles for few rows than for many. As long as no sum is cut into parts,
// each dot product goes through the tensor cores from its first term to its last, and tiles need
// not show in its bits. Nobody promises that, so it is tried, with the model's weights and random
// rows: one algorithm is the measure, others serve the buckets where they give its bits, also for
// the fewest rows of a bucket and wherever among them a row stands. Elsewhere the measure serves.
//
// Sums in another order differ in the last bits of float32, which rounding to 16 bits hides nearly
// always. So the rounded results are taken away from the same sums once more (beta = -1): what is
// left shows eight bits more, or eleven. Of 262,144 sums of 4,096 terms that the library cut in two
// 512 differed in bfloat16 and 133,808 in what was left (H200).
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/gemm_problem.h"

namespace inflight::ops::cuda {
namespace {

constexpr int64_t kMeasureRows = 64;  // of the bucket whose suggestions are measures
constexpr int kNumMeasures = 8;
constexpr int kNumCandidates = 4;  // of a bucket
constexpr int64_t kMaxTrialRows = 512;
constexpr int64_t kMaxTrialTurns = 128;
constexpr int64_t kMaxTrialColumns = 1024;  // that are compared
constexpr int64_t kAlignment = 256;

Status CudaStatus(cudaError_t error) { return inflight::cuda::ToStatus(error, "trying products"); }

// Places for y in a trial: rounded sums, and what rounding left of them.
int NumResults(DType y_dtype) { return y_dtype == DType::kF32 ? 1 : 2; }

// `p` with as many random rows as fit beside their results into the library's workspace, which it
// is not given here.
Result<GemmParams> TrialOf(GemmParams p, CudaStream& stream) {
  const int64_t x_bytes = p.k * static_cast<int64_t>(SizeOf(p.dtype));
  const int64_t y_bytes = StrideOf(p) * static_cast<int64_t>(SizeOf(p.y_dtype));
  const int64_t room = static_cast<int64_t>(kGemmWorkspaceBytes) - kAlignment;
  p.m = std::min(kMaxTrialRows, room / (x_bytes + NumResults(p.y_dtype) * y_bytes));
  if (p.m == 0)
    return Unimplemented(
        fmt::format("deterministic: a row of a {} does not fit into {} bytes; leave the option out",
                    DescriptionOf(p), room));
  std::byte* const x = stream.workspace().gemm;
  RETURN_IF_ERROR(FillRandomly(x, static_cast<size_t>(p.m * x_bytes), p.dtype, stream));
  p.x = x;
  p.y = x + (p.m * x_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return p;
}

}  // namespace

Status GemmPlans::Fix(const GemmParams& params, CudaStream& stream) {
  ASSIGN_OR_RETURN(const GemmParams trial, TrialOf(params, stream));
  GemmParams some = params;
  some.m = kMeasureRows;
  for (const cublasLtMatmulAlgo_t& measure : Suggestions(some, kNumMeasures)) {
    ASSIGN_OR_RETURN(const auto plans, PlansLike(measure, params, trial, stream));
    if (plans.empty()) continue;
    plans_.insert(plans.begin(), plans.end());
    return Status::Ok();
  }
  return Unimplemented(
      fmt::format("deterministic: of a {} cuBLASLt has no algorithms that give a row the same bits "
                  "among few rows and many; leave the option out",
                  DescriptionOf(params)));
}

Result<GemmPlanMap> GemmPlans::PlansLike(const cublasLtMatmulAlgo_t& measure,
                                         const GemmParams& params, const GemmParams& trial,
                                         CudaStream& stream) {
  ASSIGN_OR_RETURN(const auto wanted, ResultsOf(measure, trial, trial.m, stream));
  if (wanted.empty()) return GemmPlanMap();
  const auto agrees = [&](const cublasLtMatmulAlgo_t& algorithm, int64_t bucket) -> Result<bool> {
    for (const int64_t num_rows : {BucketBefore(bucket) + 1, bucket}) {
      ASSIGN_OR_RETURN(const auto got,
                       ResultsOf(algorithm, trial, std::min(num_rows, trial.m), stream));
      if (got.empty() || !std::equal(got.begin(), got.end(), wanted.begin())) return false;
    }
    return true;
  };
  GemmPlanMap plans;
  int num_own = 0;
  for (int64_t bucket = kMaxFixedBucket; bucket > 0; bucket = BucketBefore(bucket)) {
    GemmParams sized = params;
    sized.m = bucket;
    std::vector<cublasLtMatmulAlgo_t> candidates = Suggestions(sized, kNumCandidates);
    const size_t num_suggested = candidates.size();
    candidates.push_back(measure);
    for (size_t i = 0; i < candidates.size(); ++i) {
      ASSIGN_OR_RETURN(const bool serves, agrees(candidates[i], bucket));
      if (!serves) continue;
      plans[KeyOf(sized)] = {.algorithm = candidates[i]};
      num_own += i < num_suggested ? 1 : 0;
      break;
    }
    if (!plans.contains(KeyOf(sized))) return GemmPlanMap();
  }
  logging::Info("products fixed", {{"dtype", DTypeName(params.dtype)},
                                   {"y_dtype", DTypeName(params.y_dtype)},
                                   {"out_features", params.n},
                                   {"in_features", params.k},
                                   {"sizes", plans.size()},
                                   {"sizes_with_own_algorithm", num_own},
                                   {"rows_tried", trial.m}});
  return plans;
}

Result<std::vector<std::byte>> GemmPlans::ResultsOf(const cublasLtMatmulAlgo_t& algorithm,
                                                    const GemmParams& trial, int64_t num_rows,
                                                    CudaStream& stream) {
  const auto x_bytes = static_cast<size_t>(trial.k) * SizeOf(trial.dtype);
  const auto y_bytes = static_cast<size_t>(StrideOf(trial)) * SizeOf(trial.y_dtype);
  const int64_t columns = std::min(trial.n, kMaxTrialColumns);
  const size_t width = static_cast<size_t>(columns) * SizeOf(trial.y_dtype);
  const size_t skipped = static_cast<size_t>(trial.n - columns) * SizeOf(trial.y_dtype);
  const auto num_results = static_cast<size_t>(NumResults(trial.y_dtype));
  const int64_t num_all = std::min(trial.m, kMaxTrialTurns * num_rows);
  const size_t all_bytes = static_cast<size_t>(num_all) * y_bytes;
  std::vector<std::byte> results(static_cast<size_t>(num_all) * num_results * width);
  GemmParams rows = trial;
  rows.m = num_rows;
  GemmProblem problem;
  RETURN_IF_ERROR(problem.Describe(rows, fast_accumulation_));
  auto* const y = static_cast<std::byte*>(trial.y);
  RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(y, 0xff, num_results * all_bytes, stream.handle())));
  for (size_t i = 0; i < num_results; ++i) {
    for (int64_t done = 0; done < num_all; done += num_rows) {
      // The last turn ends with the last row, though it begins among those of the turn before.
      const auto first = static_cast<size_t>(std::min(done, num_all - num_rows));
      rows.x = static_cast<const std::byte*>(trial.x) + first * x_bytes;
      rows.y = y + i * all_bytes + first * y_bytes;
      const void* const rounded = i == 0 ? nullptr : y + first * y_bytes;
      if (Launch(problem, rows, algorithm, stream, rounded) != CUBLAS_STATUS_SUCCESS)
        return std::vector<std::byte>();
    }
    RETURN_IF_ERROR(CudaStatus(cudaMemcpy2DAsync(
        results.data() + i * width, num_results * width, y + i * all_bytes + skipped, y_bytes,
        width, static_cast<size_t>(num_all), cudaMemcpyDeviceToHost, stream.handle())));
  }
  RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.handle())));
  return results;
}

}  // namespace inflight::ops::cuda
