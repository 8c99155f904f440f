// SPDX-License-Identifier: Apache-2.0
#include "timing.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tensor/cuda_status.h"
#include "tensor/element.h"

namespace inflight::bench {
namespace {

using ops::Must;

constexpr int64_t kRotationBytes = int64_t{192} << 20;
constexpr int kMinCalls = 24;
constexpr int kMaxCalls = 240;
// Rates of large matrix products on an H200 (docs/reference/kernels.md, "Limits of the hardware").
constexpr double kPeakFlopPerUs = 790e6;
constexpr double kPeakFp8FlopPerUs = 1450e6;

void MustCuda(cudaError_t error, std::string_view what) {
  Must(inflight::cuda::ToStatus(error, what));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Times of `repetitions` runs of `enqueue` on `stream`, each between two events.
template <typename Enqueue>
std::vector<double> EventUs(cudaStream_t stream, int repetitions, const Enqueue& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  MustCuda(cudaEventCreate(&begin), "event");
  MustCuda(cudaEventCreate(&end), "event");
  std::vector<double> us;
  for (int i = 0; i < repetitions; ++i) {
    MustCuda(cudaEventRecord(begin, stream), "event");
    enqueue();
    MustCuda(cudaEventRecord(end, stream), "event");
    MustCuda(cudaEventSynchronize(end), "the timed work");
    float ms = 0;
    MustCuda(cudaEventElapsedTime(&ms, begin, end), "event");
    us.push_back(1e3 * double{ms});
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return us;
}

// Bytes read and written per microsecond by a copy of 1 GiB; the clocks rise meanwhile.
double CopyBytesPerUs(Device& device, cudaStream_t stream) {
  constexpr size_t kBytes = size_t{1} << 30;
  Result<Buffer> memory = Buffer::Allocate(device, "copy", 2 * kBytes);
  Must(memory.status());
  ops::Synchronize();
  std::byte* data = memory->data();
  const std::vector<double> us = EventUs(stream, 60, [&] {
    MustCuda(cudaMemcpyAsync(data, data + kBytes, kBytes, cudaMemcpyDeviceToDevice, stream),
             "copy");
  });
  return 2.0 * kBytes / Median({us.end() - 30, us.end()});
}

}  // namespace

Rotation::Rotation(Device& device, DType dtype, Shape shape) {
  view_ = {.dtype = dtype, .shape = shape};
  stride_ = (static_cast<int64_t>(view_.num_bytes()) + 255) / 256 * 256;
  num_copies_ = static_cast<int>(std::clamp(kRotationBytes / std::max<int64_t>(stride_, 1) + 1,
                                            int64_t{1}, int64_t{kMaxCalls}));
  const auto total = static_cast<size_t>(stride_ * num_copies_);
  Result<Buffer> memory = Buffer::Allocate(device, "rotation", total);
  Must(memory.status());
  memory_ = std::move(*memory);
  view_.data = memory_.data();

  // One period of random numbers, then copies of it. A period of an odd number of KiB keeps equal
  // numbers from meeting in equal places of rows.
  const size_t period = std::min(total, size_t{4099} << 10);
  std::vector<std::byte> some(period);
  ops::Random random(1);
  if (ops::IsInteger(dtype)) {
    for (std::byte& byte : some) byte = static_cast<std::byte>(random.Next());
  } else {
    const auto num_elements = static_cast<int64_t>(period / SizeOf(dtype));
    for (int64_t i = 0; i < num_elements; ++i) StoreFloat(some.data(), dtype, i, random.Uniform());
  }
  Must(device.Copy(memory_.data(), some.data(), period));
  for (size_t at = period; at < total; at += period)
    MustCuda(cudaMemcpy(memory_.data() + at, memory_.data(), std::min(period, total - at),
                        cudaMemcpyDeviceToDevice),
             "filling");
  ops::Synchronize();
}

TensorView Rotation::At(int call) const {
  TensorView view = view_;
  view.data = memory_.data() + static_cast<int64_t>(call % num_copies_) * stride_;
  return view;
}

CudaBench::CudaBench(Device& device, std::unique_ptr<ops::cuda::CudaStream> stream,
                     std::string filter)
    : device_(device), stream_(std::move(stream)), filter_(std::move(filter)) {
  copy_bytes_per_us_ = CopyBytesPerUs(device_, stream_->handle());
  fmt::print(stderr, "{}: copies move {:.0f} GB/s, read and written\n", device.cuda().name,
             copy_bytes_per_us_ / 1e3);
  fmt::print("kernel,shape,dtype,us,GB/s,TFLOP/s,% of limit\n");
}

bool CudaBench::Wants(std::string_view kernel) const {
  return filter_.empty() || filter_.starts_with(kernel) ||
         kernel.find(filter_.substr(0, filter_.find(' '))) != std::string_view::npos;
}

double CudaBench::GraphUs(const TimedCase& timed, int num_calls, int repetitions) {
  const cudaStream_t stream = stream_->handle();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  MustCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int call = 0; call < num_calls; ++call) Must(timed.launch(call));
  MustCuda(cudaStreamEndCapture(stream, &graph), "capture");
  MustCuda(cudaGraphInstantiate(&exec, graph, 0), "graph");
  const auto launch = [&] { MustCuda(cudaGraphLaunch(exec, stream), "graph"); };
  launch();
  const double us = Median(EventUs(stream, repetitions, launch)) / num_calls;
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return us;
}

void CudaBench::Time(const TimedCase& timed) {
  const std::string dtype(DTypeName(timed.dtype));
  const std::string name = fmt::format("{} {} {}", timed.kernel, timed.shape, dtype);
  if (name.find(filter_) == std::string::npos) return;
  // Outside a graph at first: what loads lazily is loaded, errors show.
  if (const Status status = timed.launch(0); !status.ok()) {
    fmt::print(stderr, "{}: {}\n", name, status.ToString());
    return;
  }
  ops::Synchronize();
  const double first = GraphUs(timed, kMinCalls, 3);
  const int num_calls = std::clamp(static_cast<int>(2000 / first), kMinCalls, kMaxCalls);
  const int repetitions = std::clamp(static_cast<int>(60e3 / (first * num_calls)), 9, 30);
  const double us = GraphUs(timed, num_calls, repetitions);
  const double peak = timed.dtype == DType::kF8E4M3 ? kPeakFp8FlopPerUs : kPeakFlopPerUs;
  const double limit_us = std::max(timed.bytes / copy_bytes_per_us_, timed.flop / peak);
  fmt::print("{},{},{},{:.2f},{:.0f},{:.1f},{:.1f}\n", timed.kernel, timed.shape, dtype, us,
             timed.bytes / us / 1e3, timed.flop / us / 1e6, 100 * limit_us / us);
  std::fflush(stdout);
}

}  // namespace inflight::bench
