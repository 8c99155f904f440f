// SPDX-License-Identifier: Apache-2.0
// Products of the linears of Llama-3-8B (llama_3_8b.h) on a GPU: cuBLASLt's first
// suggestion, its fastest after tuning, and what ops/cuda chooses. Calls are captured into graphs
// of 20, weights rotate over more memory than the L2 cache holds, variants take turns; medians.
//
//   gemm_bench [--dtypes bfloat16,float8_e4m3fn] [--rows 1,8,...] [--candidates 16]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "llama_3_8b.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/gemm_problem.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kCalls = 20;
constexpr int kRepetitions = 7;
constexpr int64_t kWeightBytes = int64_t{2200} << 20;

using bench::kLinearLayers;
using bench::LinearLayer;

void Check(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "gemm_bench: {}\n", status.ToString());
  std::exit(1);
}

void CheckCuda(cudaError_t error) { Check(inflight::cuda::ToStatus(error, "gemm_bench")); }

using Product = std::function<Status(const GemmParams&)>;

class Variant {
 public:
  // Captures kCalls products that take the weights in turn.
  Variant(const Product& product, GemmParams params, int64_t num_weights, CudaStream& stream)
      : stream_(stream) {
    const auto bytes = static_cast<size_t>(params.n * params.k) * SizeOf(params.dtype);
    const auto* base = static_cast<const std::byte*>(params.w);
    Check(product(params));  // loads the kernels
    CheckCuda(cudaStreamSynchronize(stream.handle()));
    CheckCuda(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kCalls; ++i) {
      params.w = base + static_cast<size_t>(i % num_weights) * bytes;
      Check(product(params));
    }
    cudaGraph_t graph = nullptr;
    CheckCuda(cudaStreamEndCapture(stream.handle(), &graph));
    CheckCuda(cudaGraphInstantiate(&exec_, graph, 0));
    CheckCuda(cudaGraphDestroy(graph));
    CheckCuda(cudaEventCreate(&begin_));
    CheckCuda(cudaEventCreate(&end_));
    Launch();
  }
  ~Variant() {
    cudaGraphExecDestroy(exec_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Variant(const Variant&) = delete;
  Variant& operator=(const Variant&) = delete;

  void Run() {
    CheckCuda(cudaEventRecord(begin_, stream_.handle()));
    Launch();
    CheckCuda(cudaEventRecord(end_, stream_.handle()));
    CheckCuda(cudaEventSynchronize(end_));
    float ms = 0;
    CheckCuda(cudaEventElapsedTime(&ms, begin_, end_));
    micros_.push_back(ms * 1000 / kCalls);
  }
  float MedianMicros() {
    std::ranges::sort(micros_);
    return micros_[micros_.size() / 2];
  }

 private:
  void Launch() { CheckCuda(cudaGraphLaunch(exec_, stream_.handle())); }

  CudaStream& stream_;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<float> micros_;
};

struct Options {
  std::vector<std::string> dtypes = {"bfloat16", "float8_e4m3fn"};
  std::vector<int64_t> rows = {1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 8192};
  std::vector<std::string> variants = {"first", "tuned", "gemm"};
  int num_candidates = 16;
};

void Run(const Options& options) {
  auto device = Device::Cuda(0);
  Check(device.status());
  auto made = CudaStream::Create(**device, bench::kShape, 8192, 512);
  Check(made.status());
  CudaStream& stream = **made;
  auto weights = Buffer::Allocate(**device, "weights", kWeightBytes);
  auto x = Buffer::Allocate(**device, "x", size_t{8192} * 14336 * 2);
  auto y = Buffer::Allocate(**device, "y", size_t{8192} * 28672 * 2);
  for (const auto* buffer : {&weights, &x, &y}) Check(buffer->status());

  fmt::print("# {}\n{:9} {:8} {:>5}", (*device)->cuda().name, "dtype", "layer", "rows");
  for (const std::string& variant : options.variants)
    fmt::print(" | {:>8} {:>6} {:>6}", variant + "_us", "TB/s", "TFLOPs");
  fmt::print("\n");
  for (const std::string& dtype_name : options.dtypes) {
    const auto dtype = DTypeFromName(dtype_name);
    CHECK(dtype.has_value());
    for (Buffer* buffer : {&*weights, &*x})
      Check(FillRandomly(buffer->data(), buffer->size(), *dtype, stream));
    auto first = GemmPlans::Create(**device);
    Check(first.status());
    GemmPlans& tuned = stream.gemm_plans();
    for (const int64_t m : options.rows) {
      std::vector<double> totals(options.variants.size());
      bool has_head = false;
      for (const LinearLayer& layer : kLinearLayers) {
        if (layer.is_head && m > 512) continue;
        has_head = has_head || layer.is_head;
        const DType y_dtype = layer.is_head ? DType::kF32 : DType::kBF16;
        const GemmParams params = {.x = x->data(),
                                   .w = weights->data(),
                                   .y = y->data(),
                                   .dtype = *dtype,
                                   .y_dtype = y_dtype,
                                   .m = m,
                                   .n = layer.n,
                                   .k = layer.k};
        const int64_t bytes = layer.n * layer.k * static_cast<int64_t>(SizeOf(*dtype));
        const int64_t num_weights = std::clamp<int64_t>(kWeightBytes / bytes, 1, kCalls);
        Check(tuned.TuneRows(params, std::min<int64_t>(num_weights, 16), stream,
                             options.num_candidates));
        std::vector<std::unique_ptr<Variant>> variants;
        for (const std::string& name : options.variants) {
          Product product = [&](const GemmParams& p) { return tuned.Run(p, stream); };
          if (name == "first")
            product = [&](const GemmParams& p) { return (*first)->Run(p, stream); };
          if (name == "gemm") product = [&](const GemmParams& p) { return Gemm(p, stream); };
          variants.push_back(std::make_unique<Variant>(product, params, num_weights, stream));
        }
        for (int i = 0; i < kRepetitions; ++i)
          for (const auto& variant : variants) variant->Run();
        fmt::print("{:9} {:8} {:5}", dtype_name.substr(0, 9), layer.name, m);
        for (size_t i = 0; i < variants.size(); ++i) {
          const double us = variants[i]->MedianMicros();
          totals[i] += us * (layer.is_head ? 1 : bench::kNumLayers) / 1000;
          fmt::print(
              " | {:8.2f} {:6.2f} {:6.0f}", us, static_cast<double>(bytes) / us * 1e-6,
              2.0 * static_cast<double>(m * layer.n) * static_cast<double>(layer.k) / us * 1e-6);
        }
        fmt::print("\n");
      }
      fmt::print("{:9} {:8} {:5}", dtype_name.substr(0, 9), has_head ? "step,ms" : "32L,ms", m);
      for (const double total : totals) fmt::print(" | {:8.3f} {:6} {:6}", total, "", "");
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace inflight::ops::cuda

int main(int argc, char** argv) {
  CLI::App app("cuBLASLt and our own products on one GPU");
  inflight::ops::cuda::Options options;
  app.add_option("--dtypes", options.dtypes, "of the operands")->delimiter(',');
  app.add_option("--rows", options.rows, "of activations")->delimiter(',');
  app.add_option("--variants", options.variants, "first, tuned, gemm")->delimiter(',');
  app.add_option("--candidates", options.num_candidates, "suggestions that tuning tries");
  CLI11_PARSE(app, argc, argv);
  inflight::ops::cuda::Run(options);
}
