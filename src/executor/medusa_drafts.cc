// SPDX-License-Identifier: Apache-2.0
#include "executor/medusa_drafts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "decoding/best_tokens.h"
#include "executor/tree_choices.h"

namespace inflight::executor {
namespace {

// States at once: the heads' logits are as wide as the vocabulary.
constexpr int kMaxStates = 32;

int NumStates(int max_batch_size) { return std::min(max_batch_size, kMaxStates); }

}  // namespace

uint64_t MedusaDrafts::Bytes(const model::ModelConfig& config, int max_batch_size) {
  return model::MedusaHeads::Bytes(config, NumStates(max_batch_size));
}

Result<std::unique_ptr<MedusaDrafts>> MedusaDrafts::Create(
    std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan,
    const ops::OpTable& ops) {
  CHECK(plan.draft_tree.has_value());
  std::unique_ptr<MedusaDrafts> drafts(new MedusaDrafts(*plan.draft_tree));
  const int num_states = NumStates(plan.max_batch_size);
  drafts->vocab_size_ = engine->config.vocab_size;
  ASSIGN_OR_RETURN(drafts->heads_,
                   model::MedusaHeads::Create(std::move(engine), ops, device, num_states));
  return drafts;
}

Status MedusaDrafts::Draft(std::span<const Ask> asks, model::Decoder& decoder,
                           inflight::Stream& stream) {
  known_.clear();
  for (const Ask& ask : asks) {
    ask.drafts->clear();
    if (ask.state >= 0) known_.push_back(ask);
  }
  const TensorView states = decoder.States();
  for (size_t first = 0; first < known_.size(); first += kMaxStates) {
    const size_t count = std::min<size_t>(kMaxStates, known_.size() - first);
    RETURN_IF_ERROR(DraftSome(std::span(known_).subspan(first, count), states, stream));
  }
  return Status::Ok();
}

Status MedusaDrafts::DraftSome(std::span<const Ask> asks, const TensorView& states,
                               inflight::Stream& stream) {
  rows_.clear();
  int num_nodes = 0;
  for (const Ask& ask : asks) {
    rows_.push_back(ask.state);
    num_nodes = std::max(num_nodes, ask.num_nodes);
    ask.drafts->resize(static_cast<size_t>(ask.num_nodes));
  }
  const auto num_rows = static_cast<int64_t>(asks.size());
  for (int depth = 1; depth <= tree_.Depth(num_nodes); ++depth) {
    ASSIGN_OR_RETURN(
        const TensorView logits,
        heads_->Logits(depth - 1, states, {rows_.data(), DType::kI32, {num_rows}}, stream));
    stream.cpu_pool().ParallelFor(num_rows, [&](int64_t r) {
      const Ask& ask = asks[static_cast<size_t>(r)];
      const float* const row = logits.as<const float>() + r * vocab_size_;
      if (ask.guide != nullptr) return ChooseByGuide(ask, depth, row);
      const int count = std::min(tree_.NumChoices(depth, ask.num_nodes), vocab_size_);
      std::array<int32_t, decoding::DraftTree::kMaxChoices> ids;
      decoding::BestTokens(row, vocab_size_, count, ids.data());
      for (int i = 0; i < ask.num_nodes; ++i)
        if (tree_[i].depth == depth)
          (*ask.drafts)[static_cast<size_t>(i)] =
              ids[static_cast<size_t>(std::min(tree_[i].choice, count - 1))];
    });
  }
  return Status::Ok();
}

// What may come depends on the nodes before.
void MedusaDrafts::ChooseByGuide(const Ask& ask, int depth, const float* logits) const {
  for (int parent = -1; parent < ask.num_nodes; ++parent)
    if ((parent < 0 ? 0 : tree_[parent].depth) == depth - 1)
      ChooseChildren(tree_, ask, parent, {.logits = logits, .num_ids = vocab_size_}, vocab_size_);
}

}  // namespace inflight::executor
