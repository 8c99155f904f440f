// SPDX-License-Identifier: Apache-2.0
// The layers of a step of few decode rows as one operator, where the backend has it and the model
// is one of those that it knows (ops/decode_layers.h).
#pragma once

#include <vector>

#include "model/decoder.h"
#include "model/decoder_workspace.h"
#include "ops/backend.h"
#include "ops/decode_layers.h"

namespace inflight::model {

class LayersAtOnce {
 public:
  LayersAtOnce() = default;  // of no model
  // Of layers that see all keys. `engine` outlives it.
  LayersAtOnce(const Engine& engine, const ops::Rope& rope, float attention_scale);

  // Of a batch that Run takes, the most rows that such a batch may have; 0 of others.
  int MostRows(const Batch& batch, const ops::KvCacheView& kv, const DecoderWorkspace& workspace,
               const ops::OpTable& ops, Stream& stream) const;
  // From the embedding in workspace.residual to the normed states of the last layer.
  Status Run(const Batch& batch, const ops::KvCacheView& kv, const DecoderWorkspace& workspace,
             const ops::OpTable& ops, Stream& stream) const;

 private:
  ops::DecodeLayersParams ParamsOf(const Batch& batch, const ops::KvCacheView& kv,
                                   const DecoderWorkspace& workspace) const;

  const ModelConfig* config_ = nullptr;
  std::vector<ops::DecodeLayer> layers_;  // empty: the model's layers are not of that kind
  TensorView final_norm_;
  ops::Rope rope_;
  float attention_scale_ = 0;
};

}  // namespace inflight::model
