// SPDX-License-Identifier: Apache-2.0
// CUDA operators in the shapes of Llama-3-8B, against what a copy reaches in the same run. CSV on
// standard output.
//
//   cuda_ops_bench [FILTER]      only cases whose "kernel shape dtype" contains FILTER
#include <fmt/format.h>

#include <cstdio>

#include "cases.h"

namespace inflight::bench {
namespace {

constexpr int kMaxTokens = 8192;
constexpr int kMaxRows = 1024;
constexpr ops::ShapeClass kShape = {.weight_dtype = DType::kBF16,
                                    .dtype = DType::kBF16,
                                    .kv_dtype = DType::kBF16,
                                    .head_dim = 128,
                                    .num_heads = 32,
                                    .num_kv_heads = 8,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336};

Status Run(std::string filter) {
  ASSIGN_OR_RETURN(auto device, Device::Cuda(0));
  ASSIGN_OR_RETURN(auto stream,
                   ops::cuda::CudaStream::Create(*device, kShape, kMaxTokens, kMaxRows));
  CudaBench bench(*device, std::move(stream), std::move(filter));
  AttentionCases(bench);
  ElementwiseCases(bench);
  LinearCases(bench);
  SamplerCases(bench);
  return Status::Ok();
}

}  // namespace
}  // namespace inflight::bench

int main(int argc, char** argv) {
  const inflight::Status status = inflight::bench::Run(argc > 1 ? argv[1] : "");
  if (status.ok()) return 0;
  fmt::print(stderr, "cuda_ops_bench: {}\n", status.ToString());
  return 1;
}
