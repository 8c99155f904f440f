// SPDX-License-Identifier: Apache-2.0
// Two ways to add up. Few bytes: each rank sends its values to the others (peers.cuh) and sums what
// it gets. Many: each rank sums its share of the elements, read from all ranks, and
// writes the sums to all; every byte crosses the link once each way.
#include <algorithm>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "ops/cuda/arguments.h"
#include "ops/cuda/overlap.cuh"
#include "ops/cuda/peers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/vector.cuh"

namespace inflight::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMaxCtas = 64;  // that stream
constexpr int kVectorBytes = 16;
static_assert(kMaxCtas <= kMaxPeerCtas);

// What this CTA has written anywhere is visible to the same CTA of every rank behind this.
__device__ void Meet(const Peers& peers, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x < static_cast<unsigned>(peers.size)) {
    const auto peer = static_cast<int>(threadIdx.x);
    __threadfence_system();
    StoreRelease(&MailboxOf(peers, peer).arrived[blockIdx.x][peers.rank], epoch);
    const uint32_t* const arrived = &MailboxOf(peers, peers.rank).arrived[blockIdx.x][peer];
    for (int polls = 1; static_cast<int32_t>(LoadAcquire(arrived) - epoch) < 0; ++polls)
      if (polls % kPollsPerLook == 0 && IsAborted(peers)) break;
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ReduceFew(const Peers peers, size_t offset, int num_vectors, int vectors_per_cta) {
  BeginOverlapped();
  Mailbox& own = MailboxOf(peers, peers.rank);
  const uint32_t epoch = own.epoch[blockIdx.x] + 1;
  const int begin = static_cast<int>(blockIdx.x) * vectors_per_cta;
  const int count = min(vectors_per_cta, num_vectors - begin);
  auto* const values = reinterpret_cast<uint4*>(peers.shared[peers.rank] + offset) + begin;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
    SendToAll(peers, values[i], epoch, blockIdx.x, i);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    float sum[kVector];
    SumOfAll<T>(peers, values[i], epoch, blockIdx.x, i, sum);
    Store(reinterpret_cast<T*>(values + i), sum);
  }
  __syncthreads();  // all have read the epoch
  if (threadIdx.x == 0) own.epoch[blockIdx.x] = epoch;
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    ReduceMany(const Peers peers, size_t offset, int64_t num_vectors) {
  BeginOverlapped();
  uint32_t& epoch = MailboxOf(peers, peers.rank).epoch[blockIdx.x];
  const uint32_t begun = epoch + 1;
  Meet(peers, begun);
  const int64_t share = (num_vectors + kSize - 1) / kSize;
  const int64_t end = min(num_vectors, (peers.rank + 1) * share);
  for (int64_t i = peers.rank * share + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < end;
       i += int64_t{gridDim.x} * kThreads) {
    uint4 of_ranks[kSize];
#pragma unroll
    for (int rank = 0; rank < kSize; ++rank)
      of_ranks[rank] = reinterpret_cast<const uint4*>(peers.shared[rank] + offset)[i];
    float sum[kVector] = {};
#pragma unroll
    for (int rank = 0; rank < kSize; ++rank) Add<T>(of_ranks[rank], sum);
#pragma unroll
    for (int rank = 0; rank < kSize; ++rank)
      Store(reinterpret_cast<T*>(peers.shared[rank] + offset) + i * kVector, sum);
  }
  Meet(peers, begun + 1);
  if (threadIdx.x == 0) epoch = begun + 1;
}

// By vectors of kWidth floats.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    GatherColumns(const Peers peers, const PeerColumns columns) {
  using Vector = std::conditional_t<kWidth == 4, float4, float>;
  BeginOverlapped();
  uint32_t& epoch = MailboxOf(peers, peers.rank).epoch[blockIdx.x];
  const uint32_t begun = epoch + 1;
  Meet(peers, begun);
  const int64_t first = peers.rank * columns.width;
  const int64_t num_columns = min(columns.width, columns.row_width - first);
  const int64_t per_row = num_columns > 0 ? num_columns / kWidth : 0;
  for (int64_t row = 0; row < columns.num_rows; ++row) {
    const auto* const from = reinterpret_cast<const Vector*>(
        reinterpret_cast<const float*>(peers.shared[peers.rank] + columns.from) +
        row * columns.width);
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < per_row;
         i += int64_t{gridDim.x} * kThreads) {
      const Vector value = from[i];
      for (int step = 0; step < peers.size; ++step) {
        const int peer = (peers.rank + step) % peers.size;
        reinterpret_cast<Vector*>(reinterpret_cast<float*>(peers.shared[peer] + columns.to) +
                                  row * columns.row_width + first)[i] = value;
      }
    }
  }
  Meet(peers, begun + 1);
  if (threadIdx.x == 0) epoch = begun + 1;
}

