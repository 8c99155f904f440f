// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/nccl_stages.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "executor/cuda/nccl_group.h"

namespace inflight::executor::cuda {

class NcclStages::Rank : public GpuRank {
 public:
  Rank(NcclStages& group, comm::Communicator& rows) : group_(group), rows_(rows) {}

  int rank() const override { return rows_.rank(); }
  int size() const override { return rows_.size(); }

  Status AllReduce(const TensorView&, Stream&) override {
    return Unimplemented("stages on GPUs add nothing up");
  }
  Status Send(const TensorView& values, int to, Stream& stream) override {
    CHECK_EQ(to, rank() + 1);
    return group_.have_joined_ ? rows_.Send(values, to, stream) : Status::Ok();
  }
  Status Receive(const TensorView& values, int from, Stream& stream) override {
    CHECK_EQ(from, rank() - 1);
    return group_.have_joined_ ? rows_.Receive(values, from, stream) : Status::Ok();
  }
  bool may_be_recorded() const override { return rows_.may_be_recorded(); }

  void Abort(const Status& reason) override { group_.Abort(reason); }

 private:
  NcclStages& group_;
  comm::Communicator& rows_;
};

NcclStages::NcclStages(int stage_size, int num_stages)
    : stage_size_(stage_size), num_stages_(num_stages) {}
NcclStages::~NcclStages() = default;

comm::Communicator& NcclStages::rank(int r) {
  Rank* const found = ranks_[static_cast<size_t>(r)].get();
  CHECK(found != nullptr);
  return *found;
}

comm::RankGroups NcclStages::groups(int r) {
  comm::RankGroups groups = {.pipeline = &rank(r)};
  if (stage_size_ > 1)
    groups.tensor = &tensor_[static_cast<size_t>(r / stage_size_)]->rank(r % stage_size_);
  return groups;
}

void NcclStages::Abort(const Status& reason) {
  for (const auto* groups : {&tensor_, &pipeline_})
    for (const auto& group : *groups)
      if (group != nullptr) group->Abort(reason);
}

Result<std::unique_ptr<GpuGroup>> NcclStages::Create(std::span<Device* const> devices,
                                                     int num_stages) {
  CHECK_EQ(devices.size() % static_cast<size_t>(num_stages), 0U);
  const size_t size = devices.size() / static_cast<size_t>(num_stages);
  std::unique_ptr<NcclStages> made(new NcclStages(static_cast<int>(size), num_stages));
  for (size_t first = 0; size > 1 && first < devices.size(); first += size) {
    ASSIGN_OR_RETURN(made->tensor_.emplace_back(), NcclGroup::Create(devices.subspan(first, size)));
  }
  for (size_t lane = 0; lane < size; ++lane) {
    std::vector<Device*> of_lane;
    for (size_t r = lane; r < devices.size(); r += size) of_lane.push_back(devices[r]);
    ASSIGN_OR_RETURN(made->pipeline_.emplace_back(), NcclGroup::Create(of_lane));
  }
  for (size_t r = 0; r < devices.size(); ++r)
    made->ranks_.push_back(
        std::make_unique<Rank>(*made, made->pipeline_[r % size]->rank(static_cast<int>(r / size))));
  logging::Info("stages hand rows over by NCCL", {{"stages", num_stages}});
  return std::unique_ptr<GpuGroup>(std::move(made));
}

size_t NcclStages::NumGroups(const model::RankPart& part) {
  const int of_stages = part.tp_size > 1 ? part.pp_size : 0;
  const int of_parts = part.pp_size > 1 ? part.tp_size : 0;
  return static_cast<size_t>(of_stages + of_parts);
}

Result<std::unique_ptr<GpuGroup>> NcclStages::Join(Device& device, std::span<const std::string> ids,
                                                   const model::RankPart& part,
                                                   const std::function<Status()>& check) {
  if (ids.size() != NumGroups(part)) return DataLoss("ranks of a model have other NCCL groups");
  const auto stage = static_cast<size_t>(part.pp_rank);
  const auto lane = static_cast<size_t>(part.tp_rank);
  const auto size = static_cast<size_t>(part.tp_size);
  const auto num_stages = static_cast<size_t>(part.pp_size);
  std::unique_ptr<NcclStages> made(new NcclStages(part.tp_size, part.pp_size));
  if (size > 1) {
    made->tensor_.resize(num_stages);
    ASSIGN_OR_RETURN(made->tensor_[stage],
                     NcclGroup::Join(device, ids[stage], part.tp_rank, part.tp_size, check));
    ids = ids.subspan(num_stages);
  }
  if (num_stages == 1) return std::move(made->tensor_[stage]);
  made->pipeline_.resize(size);
  ASSIGN_OR_RETURN(made->pipeline_[lane],
                   NcclGroup::Join(device, ids[lane], part.pp_rank, part.pp_size, check));
  made->ranks_.resize(size * num_stages);
  made->ranks_[stage * size + lane] =
      std::make_unique<Rank>(*made, made->pipeline_[lane]->rank(part.pp_rank));
  return std::unique_ptr<GpuGroup>(std::move(made));
}

}  // namespace inflight::executor::cuda
