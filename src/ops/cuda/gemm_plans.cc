// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/gemm_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <vector>

#include "base/status_macros.h"
#include "ops/cuda/cuda.h"
#include "ops/cuda/gemm_problem.h"

namespace inflight::ops::cuda {
namespace {

using inflight::cuda::ToStatus;

constexpr std::array<int64_t, 16> kBuckets = {1,  2,  4,   8,   16,  32,  48,  64,
                                              80, 96, 128, 160, 192, 256, 384, 512};

// Products of more rows than the first, at most the second and of at most so many features are
// tuned among variants, too. Those of more features are heads, which win up to 6 % where trying
// takes longest.
constexpr int64_t kFewRows = 64;
constexpr int64_t kSomeRows = 256;
constexpr int64_t kSomeFeatures = 32768;

bool IsTunedAmongVariants(const GemmParams& p) {
  return p.m > kFewRows && p.m <= kSomeRows && p.n <= kSomeFeatures && AlignmentOfY(p) == 16;
}

Status CudaStatus(cudaError_t error) { return ToStatus(error, "tuning of products"); }

std::string HexOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string hex;
  for (const uint64_t word : algorithm.data) hex += fmt::format("{:016x}", word);
  return hex;
}

bool ParseHex(std::string_view hex, cublasLtMatmulAlgo_t& algorithm) {
  if (hex.size() != 16 * std::size(algorithm.data)) return false;
  for (uint64_t& word : algorithm.data) {
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + 16, word, 16);
    if (error != std::errc() || end != hex.data() + 16) return false;
    hex.remove_prefix(16);
  }
  return true;
}

std::string_view NextField(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

template <typename Int>
bool ParsePositive(std::string_view text, Int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0;
}

bool ParseLine(std::string_view line, GemmPlanKey& key, GemmPlan& plan) {
  const auto dtype = DTypeFromName(NextField(line));
  const auto y_dtype = DTypeFromName(NextField(line));
  if (!dtype || !y_dtype) return false;
  key.dtype = *dtype;
  key.y_dtype = *y_dtype;
  const bool has_numbers =
      ParsePositive(NextField(line), key.n) && ParsePositive(NextField(line), key.k) &&
      ParsePositive(NextField(line), key.bucket) && ParsePositive(NextField(line), key.alignment);
  plan.is_tuned = true;
  return has_numbers && ParseHex(line, plan.algorithm);
}

// A graph that lives as long as this.
struct Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
};

struct Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  Events() = default;
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
  }
  Status Create() {
    RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&begin)));
    return ToStatus(cudaEventCreate(&end), "cudaEventCreate");
  }
};

// Microseconds that `launch` keeps the stream busy.
template <typename Launch>
Result<float> Measure(const Events& events, CudaStream& stream, const Launch& launch) {
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events.begin, stream.handle())));
  RETURN_IF_ERROR(launch());
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events.end, stream.handle())));
  RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(events.end)));
  float ms = 0;
  RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, events.begin, events.end)));
  return ms * 1000;
}

}  // namespace

int64_t GemmBucket(int64_t m) {
  if (m <= kBuckets.back()) return *std::ranges::lower_bound(kBuckets, m);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m)));
}

int64_t BucketBefore(int64_t bucket) {
  if (bucket > kBuckets.back()) return bucket / 2;
  const auto it = std::ranges::lower_bound(kBuckets, bucket);
  return it == kBuckets.begin() ? 0 : *(it - 1);
}

GemmPlanKey GemmPlans::KeyOf(const GemmParams& p) const {
  int64_t bucket = GemmBucket(p.m);
  if (is_fixed_) bucket = std::min(bucket, kMaxFixedBucket);
  return {p.n, p.k, bucket, p.dtype, p.y_dtype, AlignmentOfY(p)};
}

