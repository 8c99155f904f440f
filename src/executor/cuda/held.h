// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>

#include "decoding/cuda/device_sampler.h"
#include "executor/cuda/draft_model.h"
#include "executor/cuda/drafts_to_host.h"
#include "executor/cuda/host_blocks.h"
#include "executor/cuda/late_masks.h"
#include "executor/cuda/logits_to_host.h"
#include "executor/cuda/step_adapters.h"
#include "executor/cuda/step_graphs.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/text_drafts.h"
#include "executor/cuda/weight_ring.h"
#include "executor/cuda_backend.h"
#include "executor/kv_storage.h"
#include "executor/prompt_tables.h"
#include "model/decoder.h"
#include "model/engine.h"

namespace inflight::executor::cuda {

// All that the GPU may still be using. Left to the process's end when the GPU hangs: freeing would
// wait for it.
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
  std::array<LogitsToHost::Step, kCudaDepth> to_host_steps;
  std::unique_ptr<StepGraphs> graphs;
  std::unique_ptr<DraftModel> drafts;  // null: no model makes them
  std::unique_ptr<TextDrafts> texts;   // null: none, or out of each sequence's own text

  int64_t pinned_bytes() const {
    const auto of = [](const auto& part) {
      return part == nullptr ? uint64_t{0} : uint64_t{part->pinned_bytes()};
    };
    return static_cast<int64_t>(of(state) + of(sampler) + of(to_host) + of(masks) +
                                of(sent_drafts) + of(prompt_tables) + host_blocks.size() +
                                engine->host_weight_bytes() + of(drafts) + of(texts));
  }
};

}  // namespace inflight::executor::cuda
