// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: its handle and, per shape, the algorithm that was chosen.
//
// Numbers of rows are grouped into buckets: 1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256,
// 384, 512, then powers of two. An algorithm found for a bucket runs every product whose rows fit
// into it and not into the one before; rows are not padded.
//
// An algorithm is the library's first suggestion, or the fastest of its first suggestions where
// Tune has timed them on this GPU. What Tune found can be saved and loaded as text, tagged with the
// GPU and the library's version: another card or version ignores it (algorithms are opaque to us).
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

class GemmPlans {
 public:
  static Result<std::unique_ptr<GemmPlans>> Create(const Device& device);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  Status Run(const GemmParams& params, CudaStream& stream);

  // Times the first `num_candidates` suggestions for every bucket of every shape on cold weights
  // and keeps the fastest; shapes and buckets that are tuned already are left alone. Waits for the
  // GPU.
  Status Tune(std::span<const LinearShape> shapes, CudaStream& stream, int num_candidates = 16);

  // The same for the bucket of one product, on its operands: `w` is followed by the other
  // `num_weights` - 1 matrices, which take turns.
  Status TuneRows(GemmParams params, int64_t num_weights, CudaStream& stream,
                  int num_candidates = 16);

  std::string Save() const { return FormatGemmPlans(tag_, plans_); }
  // How many plans were taken: 0 of another GPU or version.
  Result<int> Load(std::string_view text);

  size_t num_plans() const { return plans_.size(); }

  // FP8 sums that the tensor cores keep in fewer bits than float32 between instructions; off =
  // exact, slower.
  void set_fast_accumulation(bool fast) { fast_accumulation_ = fast; }

 private:
  struct Problem;  // cuBLASLt's descriptions of one product

  GemmPlans() = default;
  Result<const GemmPlan*> Find(const GemmParams& params);
  // The library's suggestions for `params`, best first; empty where it has none.
  std::vector<cublasLtMatmulAlgo_t> Suggestions(const GemmParams& params, int count) const;
  cublasStatus_t Launch(Problem& problem, const GemmParams& params,
                        const cublasLtMatmulAlgo_t& algorithm, CudaStream& stream);
  Result<float> TimeMicros(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm,
                           int64_t num_weights, float give_up_us, CudaStream& stream);

  cublasLtHandle_t handle_ = nullptr;
  std::string tag_;
  bool fast_accumulation_ = true;
  GemmPlanMap plans_;
};

}  // namespace inflight::ops::cuda
