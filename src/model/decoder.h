// SPDX-License-Identifier: Apache-2.0
// The forward pass of a decoder-only transformer over a packed batch of prefill chunks and decode
// rows.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "model/engine.h"
#include "model/kept_residuals.h"
#include "model/weight_stream.h"
#include "ops/attention.h"
#include "ops/backend.h"
#include "tensor/stream.h"

namespace inflight::model {

// The products of a step of at most `max_num_tokens` tokens and `max_logits` rows; for tuning.
std::vector<ops::LinearShape> LinearShapes(const ModelConfig& config, int max_num_tokens,
                                           int max_logits);

// What layers of a KV group behind the first read of a step.
struct GroupInputs {
  ops::PagedBatch paged;  // the batch's, with slot mapping and block tables of this group
  ops::KvCacheView kv;    // with the layers of the group, as they follow each other
};

// One step's packed inputs, all in device memory at fixed addresses.
struct Batch {
  TensorView ids;         // [num_tokens] int32
  ops::PagedBatch paged;  // rows, positions; slot mapping and block tables of the first KV group
  std::vector<GroupInputs> other_groups = {};  // [AttentionWindows::num_groups() - 1]
  TensorView logit_rows;  // [num_logits] int32: indices of tokens whose logits are wanted
  ops::LoraBatch* adapters = nullptr;  // of the tokens that have one; null: none has
  // [num_tokens] rows of requests' own tables, in the model's dtype, or null (ops/embed.h); null
  // where no token has any.
  const void* const* prompt_rows = nullptr;
  const KeptResiduals* kept = nullptr;  // filled; null: nothing is kept
  // Of several stages: Forward takes the rows of the stage before and hands its own to the next
  // one; else TakeRows and HandRows around it do.
  bool moves_rows = true;
};

// What heads beside a model of several stages read of each step, on the leader: the others send it
// what they have. On the CPU.
struct HeadInputs {
  bool states = false;      // Decoder::States
  std::vector<int> layers;  // as of KeptResiduals

  bool operator==(const HeadInputs&) const = default;
};

// What each layer attends to.
struct AttentionWindows {
  std::vector<int> windows;  // tokens, a layer each, repeated; 0 = all; empty = all layers see all
  int num_sinks = 0;
  // Of each KV group what is kept of a text: the widest first, 0 = all. Empty: there is one group.
  std::vector<int> groups = {};

  ops::SlidingWindow Of(size_t layer) const {
    const int window = windows.empty() ? 0 : windows[layer % windows.size()];
    return {.window = window, .num_sinks = window == 0 ? 0 : num_sinks};
  }
  int num_groups() const { return groups.empty() ? 1 : static_cast<int>(groups.size()); }
  // The KV group of layers with such a window: the narrowest that keeps what they see.
  int GroupOf(int window) const;
  // Those that `num_layers` layers have, each once.
  std::vector<ops::SlidingWindow> Different(int num_layers) const;
};

// `options` with the model's own windows in it: a layer that has one sees that many tokens, or what
// `options` gives it if that is less.
AttentionWindows LayerWindows(const ModelConfig& config, const AttentionWindows& options);

// How many layers of `config`, which may be a part of the model, are in each KV group of `windows`.
std::vector<int> KvLayers(const ModelConfig& config, const AttentionWindows& windows);

// Whether linears of the layers read FP8.
bool HasFp8Activations(const ModelConfig& config);

// What linear operators read (ops/linear.h): beside integer weights what they read beside the
// model's.
DType ActivationDType(const ModelConfig& config, DeviceKind device);

// Bytes of scratch of the linear that needs most of a step, on the CPU.
size_t LinearScratchBytes(const ModelConfig& config, int64_t num_tokens);

// What `config` needs of its kernels. `windows` as of Decoder::Create.
ops::ShapeClass KernelShape(const ModelConfig& config, const AttentionWindows& windows = {});

// Threads: one Forward at a time per Decoder. Allocates only in Create, for at most
// `max_num_tokens` tokens and `max_logits` rows.
class Decoder {
 public:
  // `windows` beside the model's own (LayerWindows), with the KV groups. `weight_stream`, where
  // layers are brought to the device as they are needed, outlives the decoder; null: operators read
  // the engine's weights. So do `groups`, which an engine that holds a part of a model (RankPart)
  // needs: its ranks call Forward and Logits with the same batches in the same order, and the first
  // rank gets the logits; on CUDA all ranks of the last stage.
  static Result<std::unique_ptr<Decoder>> Create(std::shared_ptr<const Engine> engine,
                                                 ops::OpTable ops, Device& device,
                                                 int max_num_tokens, int max_logits,
                                                 AttentionWindows windows = {},
                                                 WeightStream* weight_stream = nullptr,
                                                 comm::RankGroups groups = {});
  ~Decoder();

  // Writes K and V of the batch's tokens into `kv`, which is the first KV group's, and into those
  // of the other groups, and returns logits [num_logits, vocab_size] float32, valid until the next
  // Forward.
  Result<TensorView> Forward(const Batch& batch, const ops::KvCacheView& kv, Stream& stream);

  // Around a Forward of `num_tokens` or fewer whose batch moves no rows: from the stage before, and
  // to the next one. Where there is none they do nothing.
  Status TakeRows(int64_t num_tokens, Stream& stream);
  Status HandRows(int64_t num_tokens, Stream& stream);

  // Logits of other tokens of the last Forward: of at most max_logits `rows`, [n] int32, indices as
  // those of Batch::logit_rows. Overwrites what Forward or an earlier call returned.
  Result<TensorView> Logits(const TensorView& rows, Stream& stream);

  // What lm_head reads: the states of the last Forward's tokens behind the final norm,
  // [num_tokens, hidden_size] in the dtype of linears' operands; valid until the next Forward. Of
  // the last stage, and of the leader where it brings them.
  TensorView States() const;

  // Before the first Forward, on all ranks alike.
  void Bring(const HeadInputs& inputs);

  // For heads beside the model, which read its table and its head; on all ranks at once. On CPUs
  // the leader gets what comes of it, on CUDA every rank. Embedding and logits are not scaled.
  //
  // y [n, hidden_size] in the stream dtype = the rows of `ids` [n] int32. An empty y is that of
  // followers, and on CUDA of all: there n is at most max_num_tokens, and the rows lie in the
  // decoder's memory until the next call.
  Result<TensorView> Embed(const TensorView& ids, const TensorView& y, Stream& stream);
  // logits [n, vocab_size] float32 of the rows `rows` [n] int32 of x [m, hidden_size], which is in
  // the dtype of linears' operands; empty rows, on CPUs alone: of all. n is at most max_logits.
  // Empty logits as an empty y.
  Result<TensorView> HeadLogits(const TensorView& x, const TensorView& rows,
                                const TensorView& logits, Stream& stream);

  uint64_t workspace_bytes() const;

  // Workspace that Create would take; for memory plans before loading.
  static uint64_t WorkspaceBytes(const ModelConfig& config, DeviceKind device, int max_seq_len,
                                 int max_num_tokens, int max_logits);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace inflight::model