size_t GemmPlanKeyHash::operator()(const GemmPlanKey& key) const {
  uint64_t hash = static_cast<uint64_t>(key.dtype) * 16 + static_cast<uint64_t>(key.y_dtype);
  for (const int64_t value : {key.n, key.k, key.bucket, int64_t{key.alignment}})
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

std::string FormatGemmPlans(std::string_view tag, const GemmPlanMap& plans) {
  std::vector<std::string> lines;
  for (const auto& [key, plan] : plans)
    if (plan.is_tuned)
      lines.push_back(fmt::format("{} {} {} {} {} {} {}\n", DTypeName(key.dtype),
                                  DTypeName(key.y_dtype), key.n, key.k, key.bucket, key.alignment,
                                  HexOf(plan.algorithm)));
  std::ranges::sort(lines);
  std::string text = fmt::format("{}\n", tag);
  for (const std::string& line : lines) text += line;
  return text;
}

Result<GemmPlanMap> ParseGemmPlans(std::string_view text, std::string_view tag) {
  GemmPlanMap plans;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line_number == 1) {
      if (line != tag) return plans;
      continue;
    }
    GemmPlanKey key;
    GemmPlan plan;
    if (!ParseLine(line, key, plan))
      return InvalidArgument(fmt::format(
          "tuned products, line {}: got \"{}\", needed two dtypes, n, k, rows, alignment and an "
          "algorithm (delete the file; it is written anew)",
          line_number, line.substr(0, 80)));
    plans.insert_or_assign(key, plan);
  }
  return plans;
}

Result<std::unique_ptr<GemmPlans>> GemmPlans::Create(const Device& device, OpChoice choice) {
  std::unique_ptr<GemmPlans> plans(new GemmPlans(choice));
  RETURN_IF_ERROR(LtStatus(cublasLtCreate(&plans->handle_)));
  plans->tag_ = fmt::format("inflight gemm plans 1, {}, {} SMs, cublasLt {}", device.cuda().name,
                            device.cuda().num_sms, cublasLtGetVersion());
  return plans;
}

GemmPlans::~GemmPlans() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

Status GemmPlans::Run(const GemmParams& params, CudaStream& stream) {
  GemmProblem problem;
  RETURN_IF_ERROR(problem.Describe(params, fast_accumulation_));
  ASSIGN_OR_RETURN(const GemmPlan* plan, Find(params, stream));
  const cublasStatus_t status = Launch(problem, params, plan->algorithm, stream);
  const bool is_refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  if (!is_refused || is_fixed_) return LtStatus(status, "cublasLtMatmul, " + DescriptionOf(params));
  // What suits the bucket need not suit fewer rows: ask again, for these.
  const auto suggestions = Suggestions(params, 1);
  if (suggestions.empty()) return LtStatus(status, "cublasLtMatmul, " + DescriptionOf(params));
  return LtStatus(Launch(problem, params, suggestions[0], stream), "cublasLtMatmul");
}

Result<const GemmPlan*> GemmPlans::Find(const GemmParams& params, CudaStream& stream) {
  const GemmPlanKey key = KeyOf(params);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return &found->second;
  if (is_fixed_) {
    RETURN_IF_ERROR(Fix(params, stream));
    return &plans_.at(key);
  }
  GemmParams largest = params;
  largest.m = key.bucket;
  const auto suggestions = Suggestions(largest, 1);
  if (suggestions.empty())
    return Unimplemented(
        fmt::format("{}: cuBLASLt has no algorithm (FP8 needs out_features in multiples of 8)",
                    DescriptionOf(params)));
  return &plans_.emplace(key, GemmPlan{suggestions[0], false}).first->second;
}

std::vector<cublasLtMatmulAlgo_t> GemmPlans::Suggestions(const GemmParams& params,
                                                         int count) const {
  GemmProblem problem;
  if (!problem.Describe(params, fast_accumulation_).ok()) return {};
  cublasLtMatmulPreferenceOpaque_t preference;
  if (cublasLtMatmulPreferenceInit(&preference) != CUBLAS_STATUS_SUCCESS) return {};
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    // An attribute that the library does not know leaves its default.
    (void)cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value));
  };
  // Partial sums in float32 only: others are rounded to y's dtype on the way. Fixed products have
  // none, nor a place for them.
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{is_fixed_ ? 0 : kGemmWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(is_fixed_ ? CUBLASLT_REDUCTION_SCHEME_NONE
                                      : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{16});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{16});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(AlignmentOfY(params)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(AlignmentOfY(params)));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &problem.operation, &problem.w, &problem.x, &problem.y, &problem.y, &preference,
      count, results.data(), &num_found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < num_found; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

cublasStatus_t GemmPlans::Launch(GemmProblem& problem, const GemmParams& params,
                                 const cublasLtMatmulAlgo_t& algorithm, CudaStream& stream,
                                 const void* subtracted) {
  const float beta = subtracted == nullptr ? 0 : -1;
  const void* const c = subtracted == nullptr ? params.y : subtracted;
  // Some algorithms that ask for no workspace use one that is there.
  std::byte* const workspace = is_fixed_ ? nullptr : stream.workspace().gemm;
  const size_t workspace_bytes = is_fixed_ ? 0 : kGemmWorkspaceBytes;
  return cublasLtMatmul(handle_, &problem.operation, &params.scale, params.w, &problem.w, params.x,
                        &problem.x, &beta, c, &problem.y, params.y, &problem.y, &algorithm,
                        workspace, workspace_bytes, stream.handle());
}

