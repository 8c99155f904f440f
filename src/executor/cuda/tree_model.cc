// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/tree_model.h"

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/cuda/eagle_model.h"
#include "executor/cuda/medusa_model.h"

namespace inflight::executor::cuda {

Result<std::unique_ptr<TreeModel>> MakeTreeModel(std::shared_ptr<const model::Engine> engine,
                                                 std::shared_ptr<const model::EagleHead> eagle,
                                                 ops::OpTable ops, const MemoryPlan& plan,
                                                 model::Decoder& decoder, inflight::Stream& stream,
                                                 const StepState& state, Device& device) {
  if (plan.drafts == DraftSource::kMedusa) {
    ASSIGN_OR_RETURN(auto heads, MedusaModel::Create(std::move(engine), std::move(ops), plan,
                                                     stream, state, device));
    return std::unique_ptr<TreeModel>(std::move(heads));
  }
  CHECK(eagle != nullptr);
  ASSIGN_OR_RETURN(auto head, EagleModel::Create(std::move(eagle), engine->config, std::move(ops),
                                                 plan, decoder, stream, state, device));
  return std::unique_ptr<TreeModel>(std::move(head));
}

Status MoveAcceptedOfAll(const KvStorage& kv, const StepState& state, int num_logits,
                         cudaStream_t stream) {
  for (int g = 0; g < kv.num_groups(); ++g)
    RETURN_IF_ERROR(
        MoveAccepted(kv.view(g), g, state.slots(), state.tensors(), num_logits, stream));
  return Status::Ok();
}

}  // namespace inflight::executor::cuda
