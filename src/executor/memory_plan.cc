// SPDX-License-Identifier: Apache-2.0
#include "executor/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "decoding/cuda/device_sampler.h"
#include "decoding/sampler.h"
#include "decoding/suffix_drafts.h"
#include "executor/adapter_cache.h"
#include "executor/cuda_backend.h"
#include "executor/eagle_drafts.h"
#include "executor/kv_storage.h"
#include "executor/medusa_drafts.h"
#include "executor/step_inputs.h"
#include "model/decoder.h"
#include "scheduler/scheduler.h"

namespace inflight::executor {
namespace {

constexpr uint64_t kGraphBytes = 300'000'000;
constexpr int kEagleDepth = 6;                     // of its trees
constexpr int64_t kManyBlocks = int64_t{1} << 30;  // ids have 31 bits
constexpr int kSpareSlots = 8;  // CUDA: of sequences that ended while their next step was computed

std::string Bytes(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30)
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

// `value` if set and within [1, bound], the bound if unset.
Result<int> Lowered(std::string_view name, std::optional<int> value, int bound) {
  if (!value) return bound;
  if (*value < 1 || *value > bound)
    return InvalidArgument(
        name, fmt::format("got {}, the engine allows 1 to {} (rebuild with a larger {})", *value,
                          bound, name));
  return *value;
}

Status CheckOptions(const ExecutorOptions& options) {
  const int block = options.block_size;
  if (block != 16 && block != 32 && block != 64 && block != 128)
    return InvalidArgument("block_size",
                           fmt::format("got {}, allowed are 16, 32, 64 and 128 tokens", block));
  const double fraction = options.kv_cache_free_memory_fraction;
  if (fraction >= 1.0)  // in upstream's words
    return InvalidArgument("kv_cache_free_memory_fraction",
                           fmt::format("Invalid freeMemFraction, freeMemFraction ({:f}) "
                                       "must be smaller than 1.0f",
                                       fraction));
  if (!(fraction > 0.0))
    return InvalidArgument("kv_cache_free_memory_fraction",
                           fmt::format("got {}, must be above 0", fraction));
  if (options.max_kv_tokens && *options.max_kv_tokens < 1)
    return InvalidArgument("max_kv_tokens",
                           fmt::format("got {}, must be at least 1", *options.max_kv_tokens));
  return Status::Ok();
}

// Windows, the model's own or asked for, that are shorter than a sequence of `max_seq_len` tokens.
Result<model::AttentionWindows> WindowsOf(const model::ModelConfig& config,
                                          const ExecutorOptions& options, int max_seq_len) {
  for (const int window : options.attention_windows)
    if (window < 0)
      return InvalidArgument("max_attention_window_size",
                             fmt::format("got {}, must be at least 1 (0 is all)", window));
  model::AttentionWindows out = model::LayerWindows(
      config, {.windows = options.attention_windows, .num_sinks = options.sink_tokens});
  bool hides = false;
  for (int& window : out.windows) {
    if (window >= max_seq_len) window = 0;
    hides |= window > 0;
  }
  if (out.num_sinks < 0)
    return InvalidArgument("sink_token_length",
                           fmt::format("got {}, must be at least 0", out.num_sinks));
  if (!hides) return model::AttentionWindows{};
  for (const int window : out.windows) {
    if (window > 0 && out.num_sinks >= window)
      return InvalidArgument(
          "sink_token_length",
          fmt::format("got {}, must be below {}, which is {}", out.num_sinks,
                      config.sliding_window == 0 ? "max_attention_window_size"
                                                 : "the window of every layer that has one",
                      window));
  }
  return out;
}

// Of the host pool.
Result<int64_t> HostBlocks(const ExecutorOptions& options, uint64_t bytes_per_block) {
  const uint64_t bytes = options.kv_cache_host_bytes;
  if (bytes == 0 || !options.enable_prefix_reuse) return 0;
  const uint64_t num_blocks = bytes / bytes_per_block;
  if (num_blocks < 1 || num_blocks > kManyBlocks)
    return InvalidArgument("kv_cache_host_memory_bytes",
                           fmt::format("got {}, a block takes {}: needed are 1 to {} blocks (0 for "
                                       "none)",
                                       bytes, bytes_per_block, kManyBlocks));
  return static_cast<int64_t>(num_blocks);
}

// Who proposes drafts: what `auto` stands for, and what the model and the device allow.
Result<DraftSource> SourceOf(const model::ModelConfig& config, DeviceKind device,
                             const ExecutorOptions& options, bool has_eagle) {
  const bool has_heads = config.num_medusa_heads > 0;
  has_eagle |= device == DeviceKind::kCuda && !config.part.is_last_stage() &&
               options.drafts == DraftSource::kEagle;  // that of the last stage
  DraftSource source = options.drafts;
  if (source == DraftSource::kAuto) {
    const bool wants_drafts = options.max_draft_len.value_or(1) > 0;
    source = !wants_drafts ? DraftSource::kNone
             : has_eagle   ? DraftSource::kEagle
             : has_heads   ? DraftSource::kMedusa
                           : DraftSource::kNone;
  }
  if (source == DraftSource::kEagle && !has_eagle)
    return InvalidArgument("speculation",
                           "got eagle, there is no head of EAGLE; leave it out, or give the head's "
                           "directory as --draft-model");
  if (source == DraftSource::kMedusa && !has_heads)
    return InvalidArgument("speculation",
                           "got medusa, the model has no Medusa heads; leave it out, or convert "
                           "the model with --medusa-model-dir");
  if (!options.medusa_choices.empty() && source != DraftSource::kMedusa)
    return InvalidArgument("medusa_choices",
                           has_heads ? "drafts do not come from the model's Medusa heads; leave "
                                       "one of both out"
                                     : "the model has no Medusa heads; leave it out, or convert "
                                       "the model with --medusa-model-dir");
  if (source == DraftSource::kMedusa && device == DeviceKind::kCuda && config.dtype == DType::kF32)
    return Unimplemented("speculation",
                         "GPUs compute Medusa's heads in bfloat16 and float16; use --dtype "
                         "bfloat16, --speculation none, ngram or suffix, which leave the heads "
                         "out, or --device cpu");
  return source;
}

// Nodes that a tree has room for.
int RoomOf(int engine_draft_len, const ExecutorOptions& options) {
  return std::min(
      options.max_draft_len.value_or(engine_draft_len > 0 ? engine_draft_len : INT32_MAX),
      options.block_size - 1);
}

// Of Medusa's heads. The default has as many nodes as there is room for.
Result<decoding::DraftTree> TreeOf(const model::ModelConfig& config, int engine_draft_len,
                                   const ExecutorOptions& options) {
  const int room = RoomOf(engine_draft_len, options);
  if (options.medusa_choices.empty()) {
    decoding::DraftTree tree = decoding::DraftTree::Default(config.num_medusa_heads);
    tree.Cut(std::clamp(room, 1, tree.size()));
    return tree;
  }
  ASSIGN_OR_RETURN(decoding::DraftTree tree,
                   decoding::DraftTree::Make(options.medusa_choices, config.num_medusa_heads));
  if (tree.size() > room)
    return InvalidArgument(
        "medusa_choices",
        fmt::format("got {} nodes, at most {} fit max_draft_len and the KV cache's blocks of {} "
                    "tokens; leave nodes out, or raise the smaller of both",
                    tree.size(), room, options.block_size));
  if (config.vocab_size < decoding::DraftTree::kMaxChoices)
    for (int i = 0; i < tree.size(); ++i)
      if (tree[i].choice >= config.vocab_size)
        return InvalidArgument("medusa_choices",
                               fmt::format("got choice {}, the vocabulary has {} tokens",
                                           tree[i].choice, config.vocab_size));
  return tree;
}

// Draft tokens of a row (docs/reference/speculation.md).
Result<int> DraftLength(const model::EngineLimits& limits, const MemoryPlan& plan,
                        const ExecutorOptions& options) {
  const int usual = plan.draft_tree ? plan.draft_tree->size() : 4;
  const bool makes_drafts = plan.drafts != DraftSource::kNone;
  const int of_engine = limits.max_draft_len > 0 || !makes_drafts ? limits.max_draft_len : usual;
  const int length = options.max_draft_len.value_or(of_engine);
  if (length >= (makes_drafts ? 1 : 0) && length < options.block_size) return length;
  return InvalidArgument("max_draft_len",
                         fmt::format("got {}, must be in [{}, {}), below the block size", length,
                                     makes_drafts ? 1 : 0, options.block_size));
}

// Who proposes drafts, of what tree, and how many.
Status PlanDrafts(const model::ModelConfig& config, const model::EngineLimits& limits,
                  const ExecutorOptions& options, const model::EagleConfig* eagle,
                  MemoryPlan* plan) {
  ASSIGN_OR_RETURN(plan->drafts, SourceOf(config, plan->device, options, eagle != nullptr));
  if (plan->drafts == DraftSource::kMedusa) {
    ASSIGN_OR_RETURN(plan->draft_tree, TreeOf(config, limits.max_draft_len, options));
  }
  if (plan->drafts == DraftSource::kEagle) {
    plan->draft_tree = decoding::DraftTree::Likely(kEagleDepth);
    plan->draft_tree->Cut(
        std::clamp(RoomOf(limits.max_draft_len, options), 1, plan->draft_tree->size()));
  }
  const bool has_eagle = plan->drafts == DraftSource::kEagle && eagle != nullptr;
  plan->head_inputs.states =
      plan->drafts == DraftSource::kMedusa || (has_eagle && eagle->version == 1);
  if (has_eagle) plan->head_inputs.layers = eagle->target_layers;
  ASSIGN_OR_RETURN(plan->max_draft_len, DraftLength(limits, *plan, options));
  return Status::Ok();
}

// What proposes drafts works in; a draft model's is no part of the plan.
uint64_t DraftBytes(const model::ModelConfig& config, const MemoryPlan& plan,
                    const model::EagleConfig* eagle) {
  if (plan.device == DeviceKind::kCuda && !config.part.is_last_stage()) return 0;  // of trees
  switch (plan.drafts) {
    case DraftSource::kMedusa:
      if (plan.device == DeviceKind::kCuda) return CudaMedusaBytes(config, plan);
      return MedusaDrafts::Bytes(config, plan.max_batch_size);
    case DraftSource::kEagle:
      if (plan.device == DeviceKind::kCuda) return CudaEagleBytes(*eagle, plan);
      return EagleDrafts::Bytes(*eagle, config, plan.max_seq_len, plan.max_num_tokens,
                                plan.max_batch_size);
    case DraftSource::kSuffix:
      if (plan.device == DeviceKind::kCuda) return 0;  // the host's
      return decoding::SuffixDrafts::Bytes(MemoryPlan::kKeptOutputTokens);
    default:
      return 0;
  }
}

// CPU, of the leader of several stages: logits of the steps in flight.
uint64_t StageBytes(const model::ModelConfig& config, const MemoryPlan& plan, int max_beam_width) {
  const bool is_leader = config.part.tp_rank == 0 && config.part.is_first_stage();
  if (plan.device == DeviceKind::kCuda || plan.num_stages == 1 || !is_leader) return 0;
  return static_cast<uint64_t>(plan.num_stages) *
         BytesOf(DType::kF32, int64_t{plan.max_stage_logits(max_beam_width)} * config.vocab_size);
}

// Steps that are launched and not yet collected, at most.
int DepthOf(const MemoryPlan& plan) {
  return plan.device == DeviceKind::kCuda ? std::max(kCudaDepth, plan.num_stages) : plan.num_stages;
}

// Blocks that a sequence of full length holds at most at once, of a group with that window.
int FullLengthBlocks(const MemoryPlan& plan, const ExecutorOptions& options, int window) {
  if (window == 0) return plan.max_blocks_per_seq();
  const std::vector<int>& groups = plan.windows.groups;
  const bool keeps_all = plan.window() == 0;
  const int max_chunk = scheduler::Scheduler::MaxChunkTokens(
      {.max_num_tokens = plan.max_num_tokens,
       .enable_chunked_prefill = options.enable_chunked_prefill},
      {.widest = keeps_all ? groups[1] : plan.window(), .keeps_all = keeps_all}, plan.block_size);
  const int64_t num_blocks = kv_cache::KvCache::WindowBlocks(
      {.block_size = plan.block_size, .window = window, .num_sinks = plan.windows.num_sinks},
      DepthOf(plan) * max_chunk);
  return static_cast<int>(std::min<int64_t>(num_blocks, plan.max_blocks_per_seq()));
}

// One group where no window makes a sequence of full length hold fewer blocks.
void PlanGroups(const model::ModelConfig& config, const ExecutorOptions& options,
                const Beside& beside, MemoryPlan* plan) {
  std::vector<int>& groups = plan->windows.groups;
  groups = KvGroupsOf(plan->windows, model::LayersOfModel(config));
  const auto length_of = [&](int window) { return FullLengthBlocks(*plan, options, window); };
  plan->full_length_blocks = length_of(plan->window());
  const auto gains_nothing = [&](int window) {
    return window != plan->window() && length_of(window) >= plan->full_length_blocks;
  };
  if (std::ranges::all_of(groups, [&](int w) { return w == plan->window() || gains_nothing(w); }))
    groups.clear();
  ops::KvCacheView shape = KvShape(config, options.block_size, plan->device);
  const std::vector<int> num_layers = model::KvLayers(config, plan->windows);
  for (size_t g = 0; g < num_layers.size(); ++g) {
    shape.num_layers = num_layers[g];
    const uint64_t bytes = KvBytesPerBlock(shape);
    if (g == 0) plan->kv_bytes_per_block = bytes + beside.draft_kv_bytes_per_block;
    if (g > 0)
      plan->other_groups.push_back({.window = groups[g],
                                    .bytes_per_block = bytes,
                                    .full_length_blocks = length_of(groups[g])});
  }
  if (plan->drafts == DraftSource::kEagle && beside.eagle != nullptr)
    plan->kv_bytes_per_block +=
        KvBytesPerBlock(KvShape(beside.eagle->layer, options.block_size, plan->device));
}

KvShares SharesOf(const MemoryPlan& plan) {
  return {
      .first = plan.group(0), .others = plan.other_groups, .max_batch_size = plan.max_batch_size};
}

// KV tokens that the fraction of `left` bytes holds (docs/reference/scheduling.md).
int64_t TokensIn(uint64_t left, double fraction, const MemoryPlan& plan) {
  const double share = fraction * static_cast<double>(left);
  if (!plan.other_groups.empty())
    return SharesOf(plan).BlocksIn(static_cast<uint64_t>(share), kManyBlocks) * plan.block_size;
  const uint64_t bytes_per_token = plan.kv_bytes_per_block / static_cast<uint64_t>(plan.block_size);
  return static_cast<int64_t>(share) / static_cast<int64_t>(bytes_per_token);
}

// Blocks of the groups, at most so many tokens of the first.
void PlanBlocks(const ExecutorOptions& options, int64_t max_tokens, uint64_t left,
                MemoryPlan* plan) {
  plan->num_blocks = std::min({kv_cache::BlocksFor(max_tokens, plan->block_size),
                               SharesOf(*plan).BlocksIn(left, kManyBlocks),
                               int64_t{plan->max_batch_size} * plan->max_blocks_per_seq()});
  if (plan->num_blocks < 1) return;
  if (plan->num_blocks < plan->full_length_blocks) {
    plan->engine_max_seq_len = plan->max_seq_len;
    plan->max_seq_len = static_cast<int>(plan->kv_tokens());
    plan->max_input_len = std::min(plan->max_input_len, plan->max_seq_len - 1);
  }
  for (KvGroupPlan& group : plan->other_groups)
    group.num_blocks =
        BlocksBehind(group, plan->num_blocks, plan->full_length_blocks, plan->max_batch_size);
  if (plan->engine_max_seq_len == 0) return;
  plan->full_length_blocks = FullLengthBlocks(*plan, options, plan->window());
  for (KvGroupPlan& group : plan->other_groups)
    group.full_length_blocks = FullLengthBlocks(*plan, options, group.window);
}

// What belongs to slots and depends on their length.
void PlanSlots(const model::ModelConfig& config, MemoryPlan* plan) {
  if (plan->device == DeviceKind::kCuda) {
    plan->step_input_bytes = CudaStepBytes(*plan);
    const bool drafts = config.part.is_first_stage() && plan->drafts == DraftSource::kModel;
    if (config.part.is_last_stage() || drafts)  // others draw nothing
      plan->sampler_bytes = decoding::DeviceSampler::Bytes(plan->max_slots, config.vocab_size);
  } else {
    plan->step_input_bytes = StepInputs::Bytes(*plan, plan->max_slots);
    plan->sampler_bytes =
        decoding::Sampler::Bytes(plan->max_slots, config.vocab_size, plan->max_seq_len);
  }
}

// Of `left` bytes, which the KV cache gets otherwise.
Status PlanAdapters(const model::ModelConfig& config, const model::LoraLimits& limits,
                    const ExecutorOptions& options, uint64_t left, MemoryPlan* plan) {
  constexpr double kFraction = 0.05;
  constexpr uint64_t kHostBytes = uint64_t{1} << 30;
  const bool is_cuda = plan->device == DeviceKind::kCuda;
  const std::optional<double>& fraction = options.adapter_memory_fraction;
  if (fraction && !(*fraction >= 0 && *fraction < 1))
    return InvalidArgument("lora_cache_gpu_memory_fraction",
                           fmt::format("got {}, must be in [0, 1)", *fraction));
  const auto share =
      static_cast<uint64_t>(fraction.value_or(kFraction) * static_cast<double>(left));
  if (is_cuda) {
    plan->books_adapters = fraction.has_value();
    plan->adapter_host_bytes = options.adapter_host_bytes.value_or(kHostBytes);
    plan->adapter_table_bytes = AdapterCache::TableBytes(config, limits, plan->max_num_tokens);
    plan->adapter_bytes = share > plan->adapter_table_bytes ? share - plan->adapter_table_bytes : 0;
  } else {
    plan->books_adapters = fraction || options.adapter_host_bytes;
    plan->adapter_bytes =
        options.adapter_host_bytes.value_or(fraction ? share : std::min(share, kHostBytes));
  }
  const int rank = std::min(options.max_adapter_rank, limits.max_rank);
  const uint64_t needed = rank > 0 ? model::LargestAdapterBytes(config, rank) : 0;
  if (!plan->books_adapters || plan->adapter_bytes >= needed) return Status::Ok();
  return InvalidArgument(
      is_cuda ? "lora_cache_gpu_memory_fraction" : "lora_cache_host_memory_bytes",
      fmt::format("Not enough space allocated to {} LoRA cache to hold 1 max sized LoRA: it has "
                  "{}, rank {} takes {} (raise it, or lower lora_cache_max_adapter_size)",
                  is_cuda ? "device" : "host", Bytes(plan->adapter_bytes), rank, Bytes(needed)));
}

// Not one block fits: the plan, and what to change.
Status NoRoom(const MemoryPlan& plan, bool weights_are_taken, const ExecutorOptions& options,
              uint64_t free_bytes, uint64_t left) {
  std::string parts =
      weights_are_taken ? "" : fmt::format("weights {}, ", Bytes(plan.weight_bytes));
  if (plan.ring_bytes > 0) parts += fmt::format("streamed weights {}, ", Bytes(plan.ring_bytes));
  parts += fmt::format("workspace {} (max_num_tokens {})", Bytes(plan.workspace_bytes),
                       plan.max_num_tokens);
  if (plan.device == DeviceKind::kCuda)
    parts +=
        fmt::format(", kernels {}, graphs {}", Bytes(plan.kernel_bytes), Bytes(plan.graph_bytes));
  parts += fmt::format(", inputs {}, sampler {} (max_batch_size {})", Bytes(plan.step_input_bytes),
                       Bytes(plan.sampler_bytes), plan.max_batch_size);
  return OutOfMemory(fmt::format(
      "KV cache: not one block of {} tokens ({}) fits into {:.3g} of the {} left. Of {} free take: "
      "{}. Lower max_num_tokens, max_batch_size or block_size, raise "
      "kv_cache_free_memory_fraction, "
      "or free memory",
      plan.block_size, Bytes(plan.bytes_of_all_layers()), options.kv_cache_free_memory_fraction,
      Bytes(left), Bytes(free_bytes), parts));
}

}  // namespace

KvGroupPlan MemoryPlan::group(int g) const {
  if (g > 0) return other_groups[static_cast<size_t>(g - 1)];
  return {.window = window(),
          .bytes_per_block = kv_bytes_per_block,
          .num_blocks = num_blocks,
          .full_length_blocks = full_length_blocks};
}

void MemoryPlan::TakeBlocks(const MemoryPlan& leaders, const model::ModelConfig& config) {
  num_blocks = leaders.num_blocks;
  num_host_blocks = leaders.num_host_blocks;
  windows = leaders.windows;
  other_groups = leaders.other_groups;
  ops::KvCacheView shape = KvShape(config, block_size, device);
  const std::vector<int> num_layers = model::KvLayers(config, windows);
  for (size_t g = 0; g < num_layers.size(); ++g) {
    shape.num_layers = num_layers[g];
    (g == 0 ? kv_bytes_per_block : other_groups[g - 1].bytes_per_block) = KvBytesPerBlock(shape);
  }
}

uint64_t MemoryPlan::bytes_of_all_layers() const {
  uint64_t bytes = kv_bytes_per_block;
  for (const KvGroupPlan& group : other_groups) bytes += group.bytes_per_block;
  return bytes;
}

uint64_t MemoryPlan::kv_bytes() const {
  uint64_t bytes = bytes_of_all_layers() * static_cast<uint64_t>(num_scratch_blocks);
  for (int g = 0; g < num_groups(); ++g)
    bytes += group(g).bytes_per_block * static_cast<uint64_t>(group(g).num_blocks);
  return bytes + (device == DeviceKind::kCpu ? host_pool_bytes() : 0);
}

int64_t MemoryPlan::full_length_sequences() const {
  int64_t least = window() == 0 ? kv_tokens() / max_seq_len : num_blocks / full_length_blocks;
  for (const KvGroupPlan& group : other_groups)
    least = std::min(least, group.num_blocks / group.full_length_blocks);
  return least;
}

int MemoryPlan::window() const {
  int largest = 0;
  for (const int window : windows.windows) {
    if (window == 0) return 0;
    largest = std::max(largest, window);
  }
  return largest;
}

std::string MemoryPlan::ToString() const {
  const std::string lowered =
      engine_max_seq_len == 0
          ? ""
          : fmt::format("max_seq_len lowered from {} to {}, all that the KV cache holds\n",
                        engine_max_seq_len, max_seq_len);
  const std::string cuda =
      device == DeviceKind::kCpu
          ? ""
          : fmt::format(
                "kernels    {} for partial sums and plans\ngraphs     {} kept free for them\n",
                Bytes(kernel_bytes), Bytes(graph_bytes));
  std::string of_windows;
  for (const KvGroupPlan& group : other_groups)
    of_windows += fmt::format("           and {} blocks for layers that see {} tokens ({} each)\n",
                              group.num_blocks, group.window, Bytes(group.bytes_per_block));
  const std::string host =
      num_host_blocks == 0
          ? ""
          : fmt::format("host pool  {}: {} blocks for what the KV cache gives up, {}\n",
                        Bytes(host_pool_bytes()), num_host_blocks,
                        device == DeviceKind::kCpu ? "in the same" : "in pinned host memory");
  const std::string streamed =
      host_weight_bytes == 0 ? ""
                             : fmt::format(", {} where {} of pinned host memory are streamed to",
                                           Bytes(ring_bytes), Bytes(host_weight_bytes));
  const std::string adapters = books_adapters ? fmt::format("adapters   {} for those of requests\n",
                                                            Bytes(booked_adapter_bytes()))
                                              : "";
  return lowered + fmt::format(
                       "weights    {}{}\n"
                       "workspace  {} for steps of {} tokens and {} sequences\n"
                       "{}"
                       "inputs     {} for ids, positions and block tables of a step\n"
                       "sampler    {} for penalties, bans and biases of {} sequences\n"
                       "{}"
                       "KV cache   {}: {} blocks of {} tokens ({} each), {} tokens, {} sequences "
                       "at full length ({} "
                       "tokens)\n{}{}",
                       Bytes(weight_bytes), streamed, Bytes(workspace_bytes), max_num_tokens,
                       max_batch_size, cuda, Bytes(step_input_bytes), Bytes(sampler_bytes),
                       max_slots, adapters, Bytes(kv_bytes()), num_blocks, block_size,
                       Bytes(kv_bytes_per_block), kv_tokens(), full_length_sequences(), max_seq_len,
                       of_windows, host);
}

Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, const model::EngineLimits& limits,
                              DeviceKind device, uint64_t weight_bytes, bool weights_are_taken,
                              const ExecutorOptions& options, uint64_t free_bytes,
                              const Beside& beside) {
  RETURN_IF_ERROR(CheckOptions(options));
  MemoryPlan plan;
  plan.device = device;
  plan.can_release = options.enable_sleep;
  plan.weight_bytes = weight_bytes;
  plan.ring_bytes = beside.ring_bytes;
  plan.host_weight_bytes = beside.host_bytes;
  plan.block_size = options.block_size;
  ASSIGN_OR_RETURN(plan.max_seq_len,
                   Lowered("max_seq_len", options.max_seq_len, limits.max_seq_len));
  plan.max_input_len = std::min(limits.max_input_len, plan.max_seq_len);
  const int row_bound = std::min(limits.max_batch_size, scheduler::StepPlan::kMaxRows);
  ASSIGN_OR_RETURN(plan.max_batch_size,
                   Lowered("max_batch_size", options.max_batch_size, row_bound));
  ASSIGN_OR_RETURN(plan.max_num_tokens,
                   Lowered("max_num_tokens", options.max_num_tokens, limits.max_num_tokens));
  plan.max_num_tokens = std::max(plan.max_num_tokens, plan.max_batch_size);
  RETURN_IF_ERROR(PlanDrafts(config, limits, options, beside.eagle, &plan));
  plan.prompt_rows = {.max_rows = limits.max_prompt_embedding_table_size,
                      .vocab_size = config.vocab_size,
                      .hidden_size = config.hidden_size,
                      .dtype = config.dtype};
  plan.workspace_bytes = model::Decoder::WorkspaceBytes(config, device, plan.max_seq_len,
                                                        plan.max_num_tokens, plan.max_logits());
  if (!plan.draft_tree || device == DeviceKind::kCuda) plan.num_stages = config.part.pp_size;
  plan.workspace_bytes += StageBytes(config, plan, limits.max_beam_width);
  ASSIGN_OR_RETURN(plan.windows, WindowsOf(config, options, plan.max_seq_len));
  plan.kernel_bytes =
      ops::StreamBytes(device, model::KernelShape(config, plan.windows), plan.max_num_tokens,
                       plan.max_logits() + 1);  // cuda/step_shape.h: kFillRows
  if (device == DeviceKind::kCuda && !config.part.is_whole())
    plan.kernel_bytes += CudaRankBytes(config, plan.max_num_tokens);
  plan.max_slots = plan.max_batch_size + plan.num_stages - 1;
  if (device == DeviceKind::kCuda) {
    plan.max_slots += kSpareSlots;
    plan.num_scratch_blocks = 1;
    plan.graph_bytes = kGraphBytes;
  }
  plan.workspace_bytes += DraftBytes(config, plan, beside.eagle);
  PlanGroups(config, options, beside, &plan);
  PlanSlots(config, &plan);
  ASSIGN_OR_RETURN(plan.num_host_blocks, HostBlocks(options, plan.bytes_of_all_layers()));

  // So far without blocks but the scratch one.
  const uint64_t needed = plan.total_bytes() - (weights_are_taken ? weight_bytes : 0);
  uint64_t left = free_bytes > needed ? free_bytes - needed : 0;
  RETURN_IF_ERROR(PlanAdapters(config, limits.lora, options, left, &plan));
  left -= std::min(left, plan.booked_adapter_bytes());
  const int64_t tokens_by_memory = TokensIn(left, options.kv_cache_free_memory_fraction, plan);
  const int64_t tokens = std::min(tokens_by_memory, options.max_kv_tokens.value_or(INT64_MAX));
  plan.max_kv_tokens_exceed_memory = options.max_kv_tokens.value_or(0) > tokens_by_memory;
  PlanBlocks(options, tokens, left, &plan);
  if (plan.num_blocks < 1) return NoRoom(plan, weights_are_taken, options, free_bytes, left);
  if (plan.engine_max_seq_len > 0) PlanSlots(config, &plan);
  return plan;
}

