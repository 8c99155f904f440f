// SPDX-License-Identifier: Apache-2.0
#include "bench/limits/limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>

#include "bench/limits/peak.h"
#include "ops/cpu/cpu_features.h"

namespace inflight::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Peak = double (*)(int64_t rounds, float* sink);
using Read = float (*)(const char* data, int64_t bytes);

constexpr size_t kWorkingSetBytes = size_t{1} << 30;
constexpr int kReadRounds = 10;
constexpr int kPeakRounds = 5;
constexpr size_t kReadItemBytes = size_t{1} << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Anonymous memory with 2 MiB pages where the system has them, every page written.
class WorkingSet {
 public:
  explicit WorkingSet(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      bytes_ = 0;
      return;
    }
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~WorkingSet() {
    if (bytes_ > 0) munmap(data_, bytes_);
  }
  WorkingSet(const WorkingSet&) = delete;
  WorkingSet& operator=(const WorkingSet&) = delete;
  const char* data() const { return static_cast<const char*>(data_); }
  size_t size() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

Read WidestRead() {
#if defined(__x86_64__)
  const ops::cpu::CpuFeatures& features = ops::cpu::GetCpuFeatures();
  return features.avx512 ? ReadAvx512 : features.avx2 ? ReadAvx2 : ReadBaseline;
#else
  return ReadBaseline;
#endif
}

// As the kernels read weights: items of a panel's size, each one stream, claimed by the threads.
double ReadBytesPerS(CpuPool& pool, const WorkingSet& set, int num_threads) {
  const auto items = static_cast<int64_t>(set.size() / kReadItemBytes);
  if (items == 0) return 0;
  const Read read = WidestRead();
  std::atomic<float> sink{0};
  double best = 0;
  for (int round = 0; round < kReadRounds; ++round) {
    const auto start = Clock::now();
    pool.ParallelFor(
        items,
        [&](int64_t i) {
          sink += read(set.data() + static_cast<size_t>(i) * kReadItemBytes, kReadItemBytes);
        },
        num_threads);
    const double bytes = static_cast<double>(items) * kReadItemBytes;
    best = std::max(best, bytes / SecondsSince(start));
  }
  return best;
}

double PeakFlops(CpuPool& pool, Peak peak, int num_threads) {
  constexpr int kParts = 8;  // per thread, so that a thread that lost its core gives parts away
  constexpr int64_t kRounds = 400'000;
  double best = 0;
  for (int round = 0; round < kPeakRounds; ++round) {
    std::atomic<double> flop{0};
    std::atomic<float> sink{0};
    const auto start = Clock::now();
    pool.ParallelFor(
        int64_t{kParts} * num_threads,
        [&](int64_t) {
          float part = 0;
          flop += peak(kRounds, &part);
          sink += part;
        },
        num_threads);
    best = std::max(best, flop / SecondsSince(start));
  }
  return best;
}

ThreadLimits Measure(CpuPool& pool, const WorkingSet& set, int num_threads) {
  ThreadLimits limits = {.num_threads = num_threads,
                         .read_bytes_per_s = ReadBytesPerS(pool, set, num_threads)};
#if defined(__x86_64__)
  const ops::cpu::CpuFeatures& features = ops::cpu::GetCpuFeatures();
  const Peak fma = features.avx512 ? PeakFmaAvx512 : features.avx2 ? PeakFmaAvx2 : PeakFmaBaseline;
  const Peak int8 = features.amx ? PeakInt8Amx : PeakInt8Avx512;
  const Peak bf16 = features.amx ? PeakBf16Amx : PeakBf16Avx512;
  if (features.avx512_vnni) limits.int8_ops = PeakFlops(pool, int8, num_threads);
  if (features.avx512_bf16) limits.bf16_flops = PeakFlops(pool, bf16, num_threads);
#else
  const Peak fma = PeakFmaBaseline;
#endif
  limits.fp32_flops = PeakFlops(pool, fma, num_threads);
  return limits;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t value = line.find(": ");
      if (value != std::string::npos) return line.substr(value + 2);
    }
  return "unknown processor";
}

}  // namespace

double MeasureReadBytesPerS(CpuPool& pool) {
  const WorkingSet set(kWorkingSetBytes);
  return ReadBytesPerS(pool, set, pool.num_threads());
}

MachineLimits MeasureLimits(CpuPool& pool) {
  const WorkingSet set(kWorkingSetBytes);
  MachineLimits limits = {.cpu_name = CpuName(), .num_threads = pool.num_threads()};
  for (int threads = 1; threads < pool.num_threads(); threads *= 2)
    limits.by_threads.push_back(Measure(pool, set, threads));
  limits.by_threads.push_back(Measure(pool, set, pool.num_threads()));
  for (const ThreadLimits& l : limits.by_threads)
    limits.read_bytes_per_s = std::max(limits.read_bytes_per_s, l.read_bytes_per_s);
  limits.fp32_flops = limits.by_threads.back().fp32_flops;
  limits.bf16_flops = limits.by_threads.back().bf16_flops;
  limits.int8_ops = limits.by_threads.back().int8_ops;
  return limits;
}

}  // namespace inflight::bench