Result<int> GemmPlans::Load(std::string_view text) {
  if (is_fixed_) return 0;
  ASSIGN_OR_RETURN(GemmPlanMap loaded, ParseGemmPlans(text, tag_));
  int num_taken = 0;
  for (const auto& [key, plan] : loaded) {
    const GemmParams params = {
        .dtype = key.dtype, .y_dtype = key.y_dtype, .m = key.bucket, .n = key.n, .k = key.k};
    if (!CanRun(params, plan.algorithm)) continue;
    plans_.insert_or_assign(key, plan);
    ++num_taken;
  }
  return num_taken;
}

Status GemmPlans::Tune(std::span<const LinearShape> shapes, CudaStream& stream,
                       int num_candidates) {
  // Weights are read in turn from more memory than the L2 cache holds, as in a step.
  constexpr int64_t kColdBytes = int64_t{256} << 20;
  for (const LinearShape& shape : shapes) {
    if (shape.dtype == DType::kF32) continue;  // none of cuBLASLt's (float32/kernels.h)
    GemmParams params = {.dtype = shape.dtype,
                         .y_dtype = shape.y_dtype,
                         .m = GemmBucket(std::max<int64_t>(shape.max_rows, 1)),
                         .n = shape.out_features,
                         .k = shape.in_features};
    const auto element = static_cast<int64_t>(SizeOf(params.dtype));
    const int64_t x_bytes = params.m * params.k * element;
    const int64_t y_bytes = params.m * params.n * static_cast<int64_t>(SizeOf(params.y_dtype));
    const int64_t weight_bytes = params.n * params.k * element;
    if (weight_bytes <= 0)
      return InvalidArgument(
          fmt::format("shapes: got [{}, {}], needed features of 1 or more", params.n, params.k));
    const int64_t num_weights = std::clamp<int64_t>(kColdBytes / weight_bytes, 1, 64);
    const auto inputs = static_cast<size_t>(num_weights * weight_bytes + x_bytes + 256);
    ASSIGN_OR_RETURN(Buffer input, Buffer::Allocate(stream.device(), "operands of tuning", inputs));
    ASSIGN_OR_RETURN(Buffer output, Buffer::Allocate(stream.device(), "results of tuning",
                                                     static_cast<size_t>(y_bytes)));
    // The default stream, which zeroed the memory, is not waited for by ours.
    RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize()));
    RETURN_IF_ERROR(FillRandomly(input.data(), input.size(), params.dtype, stream));
    params.x = input.data();
    params.w = input.data() + (x_bytes + 255) / 256 * 256;
    params.y = output.data();
    for (; params.m >= 1; params.m = BucketBefore(params.m))
      RETURN_IF_ERROR(TuneRows(params, num_weights, stream, num_candidates));
  }
  return Status::Ok();
}

Status GemmPlans::TuneRows(GemmParams params, int64_t num_weights, CudaStream& stream,
                           int num_candidates) {
  params.m = GemmBucket(params.m);
  ASSIGN_OR_RETURN(const GemmPlan* known, Find(params, stream));
  if (known->is_tuned) return Status::Ok();
  GemmPlan best = {.algorithm = known->algorithm, .is_tuned = true};
  float best_us = 0;
  // The later one must be worth it: equal ones change with the weather.
  constexpr float kWorthwhile = 0.98F;
  const auto try_all = [&](std::span<const cublasLtMatmulAlgo_t> algorithms) -> Status {
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      const bool is_first = best_us == 0;
      ASSIGN_OR_RETURN(const float us, TimeMicros(params, algorithm, num_weights,
                                                  is_first ? 1e9F : 1.3F * best_us, stream));
      if (us < 0 || (!is_first && us > kWorthwhile * best_us)) continue;
      best.algorithm = algorithm;
      best_us = us;
    }
    return Status::Ok();
  };
  RETURN_IF_ERROR(try_all(Suggestions(params, num_candidates)));
  if (IsTunedAmongVariants(params)) {
    ASSIGN_OR_RETURN(const auto variants,
                     FastVariants(params, best.algorithm, num_weights, stream));
    RETURN_IF_ERROR(try_all(variants));
    RETURN_IF_ERROR(try_all(WithOtherOptions(params, best.algorithm)));
  }
  plans_.insert_or_assign(KeyOf(params), best);
  return Status::Ok();
}