int MaxCtas(const Peers& peers) { return kMaxCtas / peers.ranks_per_gpu; }

// What the ranks write into each other's mailboxes is twice the values for each, what they read and
// write otherwise twice the values in all, with two meetings.
size_t MostOfFew(const Peers& peers) {
  const size_t most = static_cast<size_t>(MaxCtas(peers)) * kLettersPerCta * kVectorBytes;
  return peers.size == 2 ? most : most / static_cast<size_t>(peers.size);
}

template <typename T>
void LaunchMany(const Peers& peers, size_t offset, int64_t num_vectors, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    const int64_t ctas = (num_vectors / peers.size + kThreads) / kThreads;
    LaunchOverlapped(kernel, static_cast<unsigned>(std::min<int64_t>(ctas, MaxCtas(peers))),
                     kThreads, 0, stream, peers, offset, num_vectors);
  };
  switch (peers.size) {
    case 2:
      return launch(ReduceMany<T, 2>);
    case 3:
      return launch(ReduceMany<T, 3>);
    case 4:
      return launch(ReduceMany<T, 4>);
    case 5:
      return launch(ReduceMany<T, 5>);
    case 6:
      return launch(ReduceMany<T, 6>);
    case 7:
      return launch(ReduceMany<T, 7>);
    default:
      return launch(ReduceMany<T, 8>);
  }
}

}  // namespace

size_t PeerMailboxBytes(int size) {
  return sizeof(Mailbox) +
         2 * static_cast<size_t>(size) * kMaxPeerCtas * kLettersPerCta * sizeof(Letter);
}

bool PeersSumInNorm(const Peers& peers, int64_t num_rows, int64_t width) {
  return width % kVector == 0 && width / kVector <= kLettersPerCta &&
         num_rows * (peers.size - 1) * peers.ranks_per_gpu <= kMaxPeerCtas;
}

bool KernelsOverlap() { return CanOverlap(); }

Status PeerAllReduce(const Peers& peers, size_t offset, DType dtype, int64_t num_elements,
                     CudaStream& stream) {
  CHECK_LE(peers.size, kMaxPeers);
  if (!IsHalf(dtype) || offset % kVectorBytes != 0 || num_elements % kVector != 0)
    return InvalidArgument("values: got " + std::to_string(num_elements) + " " +
                           std::string(DTypeName(dtype)) + " at byte " + std::to_string(offset) +
                           ", needed float16 or bfloat16 in vectors of " + std::to_string(kVector));
  const int64_t num_vectors = num_elements / kVector;
  const cudaStream_t handle = stream.handle();
  WithHalf(dtype, [&]<typename T>(std::type_identity<T>) {
    if (static_cast<size_t>(num_vectors) * kVectorBytes > MostOfFew(peers))
      return LaunchMany<T>(peers, offset, num_vectors, handle);
    const int64_t per_cta = std::clamp<int64_t>((num_vectors + MaxCtas(peers) - 1) / MaxCtas(peers),
                                                kWarp, kLettersPerCta);
    LaunchOverlapped(ReduceFew<T>, static_cast<unsigned>((num_vectors + per_cta - 1) / per_cta),
                     kThreads, 0, handle, peers, offset, static_cast<int>(num_vectors),
                     static_cast<int>(per_cta));
  });
  return inflight::cuda::LaunchStatus("all-reduce");
}

Status PeerGatherColumns(const Peers& peers, const PeerColumns& columns, CudaStream& stream) {
  CHECK_LE(peers.size, kMaxPeers);
  const bool is_wide = columns.width % 4 == 0 && columns.row_width % 4 == 0 &&
                       columns.from % kVectorBytes == 0 && columns.to % kVectorBytes == 0;
  LaunchOverlapped(is_wide ? GatherColumns<4> : GatherColumns<1>,
                   static_cast<unsigned>(MaxCtas(peers)), kThreads, 0, stream.handle(), peers,
                   columns);
  return inflight::cuda::LaunchStatus("gather of columns");
}

}  // namespace inflight::ops::cuda
