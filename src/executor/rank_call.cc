// SPDX-License-Identifier: Apache-2.0
#include "executor/rank_call.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/byte_fields.h"
#include "base/status_macros.h"
#include "executor/request_fields.h"
#include "inflight/prompt_table.h"

namespace inflight::executor {
namespace {

using CallKind = RankCall::Kind;

constexpr CallKind kLastKind = CallKind::kDraft;

uint64_t HashOf(std::string_view call, uint64_t before) {
  return XXH3_64bits_withSeed(call.data(), call.size(), before);
}

void WriteFloats(const std::vector<float>* values, ByteWriter& bytes) {
  bytes.Field(static_cast<uint8_t>(values != nullptr));
  if (values != nullptr) bytes.Field(*values);
}

std::shared_ptr<const std::vector<float>> ReadFloats(ByteReader& bytes) {
  uint8_t has = 0;
  bytes.Field(has);
  if (has == 0) return nullptr;
  std::vector<float> values;
  bytes.Field(values);
  return std::make_shared<const std::vector<float>>(std::move(values));
}

template <typename T>
void WriteItems(const T* items, int32_t count, ByteWriter& bytes) {
  bytes.Raw(items, static_cast<size_t>(count) * sizeof(T));
}

template <typename T, size_t kSize>
void ReadItems(std::array<T, kSize>& items, int32_t count, ByteReader& bytes) {
  if (count >= 0 && static_cast<size_t>(count) <= kSize)
    bytes.Raw(items.data(), static_cast<size_t>(count) * sizeof(T));
  else
    bytes.Fail();
}

// The counts of a plan, which come before its items.
template <typename Bytes, typename Plan>
void VisitCounts(Bytes& bytes, Plan& plan) {
  bytes.Field(plan.step_id);
  bytes.Field(plan.num_rows);
  bytes.Field(plan.num_decode_rows);
  bytes.Field(plan.num_tokens);
  bytes.Field(plan.num_yields);
  bytes.Field(plan.num_updates);
  bytes.Field(plan.num_block_ids);
  bytes.Field(plan.num_copies);
}

void WritePlan(const StepPlan& plan, ByteWriter& bytes) {
  VisitCounts(bytes, plan);
  WriteItems(plan.rows.data(), plan.num_rows, bytes);
  WriteItems(plan.updates.data(), plan.num_updates, bytes);
  WriteItems(plan.block_ids.data(), plan.num_block_ids, bytes);
  WriteItems(plan.copies.data(), plan.num_copies, bytes);
}

void ReadPlan(ByteReader& bytes, StepPlan* plan) {
  VisitCounts(bytes, *plan);
  ReadItems(plan->rows, plan->num_rows, bytes);
  ReadItems(plan->updates, plan->num_updates, bytes);
  ReadItems(plan->block_ids, plan->num_block_ids, bytes);
  ReadItems(plan->copies, plan->num_copies, bytes);
}

void WriteSetup(const SlotSetup& setup, ByteWriter& bytes) {
  const Request& request = *setup.request;
  bytes.Field(setup.slot);
  bytes.Field(std::vector<TokenId>(setup.tokens.begin(), setup.tokens.end()));
  bytes.Field(setup.num_prompt_tokens);
  bytes.Field(setup.max_seq_len);
  bytes.Field(setup.context_logits_from);
  bytes.Field(setup.seed);
  bytes.Field(setup.cum_log_prob);
  bytes.Field(std::vector<SlotId>(setup.beam_slots.begin(), setup.beam_slots.end()));
  bytes.Field(setup.adapter == nullptr ? -1 : setup.adapter->index);
  VisitRequest(bytes, request);
  VisitWords(bytes, request);
  WriteFloats(request.embedding_bias.get(), bytes);
  WriteFloats(request.draft_logits.get(), bytes);
  const PromptTable* const table = request.prompt_table.get();
  bytes.Field(static_cast<uint8_t>(table != nullptr));
  if (table == nullptr) return;
  bytes.Field(table->num_rows);
  bytes.Field(table->hidden_size);
  bytes.Field(table->values);
}

// A setup with all that it points to.
struct ReadSetup {
  SlotSetup setup;
  Request request;
  std::vector<TokenId> tokens;
  std::vector<SlotId> beam_slots;
  model::Adapter adapter;

