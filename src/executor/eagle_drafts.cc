// SPDX-License-Identifier: Apache-2.0
#include "executor/eagle_drafts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "executor/tree_choices.h"
#include "tensor/tensor_layout.h"

namespace inflight::executor {
namespace {

// Pairs of a forward pass: prompts are computed in portions, so that the workspace stays small.
constexpr int kMaxPairs = 512;
// States whose logits are computed at once: logits are as wide as the vocabulary.
constexpr int kMaxEagleLogits = 32;

int NumPairs(int max_num_tokens) {
  return std::max(decoding::DraftTree::kMaxNodes, std::min(kMaxPairs, max_num_tokens));
}

// Places what is kept between steps from `base` on and returns its size; a null base only measures.
uint64_t PlaceFeatures(const model::EagleConfig& config, int max_num_tokens, int64_t num_kept,
                       std::byte* base, model::KeptResiduals* kept, TensorView* ring) {
  TensorLayout layout(base);
  const DType dtype = model::ActivationDType(config.layer, DeviceKind::kCpu);
  if (!config.target_layers.empty())
    *kept = {.layers = config.target_layers,
             .states = layout.Place(dtype, {max_num_tokens, config.feature_width()})};
  *ring = layout.Place(dtype, {num_kept, config.feature_width()});
  return layout.num_bytes();
}

}  // namespace

class EagleDrafts::RankedTarget : public model::EagleTarget {
 public:
  RankedTarget(RankLeader& leader, int max_logits) : leader_(leader), max_logits_(max_logits) {}

  void Set(model::Decoder* decoder) { decoder_ = decoder; }

  Status Embed(const TensorView& ids, const TensorView& y, inflight::Stream& stream) override {
    RETURN_IF_ERROR(leader_.Embed(ids));
    return decoder_->Embed(ids, y, stream).status();
  }
  Status HeadLogits(const TensorView& x, const TensorView& logits,
                    inflight::Stream& stream) override {
    for (int64_t done = 0; done < x.shape[0]; done += max_logits_) {
      const int64_t n = std::min<int64_t>(max_logits_, x.shape[0] - done);
      const auto some = [&](const TensorView& all) {
        const int64_t width = all.shape[1];
        return TensorView{
            all.as<std::byte>() + BytesOf(all.dtype, done * width), all.dtype, {n, width}};
      };
      RETURN_IF_ERROR(leader_.HeadLogits(some(x)));
      RETURN_IF_ERROR(decoder_->HeadLogits(some(x), /*rows=*/{}, some(logits), stream).status());
    }
    return Status::Ok();
  }

