// SPDX-License-Identifier: Apache-2.0
#include "executor/rank_leader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "kv_cache/kv_cache.h"
#include "model/adapter_part.h"

namespace inflight::executor {
namespace {

// A call is a head and arrays behind it, each aligned as operator new does.
constexpr size_t kArrayAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

enum Kind : int32_t {
  kForward,
  kLogits,
  kCopyBlocks,
  kCopy,
  kMove,
  kAdapter,
  kForget,
  kEmbed,
  kHeadLogits
};

struct Head {
  uint64_t hash = 0;  // ChainHash of the call
  int32_t kind = 0;
  // Of kForward: the batch's. table_width: blocks of a row that are told, those of the longest.
  int32_t num_rows = 0, num_tokens = 0, num_logits = 0, table_width = 0, has_trees = 0;
  int32_t num_items = 0;  // of the others; of kForward rows with adapters, of kAdapter its rows
  int32_t num_groups =
      1;              // of kForward: KV groups, those behind the first with arrays of their own
  int32_t group = 0;  // of kCopy and kMove
  int32_t dtype = 0;  // of kAdapter and kHeadLogits
  // Of kAdapter; width: of kHeadLogits, too.
  int32_t num_biases = 0;
  uint64_t serial = 0;
  int64_t width = 0;
  int64_t num_bytes = 0;
  int64_t num_bias_values = 0;
};

// Of an adapter; its values follow those of the ones before it.
struct BiasHead {
  int32_t module = 0, layer = 0, replaces = 0;
  int32_t num_values = 0;
};

// Of the call and of all before it, so that one which is lost, damaged or told twice is known by
// the next at the latest; XXH3 as of xxhash.h.
uint64_t ChainHash(std::span<const std::byte> call, uint64_t before) {
  const auto behind = call.subspan(sizeof Head::hash);
  return XXH3_64bits_withSeed(behind.data(), behind.size(), before);
}

size_t Aligned(size_t bytes) {
  return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
}

template <typename Item>
void Append(std::vector<std::byte>* call, const Item* items, size_t count) {
  const size_t at = Aligned(call->size());
  call->resize(at + count * sizeof(Item));
  if (count > 0) std::memcpy(call->data() + at, items, count * sizeof(Item));
}

void Append(std::vector<std::byte>* call, const TensorView& array) {
  Append(call, static_cast<const std::byte*>(array.data), array.num_bytes());
}

}  // namespace

class CallReader {
 public:
  explicit CallReader(std::span<const std::byte> call) : call_(call) {}

  // Null where the call ends before.
  template <typename Item>
  Item* Take(size_t count) {
    const size_t begin = Aligned(used_);
    if (begin > call_.size() || count > (call_.size() - begin) / sizeof(Item)) {
      is_short_ = true;
      return nullptr;
    }
    used_ = begin + count * sizeof(Item);
    // Views are mutable by type alone: nothing writes to a batch.
    return reinterpret_cast<Item*>(const_cast<std::byte*>(call_.data()) + begin);
  }
  TensorView TakeView(DType dtype, Shape shape) {
    auto* const data = Take<std::byte>(BytesOf(dtype, shape.num_elements()));
    return {data, dtype, shape};
  }
  const Head& head() const { return *reinterpret_cast<const Head*>(call_.data()); }
  bool is_short() const { return is_short_; }