ExecutorOptions FollowerOptions(const ExecutorOptions& options, const MemoryPlan& leaders) {
  ExecutorOptions out = options;
  if (!leaders.draft_tree) return out;
  out.drafts = DraftSource::kNgram;
  out.max_draft_len = leaders.max_draft_len;
  out.medusa_choices.clear();
  return out;
}

BackendInfo BackendInfoOf(const MemoryPlan& plan, int vocab_size, int max_beam_width) {
  const bool is_cuda = plan.device == DeviceKind::kCuda;
  const auto bytes = static_cast<int64_t>(plan.total_bytes());
  std::vector<double> chances;
  std::vector<int> parents;
  for (int i = 0; plan.draft_tree && i < plan.draft_tree->size(); ++i) {
    chances.push_back((*plan.draft_tree)[i].chance);
    parents.push_back((*plan.draft_tree)[i].parent);
  }
  std::vector<KvGroup> groups;
  for (int g = 0; g < plan.num_groups(); ++g) {
    const KvGroupPlan group = plan.group(g);
    groups.push_back({.block_size = plan.block_size,
                      .num_blocks = group.num_blocks,
                      .window = group.window,
                      .num_sinks = group.window == 0 ? 0 : plan.windows.num_sinks,
                      .num_host_blocks = plan.num_host_blocks});
  }
  return {.depth = DepthOf(plan),
          .looks_ahead = plan.num_stages == 1,
          .max_slots = plan.max_slots,
          .max_batch_size = plan.max_batch_size,
          .max_num_tokens = plan.max_num_tokens,
          .max_tokens_per_row = 1 + plan.max_draft_len,
          .max_drafts = plan.max_logits() - plan.max_batch_size,
          .makes_drafts = plan.drafts != DraftSource::kNone,
          .draft_chances = std::move(chances),
          .draft_parents = std::move(parents),
          .max_beam_width = max_beam_width,
          .max_seq_len = plan.max_seq_len,
          .max_input_len = plan.max_input_len,
          .vocab_size = vocab_size,
          .returns_logits = true,
          .hidden_size = plan.prompt_rows.hidden_size,
          .max_prompt_embedding_table_size = plan.prompt_rows.max_rows,
          .kv_groups = std::move(groups),
          .cpu_memory_bytes = is_cuda ? 0 : bytes,
          .gpu_memory_bytes = is_cuda ? bytes : 0};
}

}  // namespace inflight::executor
