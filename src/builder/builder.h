// SPDX-License-Identifier: Apache-2.0
// From a Hugging Face directory, a GGUF file, a checkpoint or an engine directory to an Engine in
// memory or on disk.
//
//   Hugging Face directory, GGUF file --Convert--> checkpoint --Build--> engine directory
//                    \_______________________________\_______________________\__ Open -->
//                    model::Engine
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "artifact/checkpoint.h"
#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::builder {

enum class SourceKind { kHuggingFace, kGguf, kCheckpoint, kEngine };

// What `dir` holds: a file called *.gguf = GGUF. Else by its files: config.json with
// "pretrained_config" = engine; with "architecture" and rank0.safetensors = checkpoint; with
// "architectures" or "model_type" = Hugging Face. kNotFound or kInvalidArgument says what was
// looked for.
Result<SourceKind> Detect(const std::filesystem::path& dir);

// Called with the fraction done, [0, 1], and what is being done; for progress bars.
using Progress = std::function<void(double fraction, std::string_view what)>;

// Heads that stand in a directory of their own
// (FasterDecoding/Medusa/medusa/train/train_legacy.py): config.json with medusa_num_heads and
// medusa_num_layers, and medusa_lm_head.safetensors or medusa_lm_head.pt.
struct MedusaOptions {
  std::filesystem::path dir;           // empty: none
  std::optional<int> num_heads;        // where config.json does not say them; default 4
  std::optional<int> num_layers;       // the same; default 1
  std::optional<int> fixed_num_heads;  // so many of them, whatever config.json says
};

struct ConvertOptions {
  std::filesystem::path model_dir;  // or a GGUF file
  std::filesystem::path output_dir;
  std::string dtype = "auto";  // auto | float32 | bfloat16 | float16; auto = the model's
                               // torch_dtype
  std::optional<model::QuantAlgo> quant_algo;  // default: that of the model's own form
  std::optional<int> group_size;               // likewise, of those with groups
  bool fp8_kv_cache = false;
  bool quantize_lm_head = false;
  bool upstream_layout = false;  // quantised linears as TensorRT-LLM's tools write and read them
  int tp_size = 1;               // tensor-parallel ranks
  int pp_size = 1;               // pipeline stages; layers that are left over go to the first ones
  std::optional<int> moe_tp_size;  // as of artifact::RankSizes
  std::optional<int> moe_ep_size;
  bool use_parallel_embedding = false;  // split the embedding table over the tensor-parallel ranks
  int embedding_sharding_dim = 0;       // along the vocabulary (0) or the hidden size (1)
  std::optional<bool> use_embedding_sharing;  // store a tied table once; default: where it can be
  bool save_config_only = false;              // write config.json without weights
  MedusaOptions medusa;
};
Status Convert(const ConvertOptions& options, const Progress& progress = {});

struct BuildOptions {
  std::filesystem::path checkpoint_dir;  // or a Hugging Face directory or a GGUF file
  std::filesystem::path output_dir;
  std::optional<DType> dtype;  // default: the checkpoint's; float32 becomes bfloat16
                               // for CUDA, with a note in the log
  std::optional<model::QuantAlgo> quant_algo;  // default: the checkpoint's
  std::optional<int> group_size;               // likewise, of those with groups
  std::optional<bool> fp8_kv_cache;            // likewise
  std::optional<bool> quantize_lm_head;        // likewise
  model::EngineLimits limits;
  std::filesystem::path tokenizer_dir;  // of the tokenizer's files; empty = checkpoint_dir
  std::optional<int> tp_size;           // that a checkpoint is expected to have; that a Hugging
  std::optional<int> pp_size;           // Face model is split for
  std::optional<int> moe_tp_size;       // the same, as of artifact::RankSizes
  std::optional<int> moe_ep_size;
  bool merge_ranks = false;              // one engine, whatever ranks there are
  DeviceKind target = DeviceKind::kCpu;  // whose kernels will read the engine
  bool tune = true;                      // time products on this machine's GPU, for target cuda
                                         // where there is one, and keep the fastest as hints
  bool dry_run = false;                  // check, write nothing
};
// Writes a file for each rank. Of a model that runs on one rank alone, or for a target whose models
// do, it is one for all, which the log says.
Status Build(const BuildOptions& options, const Progress& progress = {});

