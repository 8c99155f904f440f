// SPDX-License-Identifier: Apache-2.0
#include "executor/model_drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace inflight::executor {
namespace {

constexpr int kDraftBlockSize = 64;
// Prompts are computed in portions, so that the workspace stays small.
constexpr int kMaxDraftPortion = 512;

int NumDraftLanes(int max_batch_size) { return std::min(max_batch_size, ModelDrafts::kMaxLanes); }
int DraftPortion(int max_num_tokens) {
  return std::max(ModelDrafts::kMaxLanes, std::min(kMaxDraftPortion, max_num_tokens));
}

}  // namespace

uint64_t ModelDrafts::Bytes(const model::ModelConfig& draft,
                            const model::EngineLimits& draft_limits,
                            const model::EngineLimits& limits) {
  const int num_lanes = NumDraftLanes(limits.max_batch_size);
  const auto num_blocks =
      static_cast<uint64_t>(num_lanes) *
      static_cast<uint64_t>(kv_cache::BlocksFor(limits.max_seq_len, kDraftBlockSize));
  return num_blocks * KvBytesPerBlock(KvShape(draft, kDraftBlockSize, DeviceKind::kCpu)) +
         model::Decoder::WorkspaceBytes(draft, DeviceKind::kCpu, draft_limits.max_seq_len,
                                        DraftPortion(limits.max_num_tokens), num_lanes);
}

Status CheckDraftModel(const model::Engine& draft, int vocab_size, const MemoryPlan& plan) {
  if (draft.config.vocab_size != vocab_size)
    return InvalidArgument(
        "draft_model", fmt::format("its vocabulary has {} tokens, the model's {}; both need one "
                                   "tokenizer",
                                   draft.config.vocab_size, vocab_size));
  if (draft.limits.max_seq_len < plan.max_seq_len)
    return InvalidArgument(
        "draft_model", fmt::format("it sees {} tokens, the model {}; lower the model's max_seq_len",
                                   draft.limits.max_seq_len, plan.max_seq_len));
  return Status::Ok();
}

Result<std::unique_ptr<ModelDrafts>> ModelDrafts::Create(
    std::shared_ptr<const model::Engine> engine, int vocab_size, Device& device,
    const MemoryPlan& plan, const ops::OpTable& ops) {
  const model::ModelConfig& config = engine->config;
  std::unique_ptr<ModelDrafts> made(new ModelDrafts());
  made->vocab_size_ = vocab_size;
  made->blocks_per_lane_ = kv_cache::BlocksFor(plan.max_seq_len, kDraftBlockSize);
  made->max_num_tokens_ = DraftPortion(plan.max_num_tokens);
  const int num_lanes = NumDraftLanes(plan.max_batch_size);
  made->lanes_.resize(static_cast<size_t>(num_lanes));
  for (Lane& lane : made->lanes_) lane.computed.reserve(static_cast<size_t>(plan.max_seq_len));
  ASSIGN_OR_RETURN(made->decoder_,
                   model::Decoder::Create(engine, ops, device, made->max_num_tokens_, num_lanes));
  ASSIGN_OR_RETURN(made->kv_,
                   KvStorage::Create(KvShape(config, kDraftBlockSize, DeviceKind::kCpu),
                                     int64_t{num_lanes} * made->blocks_per_lane_, device));
  made->engine_ = std::move(engine);
  return made;
}

TokenId ModelDrafts::TokenAt(const Ask& ask, int position) {
  const auto known = static_cast<int>(ask.tokens->size());
  return position < known ? (*ask.tokens)[static_cast<size_t>(position)]
                          : (*ask.drafts)[static_cast<size_t>(position - known)];
}

// The slot's own, or the one that was used longest ago; -1 where all are used in this call.
int ModelDrafts::LaneOf(SlotId slot) {
  auto found = std::ranges::find(lanes_, slot, &Lane::slot);
  if (found == lanes_.end()) found = std::ranges::min_element(lanes_, {}, &Lane::last_used);
  if (found->slot != slot && found->last_used == num_calls_) return -1;
  found->slot = slot;
  found->last_used = num_calls_;
  return static_cast<int>(found - lanes_.begin());
}

// Tokens that the lane holds in common with the slot stay, but for the newest of the slot, whose
// logits are wanted. Tokens of no vocabulary, rows of a prompt's own table, leave it without
// drafts.
void ModelDrafts::Begin(const Ask& ask, const decoding::Sampler& sampler) {
  ask.drafts->clear();
  const auto is_known = [this](TokenId id) { return id >= 0 && id < vocab_size_; };
  if (!std::ranges::all_of(*ask.tokens, is_known)) return;
  const int lane = LaneOf(ask.slot);
  if (lane < 0) return;
  std::vector<TokenId>& computed = lanes_[static_cast<size_t>(lane)].computed;
  const size_t limit = std::min(computed.size(), ask.tokens->size() - 1);
  const auto common = std::mismatch(
      computed.begin(), computed.begin() + static_cast<ptrdiff_t>(limit), ask.tokens->begin());
  computed.erase(common.first, computed.end());
  drafting_.push_back({.ask = &ask, .lane = lane, .guide = sampler.CloneGuide(ask.slot)});
}

