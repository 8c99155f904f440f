// SPDX-License-Identifier: Apache-2.0
// What an executor will take of a device's memory, computed by the code that then allocates;
// printed at load and by `inflight inspect` (P8).
#pragma once

#include <algorithm>
#include <limits>
#include <string>

#include "decoding/draft_tree.h"
#include "executor/backend.h"
#include "executor/kv_shares.h"
#include "inflight/executor.h"
#include "kv_cache/kv_cache.h"
#include "model/decoder.h"
#include "model/eagle_head.h"
#include "scheduler/scheduler.h"

namespace inflight::executor {

// What a step needs to find rows of requests' own tables (inflight/prompt_table.h).
struct PromptRows {
  int max_rows = 0;  // of a request's table; 0: no request has one
  int vocab_size = 0;
  int hidden_size = 0;
  DType dtype = DType::kF32;  // the model's

  size_t row_bytes() const { return BytesOf(dtype, hidden_size); }
  // Ids from here on are rows.
  TokenId first_id() const {
    return max_rows > 0 ? vocab_size : std::numeric_limits<TokenId>::max();
  }
};

struct MemoryPlan {
  // On a GPU each draft is a row, and where so many rows are computed anyway no draft pays. Of
  // trees most logits would be for nothing.
  static constexpr int kMaxDraftedLogits = 512;
  static constexpr int kKeptOutputTokens = 1 << 18;  // of DraftSource::kSuffix

  DeviceKind device = DeviceKind::kCpu;
  bool can_release = false;        // the KV cache lies in memory that can be given back
  uint64_t weight_bytes = 0;       // of the device's memory
  uint64_t ring_bytes = 0;         // CUDA: where streamed weights are copied to
  uint64_t host_weight_bytes = 0;  // CUDA: of those, in pinned host memory
  uint64_t workspace_bytes = 0;
  uint64_t kernel_bytes = 0;  // CUDA: what the operators share (ops::MakeStream)
  uint64_t graph_bytes = 0;   // CUDA: kept free for recorded steps and the kernels' code
  uint64_t step_input_bytes = 0;
  uint64_t sampler_bytes = 0;        // CPU: taken from the system as penalties are first asked for
  uint64_t adapter_bytes = 0;        // the most that adapters of requests take together
  uint64_t adapter_table_bytes = 0;  // CUDA: what tells kernels of them
  uint64_t adapter_host_bytes = 0;   // CUDA: the most that is kept of them as clients brought them
  bool books_adapters = false;       // at load; else with the first adapter, of what is then left
  // Of the first KV group, which is the only one unless windows of layers differ.
  uint64_t kv_bytes_per_block = 0;        // with those of a draft model that has the same blocks
  int64_t num_blocks = 0;                 // for sequences
  std::vector<KvGroupPlan> other_groups;  // those behind it
  // Of each group.
  int num_scratch_blocks = 0;   // CUDA: where rows without a sequence write
  int64_t num_host_blocks = 0;  // of the host pool; on the CPU in the same memory, else pinned
  int block_size = 0;
  int max_batch_size = 0;
  int max_slots = 0;  // sequences set up at once: more than rows where steps overlap
  int max_num_tokens = 0;
  // Stages of ranks, each of which has a step of its own. On CPUs trees of drafts are made of what
  // the step before left: then 1.
  int num_stages = 1;
  DraftSource drafts = DraftSource::kNone;        // never kAuto
  int max_draft_len = 0;                          // of a row
  std::optional<decoding::DraftTree> draft_tree;  // of kMedusa and kEagle
  model::HeadInputs head_inputs;  // what makes it reads of a model of several stages
  int max_seq_len = 0;
  int max_input_len = 0;
  PromptRows prompt_rows;
  model::AttentionWindows windows;  // those that hide anything
  int full_length_blocks = 0;       // of the first group, as of KvGroupPlan
  int engine_max_seq_len = 0;  // not 0: max_seq_len was lowered from this to what the blocks hold

  uint64_t booked_adapter_bytes() const {
    return books_adapters ? adapter_bytes + adapter_table_bytes : 0;
  }
  int num_groups() const { return 1 + static_cast<int>(other_groups.size()); }
  KvGroupPlan group(int g) const;
  // Takes the KV groups of `leaders`, a plan of another rank, and as many blocks of each, for this
  // rank's layers, those of `config`.
  void TakeBlocks(const MemoryPlan& leaders, const model::ModelConfig& config);
  uint64_t bytes_of_all_layers() const;  // a block in each group
  uint64_t host_pool_bytes() const {
    return bytes_of_all_layers() * static_cast<uint64_t>(num_host_blocks);
  }
  uint64_t kv_bytes() const;  // of the device
  uint64_t total_bytes() const {
    return weight_bytes + ring_bytes + workspace_bytes + kernel_bytes + graph_bytes +
           step_input_bytes + sampler_bytes + booked_adapter_bytes() + kv_bytes();
  }
  // Of the first group, which no other holds more of.
  int64_t kv_tokens() const { return num_blocks * block_size; }
  int64_t full_length_sequences() const;
  // What the first KV group keeps: the largest window of a layer; 0 = everything.
  int window() const;
  // Rows of logits of a step: of rows that yield, and of their drafts.
  int max_logits() const {
    const int64_t most = device == DeviceKind::kCuda || draft_tree
                             ? std::max(kMaxDraftedLogits, max_batch_size)
                             : max_num_tokens;
    return static_cast<int>(
        std::min({int64_t{max_batch_size} * (1 + max_draft_len), most, int64_t{max_num_tokens}}));
  }
  // The same of a step of one of several stages, where a search has at most `max_beam_width` beams.
  int max_stage_logits(int max_beam_width) const {
    const int rows = scheduler::Scheduler::MaxStepRows(max_batch_size, num_stages);
    return std::min(max_logits(), std::max(rows * (1 + max_draft_len), max_beam_width));
  }
  int max_blocks_per_seq() const { return kv_cache::BlocksFor(max_seq_len, block_size); }
  bool max_kv_tokens_exceed_memory = false;
  std::string ToString() const;  // a line per part, for people
};

// What else takes memory: weights that do not stay in a GPU's (executor/weight_plan.h), what a
// draft model keeps in each block beside, and a head of EAGLE, without its weights.
struct Beside {
  uint64_t ring_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t draft_kv_bytes_per_block = 0;
  const model::EagleConfig* eagle = nullptr;  // null: there is none, or another stage has it
};

// Bounds from the engine, lowered by `options`; KV tokens from the fraction of what is left of
// `free_bytes` after the rest (weights too, unless they are taken already), or max_kv_tokens where
// that is less; rounded up to blocks, never more than max_batch_size sequences of full length use.
// Where they hold less than one sequence of full length, max_seq_len and max_input_len are lowered
// to what they hold (docs/reference/scheduling.md). kInvalidArgument names an option out of its
// range; kResourceExhausted when not one block fits.
Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, const model::EngineLimits& limits,
                              DeviceKind device, uint64_t weight_bytes, bool weights_are_taken,
                              const ExecutorOptions& options, uint64_t free_bytes,
                              const Beside& beside = {});

// Those of a rank that follows one of the plan `leaders`: what proposes drafts is the leader's
// alone.
ExecutorOptions FollowerOptions(const ExecutorOptions& options, const MemoryPlan& leaders);

// What a backend of that plan is, for a model of `vocab_size` tokens whose engine searches with up
// to `max_beam_width` beams.
BackendInfo BackendInfoOf(const MemoryPlan& plan, int vocab_size, int max_beam_width);

}  // namespace inflight::executor