// The same of random weights in the shape of `config`: what build.py of the first releases made
// where it was given sizes and no model. `options.checkpoint_dir` and ranks are not looked at.
Status BuildRandom(const model::ModelConfig& config, const BuildOptions& options, uint64_t seed);

struct OpenOptions {
  std::optional<DType> dtype;  // other than stored: only from a checkpoint or Hugging Face
                               // directory. By default float32 becomes bfloat16 on CUDA, with a
                               // note in the log
  std::optional<model::QuantAlgo> quant_algo;  // likewise
  std::optional<int> group_size;               // likewise, of those with groups
  std::optional<bool> fp8_kv_cache;            // default: the model's; of engines too
  std::optional<bool> quantize_lm_head;        // likewise, but not of engines
  std::optional<model::EngineLimits> limits;   // only from a checkpoint or Hugging Face directory
  DeviceKind target = DeviceKind::kCpu;        // of Describe: Open goes by its device
  artifact::RankMapping ranks;                 // that the model runs on, and which this one is; of
  int rank = 0;                                // an engine, those that it was built for
  std::vector<int> streamed_layers;            // of Open on a GPU: model::Engine's host_layers;
                                     // ascending, none or more than LayerRing::kNumBuffers
  bool can_release = false;  // of Open: the weights lie in memory that can be given back meanwhile
  // Of Open: they are written to where those of this engine lie, which was opened so from the same
  // directory. kFailedPrecondition where the model has got other sizes.
  const model::Engine* into = nullptr;
};
Result<std::shared_ptr<const model::Engine>> Open(const std::filesystem::path& dir, Device& device,
                                                  const OpenOptions& options = {},
                                                  const Progress& progress = {});

// The model's description without its weights, for `inspect`.
struct Description {
  SourceKind kind;
  DeviceKind target;  // whose layouts `weight_bytes` counts: an engine's own, else the options'
  model::ModelConfig config;
  model::EngineLimits limits;
  artifact::RankMapping ranks;          // that the files are for, whichever are asked for
  std::string stored_quantization;      // of the files of a Hugging Face directory or a GGUF file,
                                        // and what becomes of it; empty: none
  uint64_t weight_bytes = 0;            // as they will be in memory
  uint64_t layer_bytes = 0;             // of them, the largest layer's
  std::filesystem::path tokenizer_dir;  // as of model::Engine
};
// An engine of several ranks is described whole where `options.ranks` is one rank.
Result<Description> Describe(const std::filesystem::path& dir, const OpenOptions& options = {});

// The same of a directory whose config.json, of Hugging Face, is all that is known of the model:
// its weights are not there. `options.ranks` is one rank.
Result<Description> DescribeConfig(const std::filesystem::path& dir,
                                   const OpenOptions& options = {});
bool HasConfigAlone(const std::filesystem::path& dir);

// The ranks that `dir` is opened on: an engine's own, with which the sizes that are given have to
// agree (kFailedPrecondition names both numbers); of others what MakeMapping makes of the sizes.
Result<artifact::RankMapping> RanksOf(const std::filesystem::path& dir,
                                      const artifact::RankSizes& sizes);

// What ranks that read `dir`, each on its host, have to have alike: all files of a checkpoint or a
// Hugging Face directory (artifact/fingerprint.h). Of an engine it is config.json, which says what
// each rank's own file is.
Result<uint64_t> RanksFingerprint(const std::filesystem::path& dir);

// What Open makes of a model without its weights: their bytes in memory, as of Description.
uint64_t EngineBytes(const model::ModelConfig& config, DeviceKind device);
uint64_t LayerBytes(const model::ModelConfig& config, DeviceKind device);

// Its weights, a table that is also the head once, without scales of quantisation. `active`: those
// that one token is computed with, which of experts are a part.
struct ParameterCounts {
  int64_t total = 0;
  int64_t active = 0;
};
ParameterCounts CountParameters(const model::ModelConfig& config);

// An engine of random weights with the given shape, made in memory; for benchmarks, which tune
// where the device is a GPU (builder/tune.h). `streamed_layers` and `can_release` as of
// OpenOptions.
Result<std::shared_ptr<const model::Engine>> Random(const model::ModelConfig& config,
                                                    const model::EngineLimits& limits,
                                                    uint64_t seed, Device& device,
                                                    bool tune = false,
                                                    std::vector<int> streamed_layers = {},
                                                    bool can_release = false);

}  // namespace inflight::builder
