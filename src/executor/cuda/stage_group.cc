// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/stage_group.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/debug_options.h"
#include "executor/cuda/peer_group.h"

namespace inflight::executor::cuda {
namespace {

using ops::cuda::kStagePlaces;
using ops::cuda::StageDoor;
using ops::cuda::StageLink;

constexpr size_t kPlaceAlignment = 256;

size_t PlaceBytes(size_t step_bytes) {
  return (step_bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

// Memory of a rank: its door; letters of the last stage, of which that one has none; places, of
// which the first stage has none.
struct StageMemory {
  size_t letters = sizeof(StageDoor);
  size_t places = 0;
  size_t size = 0;

  StageMemory(int stage, int num_stages, size_t step_bytes) {
    const bool is_last = stage == num_stages - 1;
    places = letters + (is_last ? 0 : kNumArenas * sizeof(StageLetter));
    places = PlaceBytes(places);
    size = places + (stage == 0 ? 0 : kStagePlaces * PlaceBytes(step_bytes));
  }
};

}  // namespace

uint64_t StageBytes(int stage, int num_stages, size_t step_bytes) {
  return StageMemory(stage, num_stages, step_bytes).size;
}

class StagedGroup::Rank : public GpuRank {
 public:
  Rank(StagedGroup& group, int stage, const StageLink& before, const StageLink& next)
      : group_(group), stage_(stage), before_(before), next_(next) {}

  int rank() const override { return stage_; }
  int size() const override { return group_.num_stages_; }

  Status AllReduce(const TensorView&, inflight::Stream&) override {
    return Unimplemented("stages on GPUs add nothing up");
  }
  Status Send(const TensorView& values, int to, inflight::Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    CHECK_EQ(to, stage_ + 1);
    if (!group_.have_joined_) return Status::Ok();
    return ops::cuda::SendRows(next_, values.data, values.num_bytes(), ops::cuda::AsCuda(stream));
  }
  Status Receive(const TensorView& values, int from, inflight::Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    CHECK_EQ(from, stage_ - 1);
    if (!group_.have_joined_) return Status::Ok();
    return ops::cuda::ReceiveRows(before_, values.data, values.num_bytes(),
                                  ops::cuda::AsCuda(stream));
  }

  bool may_be_recorded() const override { return !group_.are_told_; }

  void Abort(const Status& reason) override { group_.Abort(reason); }

 private:
  StagedGroup& group_;
  const int stage_;
  const StageLink before_;  // from the stage before
  const StageLink next_;    // to the next one
};

StagedGroup::~StagedGroup() = default;

comm::Communicator& StagedGroup::rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

comm::RankGroups StagedGroup::groups(int r) {
  comm::RankGroups groups = {.pipeline = &rank(r)};
  if (!tensor_.empty())
    groups.tensor = &tensor_[static_cast<size_t>(r / stage_size_)]->rank(r % stage_size_);
  return groups;
}

Status StagedGroup::status() {
  if (__atomic_load_n(reinterpret_cast<const uint32_t*>(abort_.data()), __ATOMIC_ACQUIRE) == 0)
    return Status::Ok();
  const std::lock_guard lock(mutex_);
  return reason_;
}

void StagedGroup::Abort(const Status& reason) {
  for (const auto& stage : tensor_) stage->Abort(reason);
  const std::lock_guard lock(mutex_);
  if (!reason_.ok()) return;
  reason_ = Unavailable(reason.message());
  __atomic_store_n(reinterpret_cast<uint32_t*>(abort_.data()), 1, __ATOMIC_RELEASE);
}

// Memory for what ranks write to each other, and who writes where.
Status StagedGroup::Connect(std::span<Device* const> devices, const GpuGroupShape& shape,
                            int ranks_per_gpu) {
  const auto* const abort = reinterpret_cast<const uint32_t*>(abort_.data());
  std::vector<StageDoor*> doors;
  std::vector<std::byte*> places;
  std::vector<StageLetter*> letters;
  for (size_t r = 0; r < devices.size(); ++r) {
    const int stage = static_cast<int>(r) / stage_size_;
    const StageMemory layout(stage, num_stages_, shape.step_bytes);
    ASSIGN_OR_RETURN(Buffer memory,
                     Buffer::Allocate(*devices[r], "what stages hand over", layout.size));
    doors.push_back(reinterpret_cast<StageDoor*>(memory.data()));
    letters.push_back(reinterpret_cast<StageLetter*>(memory.data() + layout.letters));
    places.push_back(memory.data() + layout.places);
    memory_.push_back(std::move(memory));
  }
  const auto size = static_cast<size_t>(stage_size_);
  const auto link = [&](size_t from) {  // to the next stage
    if (from + size >= devices.size()) return StageLink{};
    return StageLink{.sender = doors[from],
                     .receiver = doors[from + size],
                     .places = places[from + size],
                     .place_bytes = PlaceBytes(shape.step_bytes),
                     .num_ctas = ops::cuda::kMaxStageCtas / ranks_per_gpu,
                     .abort = abort};
  };
  for (size_t r = 0; r < devices.size(); ++r) {
    const int stage = static_cast<int>(r) / stage_size_;
    ranks_.push_back(
        std::make_unique<Rank>(*this, stage, r < size ? StageLink{} : link(r - size), link(r)));
    StageMail& mail = mails_.emplace_back();
    mail.abort = abort;
    const bool is_last = stage == num_stages_ - 1;
    for (size_t other = r % size; is_last && other < r; other += size)
      mail.boxes[mail.num_boxes++] = letters[other];
    if (!is_last) mail.boxes[mail.num_boxes++] = letters[r];
  }
  return Status::Ok();
}

Result<std::unique_ptr<GpuGroup>> StagedGroup::Create(std::span<Device* const> devices,
                                                      const GpuGroupShape& shape) {
  const auto num_ranks = static_cast<int>(devices.size());
  CHECK_EQ(num_ranks % shape.num_stages, 0);
  if (num_ranks > ops::cuda::kMaxPeers)
    return InvalidArgument(
        fmt::format("pipeline_parallel_size: got {} stages of {} ranks, GPUs take at most {} ranks",
                    shape.num_stages, num_ranks / shape.num_stages, ops::cuda::kMaxPeers));
  ASSIGN_OR_RETURN(const int ranks_per_gpu, RanksPerGpu(devices));
  std::unique_ptr<StagedGroup> group(new StagedGroup());
  group->num_stages_ = shape.num_stages;
  group->share_gpus_ = ranks_per_gpu > 1;
  group->are_told_ = DebugOptions::FromEnvironment().stages_are_told;
  group->stage_size_ = num_ranks / shape.num_stages;
  RETURN_IF_ERROR(EnablePeerAccess(devices));
  ASSIGN_OR_RETURN(group->abort_, PinnedBuffer::Allocate(*devices[0], sizeof(uint32_t)));
  const auto size = static_cast<size_t>(group->stage_size_);
  for (size_t first = 0; size > 1 && first < devices.size(); first += size) {
    ASSIGN_OR_RETURN(group->tensor_.emplace_back(),
                     PeerGroup::Create(devices.subspan(first, size), devices));
  }
  RETURN_IF_ERROR(group->Connect(devices, shape, ranks_per_gpu));
  return std::unique_ptr<GpuGroup>(std::move(group));
}

}  // namespace inflight::executor::cuda