 private:
  std::span<const std::byte> call_;
  size_t used_ = sizeof(Head);
  bool is_short_ = false;
};

Status RankLeader::Forward(const model::Batch& batch, std::span<const AdapterRow> adapters) {
  if (!failed_.ok()) return failed_;
  const ops::PagedBatch& paged = batch.paged;
  const auto* const lengths = paged.seq_lens_kv.as<const int32_t>();
  const int longest = *std::max_element(lengths, lengths + paged.num_rows);
  const auto num_logits =
      static_cast<int32_t>(batch.logit_rows.empty() ? 0 : batch.logit_rows.shape[0]);
  const Head head = {.kind = kForward,
                     .num_rows = paged.num_rows,
                     .num_tokens = paged.num_tokens,
                     .num_logits = num_logits,
                     .table_width = kv_cache::BlocksFor(longest, block_size_),
                     .has_trees = paged.tree_masks.empty() ? 0 : 1,
                     .num_items = static_cast<int32_t>(adapters.size()),
                     .num_groups = 1 + static_cast<int32_t>(batch.other_groups.size())};
  call_.clear();
  Append(&call_, &head, 1);
  for (const TensorView* array :
       {&batch.ids, &paged.cu_seqlens_q, &paged.seq_lens_kv, &paged.positions, &paged.slot_mapping})
    Append(&call_, *array);
  if (head.has_trees != 0) Append(&call_, paged.tree_masks);
  if (num_logits > 0) Append(&call_, batch.logit_rows);
  Append(&call_, adapters.data(), adapters.size());
  AppendTables(paged, head.table_width);
  for (const model::GroupInputs& group : batch.other_groups) {
    Append(&call_, group.paged.slot_mapping);
    AppendTables(group.paged, head.table_width);
  }
  return Tell();
}

void RankLeader::AppendTables(const ops::PagedBatch& paged, int num_blocks) {
  const auto* const lengths = paged.seq_lens_kv.as<const int32_t>();
  const size_t tables = Aligned(call_.size());
  const auto width = static_cast<size_t>(num_blocks);
  call_.resize(tables + static_cast<size_t>(paged.num_rows) * width * sizeof(int32_t));
  for (int row = 0; row < paged.num_rows; ++row)
    std::memcpy(
        call_.data() + tables + static_cast<size_t>(row) * width * sizeof(int32_t),
        paged.block_tables.as<const int32_t>() + row * paged.block_tables.shape[1],
        static_cast<size_t>(kv_cache::BlocksFor(lengths[row], block_size_)) * sizeof(int32_t));
}

Status RankLeader::Tell() {
  told_hash_ = ChainHash(call_, told_hash_);
  std::memcpy(call_.data() + offsetof(Head, hash), &told_hash_, sizeof told_hash_);
  return followers_->Tell(call_);
}

Status RankLeader::UseAdapter(const model::Adapter& adapter, const AdapterCache& cache) {
  if (std::ranges::find(told_, adapter.serial) != told_.end()) return failed_;
  std::vector<uint64_t> gone;
  std::erase_if(told_, [&](uint64_t serial) {
    if (cache.Holds(serial)) return false;
    gone.push_back(serial);
    return true;
  });
  TellItems<uint64_t>(kForget, gone);
  if (!failed_.ok()) return failed_;
  const LoraTensors& tensors = *adapter.tensors;
  std::vector<BiasHead> biases;
  std::vector<float> bias_values;
  for (const LoraTensors::Bias& bias : tensors.biases) {
    biases.push_back({.module = bias.module,
                      .layer = bias.layer,
                      .replaces = bias.replaces ? 1 : 0,
                      .num_values = static_cast<int32_t>(bias.values.size())});
    bias_values.insert(bias_values.end(), bias.values.begin(), bias.values.end());
  }
  const Head head = {.kind = kAdapter,
                     .num_items = static_cast<int32_t>(tensors.rows.size()),
                     .dtype = static_cast<int32_t>(tensors.dtype),
                     .num_biases = static_cast<int32_t>(biases.size()),
                     .serial = adapter.serial,
                     .width = tensors.width,
                     .num_bytes = static_cast<int64_t>(tensors.weights.size()),
                     .num_bias_values = static_cast<int64_t>(bias_values.size())};
  call_.clear();
  Append(&call_, &head, 1);
  Append(&call_, tensors.rows.data(), tensors.rows.size());
  Append(&call_, tensors.weights.data(), tensors.weights.size());
  Append(&call_, biases.data(), biases.size());
  Append(&call_, bias_values.data(), bias_values.size());
  failed_ = Tell();
  told_.push_back(adapter.serial);
  return failed_;
}

Status RankLeader::Logits(const TensorView& rows) {
  TellItems(kLogits, std::span(rows.as<const int32_t>(), static_cast<size_t>(rows.shape[0])));
  return failed_;
}

Status RankLeader::Embed(const TensorView& ids) {
  TellItems(kEmbed, std::span(ids.as<const int32_t>(), static_cast<size_t>(ids.shape[0])));
  return failed_;
}

Status RankLeader::HeadLogits(const TensorView& x) {
  if (!failed_.ok()) return failed_;
  const Head head = {.kind = kHeadLogits,
                     .num_items = static_cast<int32_t>(x.shape[0]),
                     .dtype = static_cast<int32_t>(x.dtype),
                     .width = x.shape[1]};
  call_.clear();
  Append(&call_, &head, 1);
  Append(&call_, x);
  return failed_ = Tell();
}

void RankLeader::CopyBlocks(std::span<const scheduler::HostBlockCopy> copies) {
  TellItems(kCopyBlocks, copies);
}

void RankLeader::Copy(int group, std::span<const kv_cache::BlockCopy> copies) {
  TellItems(kCopy, copies, group);
}

void RankLeader::Move(int group, std::span<const TokenMove> moves) {
  TellItems(kMove, moves, group);
}

template <typename Item>
void RankLeader::TellItems(int kind, std::span<const Item> items, int group) {
  if (items.empty() || !failed_.ok()) return;
  const Head head = {.kind = kind, .num_items = static_cast<int32_t>(items.size()), .group = group};
  call_.clear();
  Append(&call_, &head, 1);
  Append(&call_, items.data(), items.size());
  failed_ = Tell();
}

FollowerShape FollowerShapeOf(const MemoryPlan& leaders) {
  std::vector<int64_t> num_blocks;
  for (int g = 0; g < leaders.num_groups(); ++g)
    num_blocks.push_back(leaders.group(g).num_blocks + leaders.num_host_blocks);
  return {.max_num_tokens = leaders.max_num_tokens,
          .max_logits = leaders.max_logits(),
          .block_size = leaders.block_size,
          .num_blocks = std::move(num_blocks),
          .adapter_bytes = leaders.adapter_bytes,
          .windows = leaders.windows,
          .head_inputs = leaders.head_inputs};
}

namespace {

std::vector<KvStorage::GroupSize> GroupSizesOf(const model::ModelConfig& config,
                                               const FollowerShape& shape) {
  const std::vector<int> num_layers = model::KvLayers(config, shape.windows);
  std::vector<KvStorage::GroupSize> sizes;
  for (size_t g = 0; g < shape.num_blocks.size(); ++g)
    sizes.push_back({.num_layers = num_layers[g], .num_blocks = shape.num_blocks[g]});
  return sizes;
}

}  // namespace

// A group behind the first never has more blocks than it (kv_shares.h).
int64_t FollowerBlocks(const model::ModelConfig& config, DeviceKind device,
                       const FollowerShape& shape, uint64_t bytes) {
  const std::vector<KvStorage::GroupSize> sizes = GroupSizesOf(config, shape);
  const auto bytes_of = [&](int64_t num_first) {
    ops::KvCacheView of_group = KvShape(config, shape.block_size, device);
    uint64_t sum = 0;
    for (const KvStorage::GroupSize& size : sizes) {
      of_group.num_layers = size.num_layers;
      sum +=
          KvBytesPerBlock(of_group) * static_cast<uint64_t>(std::min(size.num_blocks, num_first));
    }
    return sum;
  };
  int64_t fit = 0;
  for (int64_t too_many = sizes.front().num_blocks + 1; fit + 1 < too_many;) {
    const int64_t middle = fit + (too_many - fit) / 2;
    (bytes_of(middle) <= bytes ? fit : too_many) = middle;
  }
  return fit;
}

Result<std::unique_ptr<RankFollower>> RankFollower::Create(
    std::shared_ptr<const model::Engine> engine, Device& device, const FollowerShape& shape,
    const ops::OpTable& ops, comm::RankGroups groups) {
  std::unique_ptr<RankFollower> follower(new RankFollower(device));
  const model::ModelConfig config = engine->config;
  follower->engine_ = engine;
  ASSIGN_OR_RETURN(follower->own_biases_, model::OwnBiases::Read(*engine, device));
  ASSIGN_OR_RETURN(
      follower->decoder_,
      model::Decoder::Create(std::move(engine), ops, device, shape.max_num_tokens, shape.max_logits,
                             shape.windows, /*weight_stream=*/nullptr, groups));
  follower->decoder_->Bring(shape.head_inputs);
  ASSIGN_OR_RETURN(follower->kv_,
                   KvStorage::CreateGroups(KvShape(config, shape.block_size, device.kind()),
                                           GroupSizesOf(config, shape), device));
  ASSIGN_OR_RETURN(follower->adapters_share_,
                   device.ledger().Take("adapters", shape.adapter_bytes));
  return follower;
}

Status RankFollower::Do(std::span<const std::byte> call) {
  if (call.size() < sizeof(Head)) return InvalidArgument("a call between ranks has no head");
  CallReader reader(call);
  const Head& head = reader.head();
  heard_hash_ = ChainHash(call, heard_hash_);
  if (head.hash != heard_hash_)
    return DataLoss(
        "a call of rank 0 is damaged, or one before it did not come: the ranks disagree");
  const auto num_items = static_cast<size_t>(std::max(head.num_items, 0));
  const auto items = [&]<typename Item>(std::type_identity<Item>) {
    const Item* const first = reader.Take<Item>(num_items);
    return std::span(first, first == nullptr ? 0 : num_items);
  };
  switch (head.kind) {
    case kForward:
      return Forward(reader);
    case kAdapter:
      return AddAdapter(reader);
    case kForget:
      for (const uint64_t serial : items(std::type_identity<uint64_t>())) adapters_.erase(serial);
      break;
    case kLogits: {
      const TensorView rows = reader.TakeView(DType::kI32, {head.num_items});
      if (!reader.is_short()) return decoder_->Logits(rows, stream_).status();
      break;
    }
    case kEmbed: {
      const TensorView ids = reader.TakeView(DType::kI32, {head.num_items});
      if (!reader.is_short()) return decoder_->Embed(ids, /*y=*/{}, stream_).status();
      break;
    }
    case kHeadLogits: {
      const TensorView x =
          reader.TakeView(static_cast<DType>(head.dtype), {head.num_items, head.width});
      if (!reader.is_short())
        return decoder_->HeadLogits(x, /*rows=*/{}, /*logits=*/{}, stream_).status();
      break;
    }
    case kCopyBlocks:
      kv_.CopyBlocks(items(std::type_identity<scheduler::HostBlockCopy>()), stream_.cpu_pool());
      break;
    case kCopy:
      RETURN_IF_ERROR(CheckGroup(head.group));
      kv_.Copy(head.group, items(std::type_identity<kv_cache::BlockCopy>()), stream_.cpu_pool());
      break;
    case kMove:
      RETURN_IF_ERROR(CheckGroup(head.group));
      kv_.Move(head.group, items(std::type_identity<TokenMove>()), stream_.cpu_pool());
      break;
    default:
      return InvalidArgument("a call between ranks is of no kind that is known");
  }
  return reader.is_short() ? InvalidArgument("a call between ranks is too short") : Status::Ok();
}

Status RankFollower::CheckGroup(int group) const {
  if (group >= 0 && group < kv_.num_groups()) return Status::Ok();
  return InvalidArgument(fmt::format("a call between ranks is of KV group {}, this rank has {}",
                                     group, kv_.num_groups()));
}

Status RankFollower::Forward(CallReader& reader) {
  const Head& head = reader.head();
  const int rows = head.num_rows;
  const int tokens = head.num_tokens;
  model::Batch batch;
  batch.ids = reader.TakeView(DType::kI32, {tokens});
  ops::PagedBatch& paged = batch.paged;
  paged.num_rows = rows;
  paged.num_tokens = tokens;
  paged.cu_seqlens_q = reader.TakeView(DType::kI32, {rows + 1});
  paged.seq_lens_kv = reader.TakeView(DType::kI32, {rows});
  paged.positions = reader.TakeView(DType::kI32, {tokens});
  paged.slot_mapping = reader.TakeView(DType::kI64, {tokens});
  if (head.has_trees != 0) paged.tree_masks = reader.TakeView(DType::kI64, {tokens});
  if (head.num_logits > 0) batch.logit_rows = reader.TakeView(DType::kI32, {head.num_logits});
  const auto num_adapters = static_cast<size_t>(std::max(head.num_items, 0));
  const auto* const adapters = reader.Take<RankLeader::AdapterRow>(num_adapters);
  paged.block_tables = reader.TakeView(DType::kI32, {rows, head.table_width});
  if (head.num_groups != kv_.num_groups())
    return InvalidArgument(fmt::format("a call between ranks is of {} KV groups, this rank has {}",
                                       head.num_groups, kv_.num_groups()));
  for (int g = 1; g < head.num_groups; ++g) {
    model::GroupInputs& group = batch.other_groups.emplace_back();
    group.paged = paged;
    group.paged.slot_mapping = reader.TakeView(DType::kI64, {tokens});
    group.paged.block_tables = reader.TakeView(DType::kI32, {rows, head.table_width});
    group.kv = kv_.view(g);
  }
  if (reader.is_short()) return InvalidArgument("a call between ranks is too short");
  step_adapters_.Clear(tokens);
  for (size_t i = 0; i < num_adapters; ++i) {
    const auto found = adapters_.find(adapters[i].serial);
    if (found == adapters_.end()) return Internal("a row has an adapter that this rank has not");
    step_adapters_.Add(&found->second.adapter.table, adapters[i].first_token,
                       adapters[i].num_tokens);
  }
  step_adapters_.Group();
  if (num_adapters > 0) batch.adapters = &step_adapters_;
  return decoder_->Forward(batch, kv_.view(), stream_).status();
}

Status RankFollower::AddAdapter(CallReader& reader) {
  const Head& head = reader.head();
  const auto num_rows = static_cast<size_t>(std::max(head.num_items, 0));
  const auto num_bytes = static_cast<size_t>(std::max<int64_t>(head.num_bytes, 0));
  const auto* const rows = reader.Take<LoraTensors::Row>(num_rows);
  const auto* const weights = reader.Take<std::byte>(num_bytes);
  const auto num_biases = static_cast<size_t>(std::max(head.num_biases, 0));
  const auto num_values = static_cast<size_t>(std::max<int64_t>(head.num_bias_values, 0));
  const auto* const biases = reader.Take<BiasHead>(num_biases);
  const auto* const values = reader.Take<float>(num_values);
  if (reader.is_short()) return InvalidArgument("a call between ranks is too short");
  LoraTensors whole = {.rows = {rows, rows + num_rows},
                       .dtype = static_cast<LoraDType>(head.dtype),
                       .width = head.width,
                       .weights = {weights, weights + num_bytes}};
  size_t first = 0;
  for (const BiasHead& bias : std::span(biases, num_biases)) {
    const auto count = static_cast<size_t>(std::max(bias.num_values, 0));
    if (count > num_values - first)
      return InvalidArgument("a call between ranks has fewer numbers than it says");
    whole.biases.push_back({.module = bias.module,
                            .layer = bias.layer,
                            .replaces = bias.replaces != 0,
                            .values = {values + first, values + first + count}});
    first += count;
  }
  const LoraTensors part = model::TakePart(engine_->config, whole);
  ASSIGN_OR_RETURN(const uint64_t size,
                   model::AdapterBytes(engine_->config, engine_->limits.lora, part));
  OwnAdapter own;
  own.lines.resize(size / sizeof(Line));
  auto* const target = reinterpret_cast<std::byte*>(own.lines.data());
  ASSIGN_OR_RETURN(own.adapter, model::MakeAdapter(*engine_, own_biases_, part, target, target));
  adapters_[head.serial] = std::move(own);
  return Status::Ok();
}

}  // namespace inflight::executor
