// SPDX-License-Identifier: Apache-2.0
// Chains of multiply-adds in registers, as many as hide their latency, and sequential reads; one
// per instruction set. Compiled with the flags of every instruction set: plain declarations only.
#pragma once

#include <cstdint>

namespace inflight::bench {

// Each runs `rounds` rounds and returns the floating-point operations done (a multiply-add is two).
// `sink` gets a number that depends on all of them.
double PeakFmaBaseline(int64_t rounds, float* sink);
double PeakFmaAvx2(int64_t rounds, float* sink);
double PeakFmaAvx512(int64_t rounds, float* sink);
double PeakBf16Avx512(int64_t rounds, float* sink);
double PeakInt8Avx512(int64_t rounds, float* sink);
double PeakBf16Amx(int64_t rounds, float* sink);
double PeakInt8Amx(int64_t rounds, float* sink);

// Reads `bytes` (a multiple of 512) in order with the widest loads, and asks for lines 4 KiB ahead:
// without it one thread gets 5 to 10 % less. Returns something that depends on all of them.
float ReadBaseline(const char* data, int64_t bytes);
float ReadAvx2(const char* data, int64_t bytes);
float ReadAvx512(const char* data, int64_t bytes);

}  // namespace inflight::bench
