// SPDX-License-Identifier: Apache-2.0
// Stands before each fuzz target and looks at what an input cost: memory that was live at once and
// processor time, each at most a constant and a multiple of the input's size. A few bytes that make
// the process work for seconds or hold gigabytes are a crash here.
//
// The linker puts it there (--wrap). The first inputs are free: they fill what is made once.
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kFree = 10;  // inputs
constexpr size_t kBaseBytes = size_t{16} << 20;
constexpr size_t kBytesPerByte = 512;
constexpr double kBaseSeconds = 2;  // of code with sanitizers
constexpr double kSecondsPerByte = 50e-6;

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

// Of AddressSanitizer, whose build the fuzzers have.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* address);

// Of a target whose library sets more aside than kBaseBytes, however small the input is.
size_t InflightFuzzBaseBytes() __attribute__((weak));

int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
}

namespace {

void OnMalloc(const volatile void*, size_t size) {
  const int64_t live =
      live_bytes.fetch_add(static_cast<int64_t>(size)) + static_cast<int64_t>(size);
  int64_t peak = peak_bytes.load();
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
}

void OnFree(const volatile void* address) {
  if (address == nullptr) return;
  live_bytes.fetch_sub(static_cast<int64_t>(__sanitizer_get_allocated_size(address)));
}

void Require(bool is_cheap, const char* what, double cost, double limit, size_t size) {
  if (is_cheap) return;
  std::fprintf(stderr, "cost oracle: %s %.0f for an input of %zu bytes, allowed %.0f\n", what, cost,
               size, limit);
  abort();
}

}  // namespace

int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
  static int num_inputs = 0;
  if (installed == 0) abort();
  const int64_t before = live_bytes;
  peak_bytes = before;
  const double start = CpuSeconds();
  const int result = __real_LLVMFuzzerTestOneInput(data, size);
  const double seconds = CpuSeconds() - start;
  const auto bytes = static_cast<double>(peak_bytes - before);
  if (num_inputs++ < kFree) return result;
  const size_t base = InflightFuzzBaseBytes == nullptr ? kBaseBytes : InflightFuzzBaseBytes();
  const auto byte_limit = static_cast<double>(base + kBytesPerByte * size);
  Require(bytes <= byte_limit, "bytes", bytes, byte_limit, size);
  const double ms_limit = 1000 * (kBaseSeconds + kSecondsPerByte * static_cast<double>(size));
  Require(1000 * seconds <= ms_limit, "milliseconds", 1000 * seconds, ms_limit, size);
  return result;
}
