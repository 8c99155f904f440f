// SPDX-License-Identifier: Apache-2.0
#include "executor/adapter_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "base/status_macros.h"
#include "comm/rendezvous.h"
#include "model/adapter_part.h"

namespace inflight::executor {
namespace {

uint64_t PartsBytes(const model::ModelConfig& config) {
  return uint64_t{AdapterCache::kMaxAdapters} * static_cast<uint64_t>(config.num_layers) *
         ops::kNumLoraSites * ops::kMaxLoraParts * sizeof(ops::LoraDevicePart);
}

// Rows of sums: for every token of a large step, and of small ones for parts of each token's sums,
// which fill the GPU sooner.
uint64_t NumSums(int max_num_tokens) {
  constexpr uint64_t kParts = 16;
  constexpr uint64_t kEnough = 8192;
  const auto tokens = static_cast<uint64_t>(max_num_tokens);
  return std::min(kParts * tokens, std::max(kEnough, tokens));
}

// Room for the ranks of all parts of a site, and of the two sites that are computed together.
uint64_t SumsStride(const model::LoraLimits& limits) {
  return static_cast<uint64_t>(limits.max_rank) * ops::kMaxLoraParts;
}

}  // namespace

AdapterCache::AdapterCache(std::shared_ptr<const model::Engine> engine, Device& device,
                           const AdapterCacheOptions& options)
    : engine_(std::move(engine)),
      device_(device),
      max_bytes_(options.num_bytes),
      is_cuda_(device.kind() == DeviceKind::kCuda),
      max_num_tokens_(options.max_num_tokens),
      free_(options.num_bytes),
      brought_(options.host_bytes) {
  for (int i = kMaxAdapters; i-- > 0;) free_indices_.push_back(i);
}

Result<std::unique_ptr<AdapterCache>> AdapterCache::Create(
    std::shared_ptr<const model::Engine> engine, Device& device,
    const AdapterCacheOptions& options) {
  std::unique_ptr<AdapterCache> cache(new AdapterCache(std::move(engine), device, options));
  ASSIGN_OR_RETURN(cache->own_biases_, model::OwnBiases::Read(*cache->engine_, device));
  if (options.is_booked) RETURN_IF_ERROR(cache->TakeOwnMemory());
  return cache;
}

uint64_t AdapterCache::TableBytes(const model::ModelConfig& config, const model::LoraLimits& limits,
                                  int max_num_tokens) {
  return PartsBytes(config) + NumSums(max_num_tokens) * SumsStride(limits) * sizeof(float);
}

ops::LoraDevice AdapterCache::tables() const {
  const std::lock_guard lock(mutex_);
  if (tables_.size() == 0) return {.num_layers = engine_->config.num_layers};
  return {.parts = reinterpret_cast<const ops::LoraDevicePart*>(tables_.data()),
          .num_layers = engine_->config.num_layers,
          .sums = reinterpret_cast<float*>(tables_.data() + PartsBytes(engine_->config)),
          .num_sums = static_cast<int64_t>(NumSums(max_num_tokens_)),
          .sums_stride = static_cast<int64_t>(SumsStride(engine_->limits.lora))};
}

Status AdapterCache::TakeMemory() {
  const std::lock_guard lock(mutex_);
  return TakeOwnMemory();
}

Status AdapterCache::TakeOfAll() {
  if (memory_.size() > 0) return Status::Ok();
  if (!when_idle_) return TakeOwnMemory();
  return when_idle_([this]() -> Status {
    RETURN_IF_ERROR(TakeOwnMemory());
    return others_->TakeAdapterMemory();
  });
}

Status AdapterCache::TakeOwnMemory() {
  if (memory_.size() > 0) return Status::Ok();
  if (is_cuda_) {
    ASSIGN_OR_RETURN(tables_, Buffer::Allocate(device_, "adapters' tables",
                                               TableBytes(engine_->config, engine_->limits.lora,
                                                          max_num_tokens_)));
    ASSIGN_OR_RETURN(lane_, UploadLane::Create(device_));
  }
  ASSIGN_OR_RETURN(memory_, Buffer::Allocate(device_, "adapters", max_bytes_));
  return Status::Ok();
}

Result<std::shared_ptr<const model::Adapter>> AdapterCache::Get(const LoraUse& use,
                                                                uint64_t client_id) {
  const Key key = {use.is_own, use.is_own ? 0 : client_id, use.id};
  {
    const std::lock_guard lock(mutex_);
    if (auto found = Find(key)) {
      if (use.tensors != nullptr && !use.is_own)
        logging::Verbose("weights of an adapter that is cached are ignored", {{"task_id", use.id}});
      return found;
    }
  }
  std::shared_ptr<const LoraTensors> brought = use.tensors;
  if (!use.is_own) {
    const std::lock_guard lock(mutex_);
    if (brought == nullptr)
      brought = brought_.Find(key);
    else
      brought_.Keep(key, brought);
  }
  if (brought != nullptr) return Make(brought, key);
  if (!use.read)
    return NotFound(fmt::format("LoRA task {} not found in cache. Please send LoRA weights with "
                                "request",
                                use.id))
        .WithField("lora_task_id");
  ASSIGN_OR_RETURN(const std::shared_ptr<const LoraTensors> tensors, use.read());
  return Make(tensors, key);
}

// The numbers are written without the lock: a place belongs to who took it.
Result<std::shared_ptr<const model::Adapter>> AdapterCache::Make(
    const std::shared_ptr<const LoraTensors>& whole, const Key& key) {
  const bool is_part = !engine_->config.part.is_whole();
  if (is_part) RETURN_IF_ERROR(CheckWhole(*whole));
  LoraTensors part;
  if (is_part) part = model::TakePart(engine_->config, *whole);
  const LoraTensors& tensors = is_part ? part : *whole;
  ASSIGN_OR_RETURN(const uint64_t size, SizeOf(*whole, tensors));
  Place place;
  {
    const std::lock_guard lock(mutex_);
    ASSIGN_OR_RETURN(place, TakePlace(size, key.id));
  }
  Result<model::Adapter> made = Write(tensors, place, size);
  if (made.ok() && others_ != nullptr) {
    const Status written = others_->WriteAdapter(
        {.whole = whole.get(), .offset = place.offset, .size = size, .index = place.index});
    if (!written.ok()) made = written;
  }
  if (made.ok() && is_part && !is_cuda_) made->tensors = whole;
  const std::lock_guard lock(mutex_);
  auto found = made.ok() ? Find(key) : nullptr;  // another request brought it meanwhile
  if (!made.ok() || found != nullptr) {
    GivePlace(place, size);
    if (found != nullptr) return found;
    return made.status();
  }
  entries_.push_front({.key = key,
                       .adapter = std::make_shared<const model::Adapter>(*std::move(made)),
                       .size = size});
  by_key_[key] = entries_.begin();
  return entries_.front().adapter;
}

void AdapterCache::Lead(AdapterFollowers* others, WhenIdle when_idle) {
  others_ = others;
  when_idle_ = std::move(when_idle);
}

Status AdapterCache::Write(const AdapterCopy& copy) {
  const LoraTensors part = model::TakePart(engine_->config, *copy.whole);
  ASSIGN_OR_RETURN(const uint64_t size,
                   model::AdapterBytes(engine_->config, engine_->limits.lora, part));
  const bool fits = size <= copy.size && copy.offset <= max_bytes_ &&
                    copy.size <= max_bytes_ - copy.offset && copy.index >= 0 &&
                    copy.index < kMaxAdapters;
  if (!fits) return Internal("an adapter has a place that this rank has not");
  return Write(part, {.offset = copy.offset, .index = copy.index}, size).status();
}

// All of it is checked, so that no other rank finds a fault.
Status AdapterCache::CheckWhole(const LoraTensors& whole) const {
  // Of a message between ranks on CPUs, of which a little is no weights.
  constexpr size_t kMostBytes = comm::Group::kMaxMessageBytes - (size_t{1} << 20);
  size_t num_bytes = whole.weights.size();
  for (const LoraTensors::Bias& bias : whole.biases)
    num_bytes += bias.values.size() * sizeof(float);
  if (num_bytes > kMostBytes && !is_cuda_)
    return InvalidArgument("lora_weights",
                           fmt::format("got {} bytes, a model that is split over ranks takes at "
                                       "most {}",
                                       num_bytes, kMostBytes));
  const model::ModelConfig config = model::WholeConfig(engine_->config);
  RETURN_IF_ERROR(model::AdapterBytes(config, engine_->limits.lora, whole).status());
  return model::CheckNumbers(config, whole);
}

// Ranks on GPUs that share all layers have parts of one size. Others have no more than the whole,
// whichever layers are theirs.
Result<uint64_t> AdapterCache::SizeOf(const LoraTensors& whole, const LoraTensors& part) const {
  const model::LoraLimits& limits = engine_->limits.lora;
  const model::RankPart& rank = engine_->config.part;
  if (!rank.is_whole() && (!is_cuda_ || rank.pp_size > 1))
    return model::AdapterBytes(model::WholeConfig(engine_->config), limits, whole);
  return model::AdapterBytes(engine_->config, limits, part);
}

Result<model::Adapter> AdapterCache::Write(const LoraTensors& tensors, const Place& place,
                                           size_t size) {
  std::byte* const target = memory_.data() + place.offset;
  std::vector<std::byte> host(is_cuda_ ? size : 0);
  ASSIGN_OR_RETURN(model::Adapter adapter,
                   model::MakeAdapter(*engine_, own_biases_, tensors,
                                      is_cuda_ ? host.data() : target, /*device=*/target));
  adapter.offset = place.offset;
  adapter.index = place.index;
  if (!is_cuda_) return adapter;
  const std::lock_guard lock(upload_mutex_);
  RETURN_IF_ERROR(Upload(host, target));
  RETURN_IF_ERROR(UploadParts(adapter));
  RETURN_IF_ERROR(lane_->Wait());
  return adapter;
}

Status AdapterCache::Upload(std::span<const std::byte> from, std::byte* to) {
  while (!from.empty()) {
    const size_t size = std::min(from.size(), UploadLane::kPieceBytes);
    ASSIGN_OR_RETURN(std::byte* const piece, lane_->NextPiece());
    std::memcpy(piece, from.data(), size);
    RETURN_IF_ERROR(lane_->Send(to, size));
    from = from.subspan(size);
    to += size;
  }
  return Status::Ok();
}

Status AdapterCache::UploadParts(const model::Adapter& adapter) {
  const int num_layers = engine_->config.num_layers;
  std::vector<ops::LoraDevicePart> parts;
  for (int layer = 0; layer < num_layers; ++layer)
    for (int site = 0; site < ops::kNumLoraSites; ++site) {
      const size_t end = parts.size() + ops::kMaxLoraParts;
      for (const ops::LoraPart& part : adapter.table.Of(layer, static_cast<ops::LoraSite>(site)))
        parts.push_back({.a = part.a,
                         .b = part.rank == 0 ? part.bias : part.b,
                         .rank = part.rank,
                         .first_feature = static_cast<int32_t>(part.first_feature),
                         .num_features = static_cast<int32_t>(part.num_features)});
      parts.resize(end);
    }
  const auto bytes = std::as_bytes(std::span(parts));
  return Upload(bytes, tables_.data() + static_cast<size_t>(adapter.index) * bytes.size());
}

std::shared_ptr<const model::Adapter> AdapterCache::Find(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->adapter;
}

Result<AdapterCache::Place> AdapterCache::TakePlace(size_t size, uint64_t id) {
  if (size > max_bytes_)
    return InvalidArgument(
        "lora_weights",
        fmt::format("the adapter takes {} bytes, the cache of adapters has {} (load the model with "
                    "a larger lora_cache_host_memory_bytes or lora_cache_gpu_memory_fraction)",
                    size, max_bytes_));
  if (const Status taken = TakeOfAll(); !taken.ok()) return taken.WithPrefix("lora_weights");
  std::optional<size_t> offset;
  do {
    if (!free_indices_.empty() || !is_cuda_) offset = free_.Take(size);
  } while (!offset && GiveUpOne());
  if (!offset)
    return ResourceExhausted(fmt::format(
        "PEFT Cache is full. Could not store taskId={}: its {} bytes have no room beside adapters "
        "of requests that run or wait (try again later)",
        id, size));
  used_bytes_ += size;
  Place place = {.offset = *offset};
  if (is_cuda_) {
    place.index = free_indices_.back();
    free_indices_.pop_back();
  }
  return place;
}

void AdapterCache::GivePlace(const Place& place, size_t size) {
  free_.Give(place.offset, size);
  used_bytes_ -= size;
  if (is_cuda_) free_indices_.push_back(place.index);
}

// The last one that no request has: only this list holds it, and only this class hands it out.
bool AdapterCache::GiveUpOne() {
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(),
                                 [](const Entry& entry) { return entry.adapter.use_count() == 1; });
  if (last == entries_.rend()) return false;
  const auto entry = std::prev(last.base());
  GivePlace({entry->adapter->offset, entry->adapter->index}, entry->size);
  by_key_.erase(entry->key);
  entries_.erase(entry);
  return true;
}

AdapterStats AdapterCache::stats() const {
  const std::lock_guard lock(mutex_);
  AdapterStats stats = {.own_ids = {}, .max_adapters = kMaxAdapters};
  for (const Entry& entry : entries_)
    if (entry.key.is_own) stats.own_ids.push_back(entry.key.id);
  if (used_bytes_ > 0) {
    const uint64_t mean_bytes =
        std::max<uint64_t>(1, used_bytes_ / std::max<size_t>(1, entries_.size()));
    stats.max_adapters =
        static_cast<int>(std::min<uint64_t>(kMaxAdapters, max_bytes_ / mean_bytes));
  }
  return stats;
}

bool AdapterCache::Holds(uint64_t serial) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      entries_, [serial](const Entry& entry) { return entry.adapter->serial == serial; });
}

int AdapterCache::num_adapters() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(entries_.size());
}

uint64_t AdapterCache::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace inflight::executor
