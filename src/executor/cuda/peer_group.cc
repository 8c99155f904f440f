// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/peer_group.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/debug_options.h"
#include "tensor/cuda_status.h"

namespace inflight::executor::cuda {
namespace {

using inflight::cuda::ToStatus;

// For the process. Others may have enabled it before, as NCCL does; the runtime takes that for an
// error.
Status EnableAccess(int from, int to) {
  if (from == to) return Status::Ok();
  cudaSetDevice(from);
  const cudaError_t done = cudaDeviceEnablePeerAccess(to, 0);
  if (done != cudaErrorPeerAccessAlreadyEnabled) return ToStatus(done, "peer access");
  cudaGetLastError();  // which would be that of the next call
  return Status::Ok();
}

}  // namespace

Result<int> RanksPerGpu(std::span<Device* const> devices) {
  int most = 1;
  for (const Device* device : devices) {
    const auto num_ranks = static_cast<int>(std::ranges::count(devices, device));
    most = std::max(most, num_ranks);
    if (num_ranks == 1) continue;
    if (!DebugOptions::FromEnvironment().ranks_share_gpu)
      return InvalidArgument(fmt::format(
          "gpu_device_ids: two ranks on {}; name another GPU for each", device->name()));
    if (ops::cuda::KernelsOverlap())
      return FailedPrecondition(fmt::format(
          "gpu_device_ids: two ranks on {}, whose kernels would take each other's place; set "
          "INFLIGHT_CUDA_OVERLAP=0, too",
          device->name()));
  }
  return most;
}

Status EnablePeerAccess(std::span<Device* const> devices) {
  for (const Device* from : devices)
    for (const Device* to : devices)
      RETURN_IF_ERROR(EnableAccess(from->cuda().index, to->cuda().index));
  return Status::Ok();
}

class PeerGroup::Rank : public GpuRank {
 public:
  Rank(PeerGroup& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.peers_.size; }

  void Share(std::span<std::byte> memory) override {
    group_.peers_.shared[rank_] = memory.data();
    num_bytes_ = memory.size();
  }

  Status AllReduce(const TensorView& values, Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    const int64_t num_elements = values.num_elements();
    if (num_elements == 0) return Status::Ok();
    return ops::cuda::PeerAllReduce(Peers(), OffsetOf(values), values.dtype, num_elements,
                                    ops::cuda::AsCuda(stream));
  }

  const ops::cuda::Peers* PeersOfNorm(int64_t num_rows, int64_t width) override {
    if (!ops::cuda::PeersSumInNorm(group_.peers_, num_rows, width)) return nullptr;
    if (of_norms_.mailbox[0] == nullptr) of_norms_ = Peers();
    return &of_norms_;
  }

  Status GatherColumns(const TensorView& own, const TensorView& all, Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    return ops::cuda::PeerGatherColumns(Peers(),
                                        {.from = OffsetOf(own),
                                         .to = OffsetOf(all),
                                         .num_rows = own.shape[0],
                                         .width = own.shape[1],
                                         .row_width = all.shape[1]},
                                        ops::cuda::AsCuda(stream));
  }

  void Abort(const Status& reason) override { group_.Abort(reason); }

 private:
  ops::cuda::Peers Peers() const {
    ops::cuda::Peers peers = group_.peers_;
    for (int r = 0; r < peers.size; ++r) CHECK(peers.shared[r] != nullptr);
    peers.rank = rank_;
    return peers;
  }

  size_t OffsetOf(const TensorView& values) const {
    const auto offset =
        static_cast<size_t>(values.as<const std::byte>() - group_.peers_.shared[rank_]);
    CHECK_LE(offset + values.num_bytes(), num_bytes_);
    return offset;
  }

  PeerGroup& group_;
  const int rank_;
  size_t num_bytes_ = 0;  // shared
  ops::cuda::Peers of_norms_;
};

PeerGroup::~PeerGroup() = default;

comm::Communicator& PeerGroup::rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

Status PeerGroup::Reaches(std::span<Device* const> devices) {
  for (const Device* from : devices)
    for (const Device* to : devices) {
      int can = from == to ? 1 : 0;
      if (can == 0)
        RETURN_IF_ERROR(ToStatus(
            cudaDeviceCanAccessPeer(&can, from->cuda().index, to->cuda().index), "peer access"));
      if (can == 0)
        return Unimplemented(
            fmt::format("{} does not reach the memory of {}", from->name(), to->name()));
    }
  return Status::Ok();
}

Status PeerGroup::status() {
  if (__atomic_load_n(peers_.abort, __ATOMIC_ACQUIRE) == 0) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return reason_;
}

// Kernels that wait end; what they leave is undefined, and nobody reads it.
void PeerGroup::Abort(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (!reason_.ok()) return;
  reason_ = Unavailable(reason.message());
  __atomic_store_n(reinterpret_cast<uint32_t*>(abort_.data()), 1, __ATOMIC_RELEASE);
}

Result<std::unique_ptr<GpuGroup>> PeerGroup::Create(std::span<Device* const> devices,
                                                    std::span<Device* const> all) {
  const auto size = static_cast<int>(devices.size());
  if (size > ops::cuda::kMaxPeers)
    return InvalidArgument(fmt::format("tensor_parallel_size: got {}, GPUs take at most {}", size,
                                       ops::cuda::kMaxPeers));
  ASSIGN_OR_RETURN(const int ranks_per_gpu, RanksPerGpu(all));
  std::unique_ptr<PeerGroup> group(new PeerGroup());
  RETURN_IF_ERROR(EnablePeerAccess(devices));
  ASSIGN_OR_RETURN(group->abort_, PinnedBuffer::Allocate(*devices[0], sizeof(uint32_t)));
  group->peers_.size = size;
  group->peers_.ranks_per_gpu = ranks_per_gpu;
  group->peers_.abort = reinterpret_cast<const uint32_t*>(group->abort_.data());
  for (int r = 0; r < size; ++r) {
    Device& device = *devices[static_cast<size_t>(r)];
    ASSIGN_OR_RETURN(Buffer mailbox, Buffer::Allocate(device, "mailbox of ranks",
                                                      ops::cuda::PeerMailboxBytes(size)));
    group->peers_.mailbox[r] = mailbox.data();
    group->mailboxes_.push_back(std::move(mailbox));
    group->ranks_.push_back(std::make_unique<Rank>(*group, r));
  }
  return std::unique_ptr<GpuGroup>(std::move(group));
}

}  // namespace inflight::executor::cuda