 private:
  RankLeader& leader_;
  const int max_logits_;
  model::Decoder* decoder_ = nullptr;  // the leader's, of this call
};

EagleDrafts::EagleDrafts(decoding::DraftTree tree) : tree_(std::move(tree)) {}
EagleDrafts::~EagleDrafts() = default;

uint64_t EagleDrafts::Bytes(const model::EagleConfig& config, const model::ModelConfig& model,
                            int max_seq_len, int max_num_tokens, int max_slots) {
  model::KeptResiduals kept;
  TensorView ring;
  return PlaceFeatures(config, max_num_tokens, int64_t{max_slots} * kRing, nullptr, &kept, &ring) +
         model::EagleDecoder::Bytes(config, model, max_seq_len, NumPairs(max_num_tokens),
                                    kMaxEagleLogits);
}

Result<std::unique_ptr<EagleDrafts>> EagleDrafts::Create(
    std::shared_ptr<const model::EagleHead> head, std::shared_ptr<const model::Engine> engine,
    Device& device, const MemoryPlan& plan, const ops::OpTable& ops, RankLeader* leader) {
  CHECK(plan.draft_tree.has_value());
  const model::EagleConfig& config = head->config;
  std::unique_ptr<EagleDrafts> made(new EagleDrafts(*plan.draft_tree));
  made->vocab_size_ = config.layer.vocab_size;
  made->max_pairs_ = NumPairs(plan.max_num_tokens);
  made->max_blocks_ = plan.max_blocks_per_seq();
  made->sliding_ = {.window = plan.window(),
                    .num_sinks = plan.window() == 0 ? 0 : plan.windows.num_sinks};
  made->kept_pairs_.resize(static_cast<size_t>(plan.max_slots));
  made->has_row_.resize(static_cast<size_t>(plan.max_slots));
  const auto place = [&](std::byte* base) {
    return PlaceFeatures(config, plan.max_num_tokens, int64_t{plan.max_slots} * kRing, base,
                         &made->kept_, &made->ring_);
  };
  ASSIGN_OR_RETURN(made->buffer_, Buffer::Allocate(device, "EAGLE features", place(nullptr)));
  place(made->buffer_.data());
  ASSIGN_OR_RETURN(made->kv_,
                   KvStorage::Create(KvShape(config.layer, plan.block_size, DeviceKind::kCpu),
                                     plan.num_blocks + plan.num_host_blocks, device));
  if (!engine->config.part.is_whole()) {
    CHECK(leader != nullptr);
    made->target_ = std::make_unique<RankedTarget>(*leader, plan.max_logits());
  }
  ASSIGN_OR_RETURN(
      made->decoder_,
      model::EagleDecoder::Create(std::move(head), std::move(engine), ops, device, plan.max_seq_len,
                                  made->max_pairs_, kMaxEagleLogits, made->target_.get()));
  return made;
}

void EagleDrafts::Pairs::Clear() {
  for (auto* array : {&ids, &features, &positions, &cu_seqlens_q, &seq_lens_kv, &block_tables})
    array->clear();
  slot_mapping.clear();
  tree_masks.clear();
  cu_seqlens_q.push_back(0);
}

int64_t EagleDrafts::MappingOf(int place, const int32_t* blocks) const {
  const int block_size = kv_.view().block_size;
  return int64_t{blocks[place / block_size]} * block_size + place % block_size;
}

// Ids of no vocabulary, rows of a prompt's own table, count as token 0.
void EagleDrafts::AddPair(TokenId token, int32_t feature, int position, int place,
                          const int32_t* blocks) {
  pairs_.ids.push_back(KnownId(token));
  pairs_.features.push_back(feature);
  pairs_.positions.push_back(position);
  pairs_.slot_mapping.push_back(MappingOf(place, blocks));
}

void EagleDrafts::EndRow(int num_places, const int32_t* blocks) {
  pairs_.cu_seqlens_q.push_back(pairs_.num_tokens());
  pairs_.seq_lens_kv.push_back(num_places);
  const auto begin = pairs_.block_tables.size();
  pairs_.block_tables.resize(begin + static_cast<size_t>(max_blocks_));
  std::copy_n(blocks, kv_cache::BlocksFor(num_places, kv_.view().block_size),
              pairs_.block_tables.begin() + static_cast<ptrdiff_t>(begin));
}

model::EagleBatch EagleDrafts::BatchOf(const Pairs& p, const TensorView& features,
                                       bool are_own) const {
  const auto ints = [](const std::vector<int32_t>& values, Shape shape) {
    return TensorView{const_cast<int32_t*>(values.data()), DType::kI32, shape};
  };
  const auto longs = [](const std::vector<int64_t>& values, Shape shape) {
    return TensorView{const_cast<int64_t*>(values.data()), DType::kI64, shape};
  };
  const int num_tokens = p.num_tokens();
  const int num_rows = p.num_rows();
  model::EagleBatch batch{.ids = ints(p.ids, {num_tokens}),
                          .features = features,
                          .rows = ints(p.features, {num_tokens}),
                          .are_own = are_own,
                          .paged = {.num_rows = num_rows,
                                    .num_tokens = num_tokens,
                                    .cu_seqlens_q = ints(p.cu_seqlens_q, {num_rows + 1}),
                                    .seq_lens_kv = ints(p.seq_lens_kv, {num_rows}),
                                    .positions = ints(p.positions, {num_tokens}),
                                    .slot_mapping = longs(p.slot_mapping, {num_tokens}),
                                    .block_tables = ints(p.block_tables, {num_rows, max_blocks_})},
                          .sliding = sliding_};
  if (!p.tree_masks.empty()) batch.paged.tree_masks = longs(p.tree_masks, {num_tokens});
  return batch;
}

Result<TensorView> EagleDrafts::Forward(const TensorView& features, bool are_own,
                                        inflight::Stream& stream) {
  return decoder_->Forward(BatchOf(pairs_, features, are_own), kv_.view(), stream);
}

// They are cleared. Rows do not matter: all of them are one.
Status EagleDrafts::WritePairs(const TensorView& features, Pairs& pairs, inflight::Stream& stream) {
  if (pairs.num_tokens() == 0) return Status::Ok();
  pairs.cu_seqlens_q.push_back(pairs.num_tokens());
  pairs.seq_lens_kv.push_back(pairs.num_tokens());
  pairs.block_tables.assign(static_cast<size_t>(max_blocks_), 0);
  RETURN_IF_ERROR(
      decoder_->WriteKv(BatchOf(pairs, features, /*are_own=*/false), kv_.view(), stream));
  pairs.Clear();
  return Status::Ok();
}

// Whether a token behind pairs up to `end` sees that of a place. If not, its block may be another's
// by now.
bool EagleDrafts::IsSeen(int place, int end) const {
  return place < sliding_.num_sinks || place >= sliding_.First(end);
}

Status EagleDrafts::WritePending(inflight::Stream& stream) {
  due_.Clear();
  for (size_t s = 0; s < kept_pairs_.size(); ++s) {
    Kept& kept = kept_pairs_[s];
    for (int place = kept.end - kept.num_pending; place < kept.end; ++place) {
      if (!IsSeen(place, kept.end)) continue;
      const auto entry = static_cast<size_t>(place % kRing);
      due_.ids.push_back(kept.tokens[entry]);
      due_.features.push_back(RingRow(static_cast<scheduler::SlotId>(s), place));
      due_.positions.push_back(place);
      due_.slot_mapping.push_back(kept.mappings[entry]);
      if (due_.num_tokens() == max_pairs_) RETURN_IF_ERROR(WritePairs(ring_, due_, stream));
    }
    kept.num_pending = 0;
  }
  return WritePairs(ring_, due_, stream);
}

Status EagleDrafts::SetUp(scheduler::SlotId slot, model::Decoder& decoder,
                          inflight::Stream& stream) {
  Kept& kept = kept_pairs_[static_cast<size_t>(slot)];
  if (target_ != nullptr) target_->Set(&decoder);
  if (kept.num_pending > 0) RETURN_IF_ERROR(WritePending(stream));
  kept.end = -1;
  kept.num_known = 0;
  return Status::Ok();
}

Status EagleDrafts::Prepare(const scheduler::StepPlan& plan, model::Decoder& decoder,
                            inflight::Stream& stream) {
  if (target_ != nullptr) target_->Set(&decoder);
  has_row_.assign(has_row_.size(), false);
  bool are_due = false;
  for (int r = 0; r < plan.num_rows; ++r) {
    const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
    has_row_[static_cast<size_t>(row.slot)] = true;
    // Of windows blocks are published while their sequence goes on.
    are_due |= sliding_.window > 0 && row.is_prefill != 0 && row.first_position > 0;
  }
  for (size_t s = 0; s < kept_pairs_.size(); ++s)
    are_due |= kept_pairs_[s].num_pending > 0 && !has_row_[s];
  return are_due ? WritePending(stream) : Status::Ok();
}

Status EagleDrafts::Keep(const Step& step, int place, const TensorView& features, int token,
                         bool is_pending, inflight::Stream& stream) {
  Kept& kept = kept_pairs_[static_cast<size_t>(step.slot)];
  if (kept.num_pending == kRing || (kept.num_pending > 0 && place != kept.end))
    RETURN_IF_ERROR(WritePending(stream));
  CHECK(features.dtype == ring_.dtype);
  const size_t row_bytes = BytesOf(ring_.dtype, ring_.shape[1]);
  const int32_t row = RingRow(step.slot, place);
  std::memcpy(ring_.as<std::byte>() + static_cast<size_t>(row) * row_bytes,
              features.as<const std::byte>() + static_cast<size_t>(token) * row_bytes, row_bytes);
  const auto entry = static_cast<size_t>(place % kRing);
  kept.tokens[entry] = KnownId((*step.tokens)[static_cast<size_t>(place) + 1]);
  kept.mappings[entry] = MappingOf(place, step.blocks);
  kept.end = place + 1;
  if (is_pending) ++kept.num_pending;
  return Status::Ok();
}

Status EagleDrafts::FollowChunk(const Step& step, int end, const TensorView& features,
                                inflight::Stream& stream) {
  pairs_.Clear();
  for (int place = step.first_place; place < end; ++place) {
    AddPair((*step.tokens)[static_cast<size_t>(place) + 1],
            step.first_token + place - step.first_place, place, place, step.blocks);
    if (pairs_.num_tokens() == max_pairs_) RETURN_IF_ERROR(WritePairs(features, pairs_, stream));
  }
  return WritePairs(features, pairs_, stream);
}

Status EagleDrafts::Follow(std::span<const Step> steps, model::Decoder& decoder,
                           inflight::Stream& stream) {
  if (target_ != nullptr) target_->Set(&decoder);
  const TensorView features = kept_.layers.empty() ? decoder.States() : kept_.states;
  for (const Step& step : steps) {
    const auto known = static_cast<int>(step.tokens->size());
    const int num_places = step.num_known + static_cast<int>(step.path.size());
    // The newest token's pair waits for the next one.
    const int end = std::min(step.first_place + num_places, known - 1);
    if (end <= step.first_place) continue;
    const auto token_of = [&step](int place) {
      const int i = place - step.first_place;
      return step.first_token +
             (i < step.num_known
                  ? i
                  : step.num_known + step.path[static_cast<size_t>(i - step.num_known)]);
    };
    int place = step.first_place;
    if (step.num_known > 1) {
      place = std::min(end, step.first_place + step.num_known);
      RETURN_IF_ERROR(FollowChunk(step, place, features, stream));
      RETURN_IF_ERROR(
          Keep(step, place - 1, features, token_of(place - 1), /*is_pending=*/false, stream));
    }
    for (; place < end; ++place)
      RETURN_IF_ERROR(Keep(step, place, features, token_of(place), /*is_pending=*/true, stream));
    if (end == known - 1)
      kept_pairs_[static_cast<size_t>(step.slot)].num_known = step.tokens->size();
  }
  return Status::Ok();
}

// Of its last pairs, those that a tree's first pass computes: the last one, and before it those
// that wait, where they are few.
int EagleDrafts::NumOfRoot(const Ask& ask) const {
  const Kept& kept = kept_pairs_[static_cast<size_t>(ask.slot)];
  int count = std::max(1, kept.num_pending);
  while (count > 1 && !IsSeen(kept.end - count, kept.end)) --count;
  return count;
}

Status EagleDrafts::Draft(std::span<const Ask> asks, model::Decoder& decoder,
                          inflight::Stream& stream) {
  if (target_ != nullptr) target_->Set(&decoder);
  asks_.clear();
  const auto can_draft = [this](const Ask& ask) {
    return kept_pairs_[static_cast<size_t>(ask.slot)].num_known == ask.tokens->size();
  };
  const auto has_many = [&](const Ask& ask) { return can_draft(ask) && NumOfRoot(ask) > kFew; };
  if (std::ranges::any_of(asks, has_many)) RETURN_IF_ERROR(WritePending(stream));
  int num_pairs = 0;  // the most of a pass
  for (const Ask& ask : asks) {
    ask.drafts->clear();
    if (!can_draft(ask)) continue;
    const int most = std::max(ask.num_nodes, NumOfRoot(ask));
    if (num_pairs + most > max_pairs_) {
      RETURN_IF_ERROR(DraftSome(asks_, stream));
      asks_.clear();
      num_pairs = 0;
    }
    asks_.push_back(&ask);
    num_pairs += most;
  }
  return asks_.empty() ? Status::Ok() : DraftSome(asks_, stream);
}

Status EagleDrafts::DraftSome(std::span<const Ask* const> asks, inflight::Stream& stream) {
  drafting_.resize(asks.size());
  pairs_.Clear();
  parents_.clear();
  int depth = 0;
  for (size_t i = 0; i < asks.size(); ++i) {
    const Ask& ask = *asks[i];
    const auto num_nodes = static_cast<size_t>(ask.num_nodes);
    ask.drafts->resize(num_nodes);
    drafting_[i].ask = &ask;
    drafting_[i].num_computed = 0;
    drafting_[i].order.resize(num_nodes);
    drafting_[i].rows.resize(num_nodes);
    depth = std::max(depth, tree_.Depth(ask.num_nodes));
    Kept& kept = kept_pairs_[static_cast<size_t>(ask.slot)];
    for (int place = kept.end - NumOfRoot(ask); place < kept.end; ++place)
      AddPair((*ask.tokens)[static_cast<size_t>(place) + 1], RingRow(ask.slot, place), place, place,
              ask.blocks);
    EndRow(kept.end, ask.blocks);
    kept.num_pending = 0;
    drafting_[i].root = pairs_.num_tokens() - 1;
    parents_.push_back({.ask = &ask, .node = -1, .row = drafting_[i].root});
  }
  ASSIGN_OR_RETURN(TensorView states, Forward(ring_, /*are_own=*/false, stream));
  RETURN_IF_ERROR(ChooseChildren(states, stream));
  for (int d = 1; d < depth; ++d) {
    pairs_.Clear();
    parents_.clear();
    for (Drafting& drafting : drafting_) AddNodes(&drafting, d);
    ASSIGN_OR_RETURN(states, Forward(states, /*are_own=*/true, stream));
    RETURN_IF_ERROR(ChooseChildren(states, stream));
  }
  return Status::Ok();
}

bool EagleDrafts::HasChild(const Ask& ask, int node) const {
  for (int i = node + 1; i < ask.num_nodes; ++i)
    if (tree_[i].parent == node) return true;
  return false;
}

// Pairs of the nodes of that depth that have children. Node n's stands `order[n]` places behind the
// last pair of the sequence, and sees the sequence, the nodes between and itself.
void EagleDrafts::AddNodes(Drafting* drafting, int depth) {
  const Ask& ask = *drafting->ask;
  const auto first_place = static_cast<int>(ask.tokens->size()) - 1;
  const int num_before = pairs_.num_tokens();
  for (int node = 0; node < ask.num_nodes; ++node) {
    if (tree_[node].depth != depth || !HasChild(ask, node)) continue;
    const auto n = static_cast<size_t>(node);
    const int parent = tree_[node].parent;
    const int32_t feature =
        parent < 0 ? drafting->root : drafting->rows[static_cast<size_t>(parent)];
    drafting->order[n] = drafting->num_computed++;
    drafting->rows[n] = pairs_.num_tokens();
    AddPair((*ask.drafts)[n], feature, first_place - 1 + depth, first_place + drafting->order[n],
            ask.blocks);
    parents_.push_back({.ask = &ask, .node = node, .row = drafting->rows[n]});
  }
  if (pairs_.num_tokens() == num_before) return;
  const int num_places = first_place + drafting->num_computed;
  for (auto i = static_cast<size_t>(num_before); i < pairs_.ids.size(); ++i) {
    uint64_t mask = ~uint64_t{0} << drafting->num_computed;
    for (int node = parents_[i].node; node >= 0; node = tree_[node].parent)
      mask |=
          uint64_t{1} << (drafting->num_computed - 1 - drafting->order[static_cast<size_t>(node)]);
    if (num_places < ops::kMaxTreePlaces) mask &= (uint64_t{1} << num_places) - 1;
    pairs_.tree_masks.push_back(static_cast<int64_t>(mask));
  }
  EndRow(num_places, ask.blocks);
}

Status EagleDrafts::ChooseChildren(const TensorView& states, inflight::Stream& stream) {
  const auto width = decoder_->config().draft_vocab_size;
  for (size_t first = 0; first < parents_.size(); first += kMaxEagleLogits) {
    const size_t count = std::min<size_t>(kMaxEagleLogits, parents_.size() - first);
    rows_.clear();
    for (size_t i = 0; i < count; ++i) rows_.push_back(parents_[first + i].row);
    ASSIGN_OR_RETURN(
        const TensorView logits,
        decoder_->Logits(states, {rows_.data(), DType::kI32, {static_cast<int64_t>(count)}},
                         stream));
    stream.cpu_pool().ParallelFor(static_cast<int64_t>(count), [&](int64_t i) {
      const Parent& parent = parents_[first + static_cast<size_t>(i)];
      executor::ChooseChildren(tree_, *parent.ask, parent.node,
                               {.logits = logits.as<const float>() + i * width,
                                .num_ids = width,
                                .token_ids = decoder_->token_ids()},
                               vocab_size_);
    });
  }
  return Status::Ok();
}

}  // namespace inflight::executor
