// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/draft_model.h"
#include "executor/cuda/drafts_to_host.h"
#include "executor/cuda/guess_arenas.h"
#include "executor/cuda/host_blocks.h"
#include "executor/cuda/late_masks.h"
#include "executor/cuda/logits_to_host.h"
#include "executor/cuda/stage_drafts.h"
#include "executor/cuda/step_adapters.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/text_drafts.h"
#include "executor/cuda/tree_guesses.h"
#include "executor/cuda/tree_model.h"
#include "executor/cuda/weight_ring.h"
#include "executor/cuda_backend.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "model/decoder.h"
#include "model/engine.h"
#include "tensor/buffer.h"

namespace inflight::executor::cuda {

// All that the GPU may still be using. Left to the process's end when the GPU hangs: freeing would
// wait for it. Of a stage that is not the last one of its model there is nothing of what draws.
struct Held {
  std::shared_ptr<const model::Engine> engine;
  MemoryShare graph_share;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<WeightRing> weight_ring;
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<StepState> state;
  KvStorage kv;
  HostBlocks host_blocks;
  std::unique_ptr<StepAdapters> adapters;
  std::unique_ptr<decoding::DeviceSampler> sampler;
  std::unique_ptr<PromptTables> prompt_tables;
  std::unique_ptr<LateMasks> masks;
  std::unique_ptr<DraftsToHost> sent_drafts;  // of rows that wait for masks; null: none are made
  std::unique_ptr<LogitsToHost> to_host;
  std::vector<LogitsToHost::Step> to_host_steps;  // [depth]
  std::unique_ptr<StepGraphs> graphs;
  std::unique_ptr<DraftModel> drafts;         // null: no model makes them
  std::unique_ptr<TextDrafts> texts;          // null: none, or out of each sequence's own text
  std::unique_ptr<TreeModel> trees;           // null: drafts are no trees
  std::unique_ptr<TreeGuesses> tree_guesses;  // of the leader of stages whose drafts are trees
  PinnedBuffer letters;  // of a stage that is told what is drawn (stage_mail.h)
  std::unique_ptr<StageDrafts> stage_drafts;  // null: none go from stage to stage
  std::unique_ptr<GuessArenas> guesses;       // of a stage that is told drafts
  // Rows between stages are in no graph: TakeRows and HandRows.
  bool moves_rows_apart = false;

  ReleasableParts releasable() const;
  int64_t pinned_bytes() const {
    const auto of = [](const auto& part) {
      return part == nullptr ? uint64_t{0} : uint64_t{part->pinned_bytes()};
    };
    return static_cast<int64_t>(of(state) + of(sampler) + of(to_host) + of(masks) +
                                of(sent_drafts) + of(prompt_tables) + host_blocks.size() +
                                engine->host_weight_bytes() + of(drafts) + of(texts) + of(trees) +
                                of(tree_guesses) + letters.size() + of(guesses));
  }
};

// What computes the layers, with `held.engine`; graphs are `enqueue`'s.
struct LayersToLoad {
  const MemoryPlan& plan;
  const ops::OpTable& ops;
  ops::OpChoice choice = ops::OpChoice::kFastest;
  comm::RankGroups groups;
  float forced_acceptance = -1;  // as in SlotState
};
Status LoadLayers(const LayersToLoad& with, const BackendInfo& info, Device& device, Held& held,
                  StepGraphs::Enqueue enqueue);

// Behind LoadLayers, of a stage that draws: the sampler, and what it and the host have of a step.
Status LoadSampling(const MemoryPlan& plan, const BackendInfo& info, Device& device, Held& held);

// A draft model, beside a sampler; what proposes trees, as of MakeTreeModel.
Status LoadDraftModel(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                      ops::OpChoice choice, const MemoryPlan& plan, Device& device, Held& held);
Status LoadTreeModel(std::shared_ptr<const model::EagleHead> eagle, const ops::OpTable& ops,
                     const MemoryPlan& plan, Device& device, Held& held);

// Before `held` is freed: waits for what its stream has to do. Where the GPU is stuck nobody frees
// it.
void FinishSteps(std::unique_ptr<Held>& held, int device_index, bool is_stuck);

// What the decoder computes of a step, with the caches of all KV groups but the first,
// held.kv.view().
model::Batch BatchOf(const Held& held, const StepShape& shape);

// Enqueues what comes before the `step`-th step: blocks from and to the host, trees of drafts where
// this rank proposes them. Its inputs are packed then.
Result<StepShape> PrepareStep(const Held& held, const StepPlan& plan, uint64_t step);

// Of a stage, before and behind what it computes of a step, where no graph may hold it: so many
// rows as the step is filled up to where it has a graph, on all stages alike.
Status TakeRows(const Held& held, const StepShape& shape);
Status HandRows(const Held& held, const StepShape& shape);

// Of a stage behind the first, where that one drafts: before anything reads the drafts of a step.
Status TakeDrafts(const Held& held, const StepPlan& plan);

// What a step draws, from `logits` of its shape.
decoding::DeviceSampleParams SampleParamsOf(const StepState& state, const StepShape& shape,
                                            StepVariant variant, float* logits);

// Enqueues what a step of a search does to its beams; with all of their tokens, which are
// host_tokens then, or the last one of each alone. `copies` is memory to be used again.
Status PlaceBeams(const Held& held, const BeamMove& move, bool with_tokens,
                  std::vector<kv_cache::BlockCopy>* copies);

// Rows of prompts of the scratch slot, `num_tokens` in all where the steps of `info` hold them.
StepPlan ScratchPlan(int num_tokens, const BackendInfo& info, const SlotState& slots);

// Has `run` do every kind of step once: steps of `num_tokens` of prompts, filled up to the shape
// where that is not empty.
using RunOnScratch =
    std::function<Status(int num_tokens, const StepShape& shape, StepVariant variant)>;
Status RunAllKinds(int max_num_tokens, const StepGraphs& graphs, const RunOnScratch& run);

}  // namespace inflight::executor::cuda
