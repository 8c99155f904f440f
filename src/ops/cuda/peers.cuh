// SPDX-License-Identifier: Apache-2.0
// How kernels of ranks hand each other values: letters, each of whose words stands beside a number
// that says of which call it is. Whoever waits for a letter polls it in its own memory: one trip
// over the link and no fence.
#pragma once

#include "ops/cuda/peers.h"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {

constexpr int kMaxPeerCtas = 128;  // no more than any GPU runs at once, of up to 1024 threads
constexpr int kLettersPerCta = 1024;

// A vector of values in two halves that arrive each as a whole: two words, each behind the epoch.
struct alignas(32) Letter {
  uint4 halves[2];
};

// In the memory of each rank. Its letters follow.
struct alignas(32) Mailbox {
  uint32_t arrived[kMaxPeerCtas][kMaxPeers];  // how far each rank's CTA is; written by that rank
  uint32_t epoch[kMaxPeerCtas];               // how often this rank's CTA has met the others
};

__device__ inline Mailbox& MailboxOf(const Peers& peers, int rank) {
  return *reinterpret_cast<Mailbox*>(peers.mailbox[rank]);
}

// Where rank `from` puts what CTA `cta` of rank `to` takes. Two places in turn: who writes one
// again has had something of the call between, which the other made after it had read this.
__device__ inline Letter* LettersOf(const Peers& peers, int from, int to, uint32_t cta,
                                    uint32_t epoch) {
  auto* const letters = reinterpret_cast<Letter*>(peers.mailbox[to] + sizeof(Mailbox));
  const int64_t place = (int64_t{epoch % 2} * peers.size + from) * kMaxPeerCtas + cta;
  return letters + place * kLettersPerCta;
}

__device__ inline bool IsAborted(const uint32_t* abort) {
  return *static_cast<const volatile uint32_t*>(abort) != 0;
}
__device__ inline bool IsAborted(const Peers& peers) { return IsAborted(peers.abort); }
constexpr int kPollsPerLook = 1 << 12;  // at the host's word

__device__ inline void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline void Send(const uint4& value, uint32_t epoch, Letter* to) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(&to->halves[0]),
               "r"(epoch), "r"(value.x), "r"(epoch), "r"(value.y)
               : "memory");
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(&to->halves[1]),
               "r"(epoch), "r"(value.z), "r"(epoch), "r"(value.w)
               : "memory");
}

__device__ inline uint4 LoadHalf(const uint4* from) {
  uint4 half;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(half.x), "=r"(half.y), "=r"(half.z), "=r"(half.w)
               : "l"(from)
               : "memory");
  return half;
}

__device__ inline uint4 Await(const Peers& peers, uint32_t epoch, const Letter* from) {
  for (int polls = 1;; ++polls) {
    const uint4 low = LoadHalf(&from->halves[0]);
    const uint4 high = LoadHalf(&from->halves[1]);
    const bool is_there = low.x == epoch && low.z == epoch && high.x == epoch && high.z == epoch;
    if (is_there || (polls % kPollsPerLook == 0 && IsAborted(peers)))
      return {low.y, low.w, high.y, high.w};
  }
}

// To all others, as letter `place` of CTA `cta`.
__device__ inline void SendToAll(const Peers& peers, const uint4& value, uint32_t epoch,
                                 uint32_t cta, int place) {
  for (int step = 1; step < peers.size; ++step) {
    const int peer = (peers.rank + step) % peers.size;
    Send(value, epoch, LettersOf(peers, peers.rank, peer, cta, epoch) + place);
  }
}

template <typename T>
__device__ void Add(const uint4& words, float (&sum)[kVector]) {
  float values[kVector];
  Unpack<T>(words, values);
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] += values[i];
}

// `mine` and what the others sent, in the order of ranks, not rounded yet.
template <typename T>
__device__ void SumOfAll(const Peers& peers, const uint4& mine, uint32_t epoch, uint32_t cta,
                         int place, float (&sum)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] = 0;
  for (int rank = 0; rank < peers.size; ++rank)
    Add<T>(rank == peers.rank
               ? mine
               : Await(peers, epoch, LettersOf(peers, rank, peers.rank, cta, epoch) + place),
           sum);
}

}  // namespace inflight::ops::cuda