// Behind all that the slot knows and its drafts so far.
void ModelDrafts::Draw(Drafting* drafting, float* logits, decoding::Sampler* sampler) {
  const Ask& ask = *drafting->ask;
  const decoding::SampledToken token =
      sampler->SampleDraft(ask.slot, text_, logits, drafting->guide.get());
  drafting->has_ended = token.verdict != decoding::GuideVerdict::kTokens;
  if (drafting->has_ended) return;
  ask.drafts->push_back(token.id);
  if (drafting->guide != nullptr) drafting->guide->Accept(token.id);
}

Status ModelDrafts::Draft(std::span<const Ask> asks, decoding::Sampler& sampler,
                          inflight::Stream& stream) {
  ++num_calls_;
  drafting_.clear();
  // Those that have a lane keep it.
  for (const Ask& ask : asks)
    for (Lane& lane : lanes_)
      if (lane.slot == ask.slot) lane.last_used = num_calls_;
  for (const Ask& ask : asks) Begin(ask, sampler);
  while (true) {
    rows_.clear();
    int room = max_num_tokens_;
    for (Drafting& drafting : drafting_) {
      const Ask& ask = *drafting.ask;
      if (std::ssize(*ask.drafts) == ask.max_drafts || drafting.has_ended || room == 0) continue;
      const auto begin =
          static_cast<int>(lanes_[static_cast<size_t>(drafting.lane)].computed.size());
      const auto known = static_cast<int>(ask.tokens->size() + ask.drafts->size());
      const int end = std::min(known, begin + room);
      rows_.push_back({&drafting, begin, end});
      room -= end - begin;
    }
    if (rows_.empty()) break;
    ASSIGN_OR_RETURN(const TensorView logits, Forward(rows_, stream));
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Ask& ask = *rows_[r].drafting->ask;
      std::vector<TokenId>& computed =
          lanes_[static_cast<size_t>(rows_[r].drafting->lane)].computed;
      for (int p = rows_[r].begin; p < rows_[r].end; ++p) computed.push_back(TokenAt(ask, p));
      text_.assign(ask.tokens->begin(), ask.tokens->end());
      text_.insert(text_.end(), ask.drafts->begin(), ask.drafts->end());
      if (computed.size() < text_.size()) continue;  // a portion of a prompt
      Draw(rows_[r].drafting, logits.as<float>() + static_cast<int64_t>(r) * vocab_size_, &sampler);
    }
  }
  drafting_.clear();  // no guide outlives its request
  return Status::Ok();
}

Result<TensorView> ModelDrafts::Forward(std::span<const Row> rows, inflight::Stream& stream) {
  const auto num_rows = static_cast<int>(rows.size());
  for (auto* array :
       {&ids_, &positions_, &cu_seqlens_q_, &seq_lens_kv_, &block_tables_, &logit_rows_})
    array->clear();
  slot_mapping_.clear();
  cu_seqlens_q_.push_back(0);
  for (const Row& row : rows) {
    const int32_t first_block = row.drafting->lane * blocks_per_lane_;
    for (int p = row.begin; p < row.end; ++p) {
      ids_.push_back(TokenAt(*row.drafting->ask, p));
      positions_.push_back(p);
      slot_mapping_.push_back(int64_t{first_block} * kDraftBlockSize + p);
    }
    cu_seqlens_q_.push_back(static_cast<int32_t>(ids_.size()));
    seq_lens_kv_.push_back(row.end);
    logit_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
    for (int b = 0; b < blocks_per_lane_; ++b) block_tables_.push_back(first_block + b);
  }
  const auto num_tokens = static_cast<int>(ids_.size());
  const model::Batch batch{
      .ids = {ids_.data(), DType::kI32, {num_tokens}},
      .paged = {.num_rows = num_rows,
                .num_tokens = num_tokens,
                .cu_seqlens_q = {cu_seqlens_q_.data(), DType::kI32, {num_rows + 1}},
                .seq_lens_kv = {seq_lens_kv_.data(), DType::kI32, {num_rows}},
                .positions = {positions_.data(), DType::kI32, {num_tokens}},
                .slot_mapping = {slot_mapping_.data(), DType::kI64, {num_tokens}},
                .block_tables = {block_tables_.data(), DType::kI32, {num_rows, blocks_per_lane_}}},
      .logit_rows = {logit_rows_.data(), DType::kI32, {num_rows}}};
  return decoder_->Forward(batch, kv_.view(), stream);
}

}  // namespace inflight::executor