// Of a call alone, which comes with what a launch takes; negative where the algorithm cannot run.
Result<float> GemmPlans::TimeCallMicros(const GemmParams& params,
                                        const cublasLtMatmulAlgo_t& algorithm, int64_t num_weights,
                                        CudaStream& stream) {
  GemmProblem problem;
  RETURN_IF_ERROR(problem.Describe(params, fast_accumulation_));
  Events events;
  RETURN_IF_ERROR(events.Create());
  GemmParams last = params;
  last.w = static_cast<const std::byte*>(params.w) +
           static_cast<size_t>((num_weights - 1) * params.n * params.k) * SizeOf(params.dtype);
  // Loads the kernel.
  if (Launch(problem, last, algorithm, stream) != CUBLAS_STATUS_SUCCESS) return -1.0F;
  return Measure(events, stream, [&] {
    return LtStatus(Launch(problem, params, algorithm, stream), "cublasLtMatmul");
  });
}

// Of one product inside a graph of several; negative where the algorithm cannot run. Stops early
// once it has taken longer than `give_up_us`.
Result<float> GemmPlans::TimeMicros(const GemmParams& params, const cublasLtMatmulAlgo_t& algorithm,
                                    int64_t num_weights, float give_up_us, CudaStream& stream) {
  GemmProblem problem;
  RETURN_IF_ERROR(problem.Describe(params, fast_accumulation_));
  Events events;
  RETURN_IF_ERROR(events.Create());
  const auto weight_bytes = static_cast<size_t>(params.n * params.k) * SizeOf(params.dtype);
  int64_t turn = 0;
  const auto launch = [&] {
    GemmParams turned = params;
    turned.w = static_cast<const std::byte*>(params.w) +
               static_cast<size_t>(turn++ % num_weights) * weight_bytes;
    return Launch(problem, turned, algorithm, stream);
  };

  ASSIGN_OR_RETURN(const float alone_us, TimeCallMicros(params, algorithm, num_weights, stream));
  if (alone_us < 0 || alone_us > 2 * give_up_us + 10) return alone_us;
  const auto num_calls = static_cast<int>(std::clamp(1000.0F / alone_us, 2.0F, 16.0F));
  Graph graph;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal)));
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (int i = 0; i < num_calls && status == CUBLAS_STATUS_SUCCESS; ++i) status = launch();
  RETURN_IF_ERROR(CudaStatus(cudaStreamEndCapture(stream.handle(), &graph.graph)));
  if (status != CUBLAS_STATUS_SUCCESS) return -1.0F;
  RETURN_IF_ERROR(CudaStatus(cudaGraphInstantiate(&graph.exec, graph.graph, 0)));

  float best_us = 1e9F;
  for (int repetition = 0; repetition < 4; ++repetition) {
    ASSIGN_OR_RETURN(const float us, Measure(events, stream, [&] {
                       return ToStatus(cudaGraphLaunch(graph.exec, stream.handle()),
                                       "cudaGraphLaunch");
                     }));
    best_us = std::min(best_us, us / static_cast<float>(num_calls));
    if (best_us > give_up_us) break;
  }
  return best_us;
}

Status GemmCublasLt(const GemmParams& params, CudaStream& stream) {
  RETURN_IF_ERROR(stream.gemm_plans().Run(params, stream));
  if (params.bias == nullptr && params.activation == ActivationKind::kNone) return Status::Ok();
  // The library adds biases of y's dtype only, ours are float32.
  if (StrideOf(params) != params.n)
    return Unimplemented("y_stride: cuBLASLt's products with a bias or activation have dense rows");
  return Epilogue({.y = params.y,
                   .dtype = params.y_dtype,
                   .m = params.m,
                   .n = params.n,
                   .bias = params.bias,
                   .activation = params.activation},
                  stream);
}

Status TuneLinears(std::span<const LinearShape> shapes, Stream& stream) {
  CudaStream& cuda_stream = AsCuda(stream);
  return cuda_stream.gemm_plans().Tune(shapes, cuda_stream);
}

std::string SaveTuning(Stream& stream) { return AsCuda(stream).gemm_plans().Save(); }

Status LoadTuning(std::string_view text, Stream& stream) {
  return AsCuda(stream).gemm_plans().Load(text).status();
}

}  // namespace inflight::ops::cuda
