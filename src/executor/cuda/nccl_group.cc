// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/nccl_group.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/place_columns.h"

namespace inflight::executor::cuda {
namespace {

Result<NcclType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return NcclType::kFloat16;
    case DType::kBF16:
      return NcclType::kBFloat16;
    case DType::kF32:
      return NcclType::kFloat32;
    default:
      return Internal(fmt::format("{} is not added up by NCCL", DTypeName(dtype)));
  }
}

}  // namespace

class NcclGroup::Rank : public GpuRank {
 public:
  Rank(NcclGroup& group, NcclComm* comm, int rank) : group_(group), comm_(comm), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size_; }

  Status AllReduce(const TensorView& values, Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    if (values.num_elements() == 0) return Status::Ok();
    ASSIGN_OR_RETURN(const NcclType type, TypeOf(values.dtype));
    const int done = group_.calls_.all_reduce(values.data, values.data,
                                              static_cast<size_t>(values.num_elements()), type,
                                              kNcclSum, comm_, ops::cuda::AsCuda(stream).handle());
    if (done != 0) RETURN_IF_ERROR(group_.status());  // what the abort made of it
    return group_.calls_.ToStatus(done, "all-reduce");
  }

  // Each rank's columns beside zeros of the others', added up: exact, and no room is needed.
  Status GatherColumns(const TensorView& own, const TensorView& all, Stream& stream) override {
    RETURN_IF_ERROR(ops::cuda::PlaceColumns({.own = own.as<float>(),
                                             .all = all.as<float>(),
                                             .num_rows = own.shape[0],
                                             .width = own.shape[1],
                                             .row_width = all.shape[1],
                                             .first = rank_ * own.shape[1]},
                                            ops::cuda::AsCuda(stream)));
    return AllReduce(all, stream);
  }

  Status Send(const TensorView& values, int to, Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    const int done = group_.calls_.send(values.data, values.num_bytes(), NcclType::kInt8, to, comm_,
                                        ops::cuda::AsCuda(stream).handle());
    if (done != 0) RETURN_IF_ERROR(group_.status());
    return group_.calls_.ToStatus(done, "rows to the next stage");
  }
  Status Receive(const TensorView& values, int from, Stream& stream) override {
    RETURN_IF_ERROR(group_.status());
    const int done = group_.calls_.receive(values.data, values.num_bytes(), NcclType::kInt8, from,
                                           comm_, ops::cuda::AsCuda(stream).handle());
    if (done != 0) RETURN_IF_ERROR(group_.status());
    return group_.calls_.ToStatus(done, "rows of the stage before");
  }
  bool may_be_recorded() const override { return false; }

  void Abort(const Status& reason) override { group_.Abort(reason); }

 private:
  NcclGroup& group_;
  NcclComm* const comm_;
  const int rank_;
};

NcclGroup::NcclGroup(const NcclCalls& calls, int size) : calls_(calls), size_(size) {}

comm::Communicator& NcclGroup::rank(int r) {
  const auto found = std::ranges::find(ranks_, r, [](const auto& rank) { return rank->rank(); });
  CHECK(found != ranks_.end());
  return **found;
}

Status NcclGroup::status() {
  if (!is_aborted_) return Status::Ok();
  const std::lock_guard lock(mutex_);
  return reason_;
}

void NcclGroup::Abort(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (!reason_.ok()) return;
  reason_ = Unavailable(reason.message());
  is_aborted_ = true;
  for (NcclComm* comm : comms_) {
    std::packaged_task<void()> abort([&calls = calls_, comm] { calls.comm_abort(comm); });
    aborts_.push_back(abort.get_future());
    std::thread(std::move(abort)).detach();
  }
}

NcclGroup::~NcclGroup() {
  // One that waits for a rank that is gone is left behind.
  constexpr std::chrono::seconds kPatience{2};
  for (const std::future<void>& abort : aborts_) abort.wait_for(kPatience);
  if (is_aborted_) return;
  for (NcclComm* comm : comms_) calls_.comm_destroy(comm);
}

Result<std::unique_ptr<GpuGroup>> NcclGroup::Create(std::span<Device* const> devices) {
  ASSIGN_OR_RETURN(const NcclCalls* const calls, LoadNccl());
  std::unique_ptr<NcclGroup> group(new NcclGroup(*calls, static_cast<int>(devices.size())));
  NcclId id;
  RETURN_IF_ERROR(calls->ToStatus(calls->get_unique_id(&id), "a group"));
  std::vector<NcclComm*> comms(devices.size());
  RETURN_IF_ERROR(calls->ToStatus(calls->group_start(), "a group"));
  int failed = 0;
  for (size_t r = 0; r < devices.size(); ++r) {
    cudaSetDevice(devices[r]->cuda().index);
    const int done =
        calls->comm_init_rank(&comms[r], static_cast<int>(devices.size()), id, static_cast<int>(r));
    if (failed == 0) failed = done;
  }
  const int ended = calls->group_end();
  RETURN_IF_ERROR(calls->ToStatus(failed == 0 ? ended : failed, "a group of GPUs"));
  group->comms_ = std::move(comms);
  for (size_t r = 0; r < devices.size(); ++r)
    group->ranks_.push_back(std::make_unique<Rank>(*group, group->comms_[r], static_cast<int>(r)));
  logging::Info("GPUs add up by NCCL", {{"ranks", devices.size()}});
  return std::unique_ptr<GpuGroup>(std::move(group));
}

Result<std::unique_ptr<GpuGroup>> NcclGroup::Join(Device& device, std::string_view id, int rank,
                                                  int size, const std::function<Status()>& check) {
  ASSIGN_OR_RETURN(const NcclCalls* const calls, LoadNccl());
  NcclId of_group;
  if (id.size() != sizeof(of_group.bytes))
    return DataLoss("the id of an NCCL group has other bytes");
  std::memcpy(of_group.bytes, id.data(), id.size());
  // NCCL waits for the others for good, so that a thread waits in its place. Where one of them is
  // gone that thread stays; so does what it waits in.
  struct Joining {
    std::promise<int> done;
    NcclComm* comm = nullptr;
  };
  auto joining = std::make_shared<Joining>();
  std::future<int> done = joining->done.get_future();
  std::thread([calls, joining, of_group, rank, size, index = device.cuda().index] {
    cudaSetDevice(index);
    joining->done.set_value(calls->comm_init_rank(&joining->comm, size, of_group, rank));
  }).detach();
  constexpr std::chrono::milliseconds kPause{20};
  while (done.wait_for(kPause) != std::future_status::ready) RETURN_IF_ERROR(check());
  RETURN_IF_ERROR(calls->ToStatus(done.get(), "a group of GPUs"));
  NcclComm* const comm = joining->comm;
  std::unique_ptr<NcclGroup> group(new NcclGroup(*calls, size));
  group->comms_ = {comm};
  group->ranks_.push_back(std::make_unique<Rank>(*group, comm, rank));
  return std::unique_ptr<GpuGroup>(std::move(group));
}

}  // namespace inflight::executor::cuda