  explicit ReadSetup(ByteReader& bytes) {
    bytes.Field(setup.slot);
    bytes.Field(tokens);
    bytes.Field(setup.num_prompt_tokens);
    bytes.Field(setup.max_seq_len);
    bytes.Field(setup.context_logits_from);
    bytes.Field(setup.seed);
    bytes.Field(setup.cum_log_prob);
    bytes.Field(beam_slots);
    bytes.Field(adapter.index);
    VisitRequest(bytes, request);
    VisitWords(bytes, request);
    request.embedding_bias = ReadFloats(bytes);
    request.draft_logits = ReadFloats(bytes);
    uint8_t has_table = 0;
    bytes.Field(has_table);
    if (has_table != 0) {
      PromptTable table;
      bytes.Field(table.num_rows);
      bytes.Field(table.hidden_size);
      bytes.Field(table.values);
      request.prompt_table = std::make_shared<const PromptTable>(std::move(table));
    }
    setup.tokens = tokens;
    setup.beam_slots = beam_slots;
    setup.request = &request;
    if (adapter.index >= 0) setup.adapter = &adapter;
  }
};

void WriteInputs(const LateInputs& inputs, ByteWriter& bytes) {
  bytes.Count(inputs.masks.size());
  for (const LateInputs::Mask& mask : inputs.masks) {
    bytes.Field(mask.slot);
    bytes.Field(mask.draft);
    bytes.Field(std::vector<uint32_t>(mask.allowed_bits.begin(), mask.allowed_bits.end()));
  }
}

Status ProvideRead(Ticket ticket, ByteReader& bytes, CudaRank& rank) {
  LateInputs inputs;
  std::vector<std::vector<uint32_t>> bits(bytes.NumThings(2 * sizeof(int32_t)));
  for (std::vector<uint32_t>& mask_bits : bits) {
    LateInputs::Mask& mask = inputs.masks.emplace_back();
    bytes.Field(mask.slot);
    bytes.Field(mask.draft);
    bytes.Field(mask_bits);
    mask.allowed_bits = mask_bits;
  }
  return rank.ProvideLateInputs(ticket, inputs);
}

void WriteAdapter(const AdapterCopy& copy, ByteWriter& bytes) {
  const LoraTensors& whole = *copy.whole;
  bytes.Count(copy.offset);
  bytes.Count(copy.size);
  bytes.Field(copy.index);
  bytes.Field(static_cast<uint8_t>(whole.dtype));
  bytes.Field(whole.width);
  bytes.Count(whole.rows.size());
  bytes.Raw(whole.rows.data(), whole.rows.size() * sizeof(LoraTensors::Row));
  bytes.Count(whole.weights.size());
  bytes.Raw(whole.weights.data(), whole.weights.size());
  bytes.Count(whole.biases.size());
  for (const LoraTensors::Bias& bias : whole.biases) {
    bytes.Field(bias.module);
    bytes.Field(bias.layer);
    bytes.Field(static_cast<uint8_t>(bias.replaces));
    bytes.Field(bias.values);
  }
}

Status WriteRead(ByteReader& bytes, CudaRank& rank) {
  AdapterCopy copy;
  LoraTensors whole;
  uint8_t dtype = 0;
  copy.offset = bytes.Count();
  copy.size = bytes.Count();
  bytes.Field(copy.index);
  bytes.Field(dtype);
  whole.dtype = static_cast<LoraDType>(dtype);
  bytes.Field(whole.width);
  whole.rows.resize(bytes.NumThings(sizeof(LoraTensors::Row)));
  bytes.Raw(whole.rows.data(), whole.rows.size() * sizeof(LoraTensors::Row));
  whole.weights.resize(bytes.NumThings(1));
  bytes.Raw(whole.weights.data(), whole.weights.size());
  whole.biases.resize(bytes.NumThings(sizeof(int)));
  for (LoraTensors::Bias& bias : whole.biases) {
    uint8_t replaces = 0;
    bytes.Field(bias.module);
    bytes.Field(bias.layer);
    bytes.Field(replaces);
    bias.replaces = replaces != 0;
    bytes.Field(bias.values);
  }
  if (!bytes.ok()) return DataLoss("an adapter between ranks is cut short");
  copy.whole = &whole;
  return rank.adapters()->Write(copy);
}

void WriteGuesses(const Guesses& guesses, ByteWriter& bytes) {
  bytes.Count(static_cast<uint64_t>(guesses.num_rows));
  bytes.Raw(guesses.rows, static_cast<size_t>(guesses.num_rows) * sizeof(Guess));
  bytes.Count(static_cast<uint64_t>(guesses.num_ids));
  bytes.Raw(guesses.ids, static_cast<size_t>(guesses.num_ids) * sizeof(int32_t));
}

Status LaunchRead(const StepPlan& plan, ByteReader& bytes, CudaRank& rank) {
  std::vector<Guess> rows(bytes.NumThings(sizeof(Guess)));
  bytes.Raw(rows.data(), rows.size() * sizeof(Guess));
  std::vector<int32_t> ids(bytes.NumThings(sizeof(int32_t)));
  bytes.Raw(ids.data(), ids.size() * sizeof(int32_t));
  if (!bytes.ok()) return DataLoss("a plan between ranks is cut short");
  const Guesses guesses = {.rows = rows.empty() ? nullptr : rows.data(),
                           .ids = ids.data(),
                           .num_rows = static_cast<int32_t>(rows.size()),
                           .num_ids = static_cast<int32_t>(ids.size())};
  return Do({.kind = CallKind::kLaunch, .plan = &plan, .guesses = guesses}, rank);
}

void WriteDrawn(std::span<const DrawnToken> drawn, ByteWriter& bytes) {
  bytes.Count(drawn.size());
  bytes.Raw(drawn.data(), drawn.size_bytes());
}

Status CollectRead(Ticket ticket, ByteReader& bytes, CudaRank& rank) {
  std::vector<DrawnToken> drawn(bytes.NumThings(sizeof(DrawnToken)));
  bytes.Raw(drawn.data(), drawn.size() * sizeof(DrawnToken));
  if (!bytes.ok()) return DataLoss("drawn tokens between ranks are cut short");
  return Do({.kind = CallKind::kCollect, .ticket = ticket, .drawn = drawn}, rank);
}

void WriteMove(const BeamMove& move, ByteWriter& bytes) {
  bytes.Field(std::vector<SlotId>(move.slots.begin(), move.slots.end()));
  bytes.Field(std::vector<int32_t>(move.parents.begin(), move.parents.end()));
  bytes.Field(std::vector<TokenId>(move.tokens.begin(), move.tokens.end()));
  bytes.Field(move.num_kv_tokens);
}

Status FollowRead(ByteReader& bytes, CudaRank& rank) {
  std::vector<SlotId> slots;
  std::vector<int32_t> parents;
  std::vector<TokenId> tokens;
  BeamMove move;
  bytes.Field(slots);
  bytes.Field(parents);
  bytes.Field(tokens);
  bytes.Field(move.num_kv_tokens);
  if (!bytes.ok() || parents.size() != slots.size() || tokens.size() != slots.size())
    return DataLoss("beams between ranks are cut short");
  move.slots = slots;
  move.parents = parents;
  move.tokens = tokens;
  return rank.Follow(move);
}

}  // namespace

bool IsAnswered(CallKind kind) {
  return kind == CallKind::kWarmUp || kind == CallKind::kSetupSlot ||
         kind == CallKind::kAwaitSteps || kind == CallKind::kTakeAdapterMemory ||
         kind == CallKind::kWriteAdapter || kind == CallKind::kJoinStages;
}

Status Do(const RankCall& call, CudaRank& rank) {
  switch (call.kind) {
    case CallKind::kWarmUp:
      return rank.WarmUp();
    case CallKind::kSetupSlot:
      return rank.SetupSlot(*call.setup);
    case CallKind::kReleaseSlot:
      rank.ReleaseSlot(call.slot);
      return Status::Ok();
    case CallKind::kLaunch:
      RETURN_IF_ERROR(rank.HearGuesses(call.guesses));
      return rank.Launch(*call.plan).status();
    case CallKind::kLateInputs:
      return rank.ProvideLateInputs(call.ticket, *call.inputs);
    case CallKind::kCollect:
      RETURN_IF_ERROR(rank.Hear(call.drawn));
      return rank.Collect(call.ticket).status();
    case CallKind::kAwaitSteps:
      return rank.AwaitSteps();
    case CallKind::kTakeAdapterMemory:
      return rank.adapters()->TakeMemory();
    case CallKind::kWriteAdapter:
      return rank.adapters()->Write(*call.adapter);
    case CallKind::kJoinStages:
      return rank.JoinStages();
    case CallKind::kFollowBeams:
      return rank.Follow(*call.move);
    case CallKind::kDraft:
      return rank.Draft(*call.plan);
  }
  return Internal("no call of a rank");
}

std::string_view RankCallWriter::Write(const RankCall& call) {
  message_.clear();
  ByteWriter bytes(&message_);
  bytes.Field(static_cast<uint8_t>(call.kind));
  bytes.Field(call.ticket);
  bytes.Field(call.slot);
  switch (call.kind) {
    case CallKind::kSetupSlot:
      WriteSetup(*call.setup, bytes);
      break;
    case CallKind::kLaunch:
      WritePlan(*call.plan, bytes);
      WriteGuesses(call.guesses, bytes);
      break;
    case CallKind::kDraft:
      WritePlan(*call.plan, bytes);
      break;
    case CallKind::kLateInputs:
      WriteInputs(*call.inputs, bytes);
      break;
    case CallKind::kCollect:
      WriteDrawn(call.drawn, bytes);
      break;
    case CallKind::kWriteAdapter:
      WriteAdapter(*call.adapter, bytes);
      break;
    case CallKind::kFollowBeams:
      WriteMove(*call.move, bytes);
      break;
    default:
      break;
  }
  told_hash_ = HashOf(message_, told_hash_);
  bytes.Field(told_hash_);
  return message_;
}

Status CheckIsSent(const Request& request) {
  const char* const what = request.bad_texts != nullptr ? "bad_words that are texts"
                           : request.guide != nullptr && request.sampling.beam_width > 1
                               ? "a guide beside beams"
                               : nullptr;
  if (what == nullptr) return Status::Ok();
  return Unimplemented(std::string(what) +
                       ": ranks on GPUs that are processes take none; run the ranks as threads of "
                       "one process, on GPUs of one host");
}

Status CalledRank::Do(std::string_view message, CallKind* kind) {
  uint64_t told_hash = 0;
  if (message.size() < sizeof(told_hash)) return DataLoss("a message between ranks is no call");
  const std::string_view body = message.substr(0, message.size() - sizeof(told_hash));
  std::memcpy(&told_hash, message.data() + body.size(), sizeof(told_hash));
  heard_hash_ = HashOf(body, heard_hash_);
  if (heard_hash_ != told_hash)
    return DataLoss("a call between ranks is damaged, or one was lost or came twice");
  ByteReader bytes(body);
  uint8_t number = 0;
  RankCall call;
  bytes.Field(number);
  bytes.Field(call.ticket);
  bytes.Field(call.slot);
  if (!bytes.ok() || number > static_cast<uint8_t>(kLastKind))
    return DataLoss("a message between ranks is no call");
  *kind = call.kind = static_cast<CallKind>(number);
  switch (call.kind) {
    case CallKind::kSetupSlot: {
      const ReadSetup read(bytes);
      if (!bytes.ok()) return DataLoss("a sequence between ranks is cut short");
      return rank_->SetupSlot(read.setup);
    }
    case CallKind::kLaunch:
      ReadPlan(bytes, &plan_);
      return LaunchRead(plan_, bytes, *rank_);
    case CallKind::kDraft:
      ReadPlan(bytes, &plan_);
      if (!bytes.ok()) return DataLoss("a plan between ranks is cut short");
      return rank_->Draft(plan_);
    case CallKind::kLateInputs:
      return ProvideRead(call.ticket, bytes, *rank_);
    case CallKind::kCollect:
      return CollectRead(call.ticket, bytes, *rank_);
    case CallKind::kWriteAdapter:
      return WriteRead(bytes, *rank_);
    case CallKind::kFollowBeams:
      return FollowRead(bytes, *rank_);
    default:
      return executor::Do(call, *rank_);
  }
}

}  // namespace inflight::executor
