// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: its handle and, per shape, the algorithm that was chosen.
//
// Numbers of rows are grouped into buckets: 1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256,
// 384, 512, then powers of two. An algorithm found for a bucket runs every product whose rows fit
// into it and not into the one before; rows are not padded.
//
// An algorithm is the library's first suggestion, or the fastest of its first suggestions where
// Tune has timed them on this GPU, for 65 to 256 rows also of their variants. What Tune found can
// be saved and loaded as text, tagged with the GPU and the library's version: another card or
// version ignores it (what the bytes of an algorithm mean is that version's matter).
//
// With OpChoice::kFixed a row of y has the same bits whatever the bucket. Which algorithms may
// serve is tried when a shape is first seen (gemm_fixed.cc), outside of graphs.
//
// Threads: as CudaStream. Nothing here allocates device memory but Tune, which gives it back.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/cuda/kernels.h"

namespace inflight::ops::cuda {

// With OpChoice::kFixed this one serves more rows, too.
inline constexpr int64_t kMaxFixedBucket = 8192;

// The smallest bucket that holds m >= 1 rows; the bucket before the one called `bucket`, 0
// before 1.
int64_t GemmBucket(int64_t m);
int64_t BucketBefore(int64_t bucket);

struct GemmPlanKey {
  int64_t n = 0;
  int64_t k = 0;
  int64_t bucket = 0;
  DType dtype = DType::kBF16;
  DType y_dtype = DType::kBF16;
  int32_t alignment = 16;  // of rows of y in bytes, at most 16

  friend bool operator==(const GemmPlanKey&, const GemmPlanKey&) = default;
};

struct GemmPlan {
  cublasLtMatmulAlgo_t algorithm = {};
  bool is_tuned = false;
};

struct GemmPlanKeyHash {
  size_t operator()(const GemmPlanKey& key) const;
};
using GemmPlanMap = std::unordered_map<GemmPlanKey, GemmPlan, GemmPlanKeyHash>;

// One line of `tag`, then one line for each tuned plan, sorted.
std::string FormatGemmPlans(std::string_view tag, const GemmPlanMap& plans);
// The plans of a text whose tag is `tag`, none where it is another; kInvalidArgument names the line
// that is none of ours.
Result<GemmPlanMap> ParseGemmPlans(std::string_view text, std::string_view tag);

struct GemmProblem;  // gemm_problem.h

class GemmPlans {
 public:
  static Result<std::unique_ptr<GemmPlans>> Create(const Device& device,
                                                   OpChoice choice = OpChoice::kFastest);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  Status Run(const GemmParams& params, CudaStream& stream);

  // Times the first `num_candidates` suggestions for every bucket of every shape on cold weights,
  // for buckets of 65 to 256 rows variants of the best, and keeps the fastest; shapes and buckets
  // that are tuned already are left alone. Waits for the GPU.
  Status Tune(std::span<const LinearShape> shapes, CudaStream& stream, int num_candidates = 16);

  // The same for the bucket of one product, on its operands: `w` is followed by the other
  // `num_weights` - 1 matrices, which take turns.
  Status TuneRows(GemmParams params, int64_t num_weights, CudaStream& stream,
                  int num_candidates = 16);

  std::string Save() const { return FormatGemmPlans(tag_, plans_); }
  // How many plans were taken: 0 of another GPU or version, and with OpChoice::kFixed.
  Result<int> Load(std::string_view text);

  size_t num_plans() const { return plans_.size(); }

  // FP8 sums that the tensor cores keep in fewer bits than float32 between instructions; off =
  // exact, slower.
  void set_fast_accumulation(bool fast) { fast_accumulation_ = fast; }

 private:
  explicit GemmPlans(OpChoice choice) : is_fixed_(choice == OpChoice::kFixed) {}
  GemmPlanKey KeyOf(const GemmParams& params) const;
  Result<const GemmPlan*> Find(const GemmParams& params, CudaStream& stream);
  // The library's suggestions for `params`, best first; empty where it has none.
  std::vector<cublasLtMatmulAlgo_t> Suggestions(const GemmParams& params, int count) const;
  // Whether `algorithm` serves `params` with the workspace that there is.
  bool CanRun(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm) const;
  // The fastest single calls of `algorithm` with any tile and some clusters, without a split of k;
  // `algorithm` with any custom option (gemm_variants.cc).
  Result<std::vector<cublasLtMatmulAlgo_t>> FastVariants(const GemmParams& params,
                                                         const cublasLtMatmulAlgo_t& algorithm,
                                                         int64_t num_weights, CudaStream& stream);
  std::vector<cublasLtMatmulAlgo_t> WithOtherOptions(const GemmParams& params,
                                                     cublasLtMatmulAlgo_t algorithm) const;
  // y = x w^T, less `subtracted` [m, n], which is as y, where there is one.
  cublasStatus_t Launch(GemmProblem& problem, const GemmParams& params,
                        const cublasLtMatmulAlgo_t& algorithm, CudaStream& stream,
                        const void* subtracted = nullptr);
  Result<float> TimeCallMicros(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm,
                               int64_t num_weights, CudaStream& stream);
  Result<float> TimeMicros(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm,
                           int64_t num_weights, float give_up_us, CudaStream& stream);

  // Plans for all buckets of the shape of `params`, whose weights are looked at.
  Status Fix(const GemmParams& params, CudaStream& stream);
  // Those by which every bucket gives the bits of `measure`; empty where one of them has none.
  Result<GemmPlanMap> PlansLike(const cublasLtMatmulAlgo_t& measure, const GemmParams& params,
                                const GemmParams& trial, CudaStream& stream);
  // Some of the results of the first rows of `trial`, row by row, computed `num_rows` rows at a
  // time; empty where the algorithm refuses.
  Result<std::vector<std::byte>> ResultsOf(const cublasLtMatmulAlgo_t& algorithm,
                                           const GemmParams& trial, int64_t num_rows,
                                           CudaStream& stream);

  const bool is_fixed_;
  cublasLtHandle_t handle_ = nullptr;
  std::string tag_;
  bool fast_accumulation_ = true;
  GemmPlanMap plans_;
};

}  // namespace inflight::ops::cuda
