// SPDX-License-Identifier: Apache-2.0
// CUDA operators in the shapes of Llama-3-8B, against what a copy reaches in the same run. CSV on
// standard output.
//
//   cuda_ops_bench [FILTER]      only cases whose "kernel shape dtype" contains FILTER
#include <fmt/format.h>

#include <cstdio>

#include "base/status_macros.h"
#include "cases.h"
#include "llama_3_8b.h"

namespace inflight::bench {
namespace {

constexpr int kMaxTokens = 8192;
constexpr int kMaxRows = 1024;
Status Run(std::string filter) {
  ASSIGN_OR_RETURN(auto device, Device::Cuda(0));
  ASSIGN_OR_RETURN(auto stream,
                   ops::cuda::CudaStream::Create(*device, kShape, kMaxTokens, kMaxRows));
  CudaBench bench(*device, std::move(stream), std::move(filter));
  AttentionCases(bench);
  DecodeLayersCases(bench);
  ElementwiseCases(bench);
  LinearCases(bench);
  LoraCases(bench);
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
