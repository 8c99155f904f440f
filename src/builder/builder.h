// SPDX-License-Identifier: Apache-2.0
// From a Hugging Face directory, a checkpoint or an engine directory to an Engine in memory or on
// disk.
//
//   Hugging Face directory --Convert--> checkpoint --Build--> engine directory
//                    \______________________\_______________________\______ Open --> model::Engine
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "model/engine.h"
#include "tensor/device.h"

namespace inflight::builder {

enum class SourceKind { kHuggingFace, kCheckpoint, kEngine };

// What `dir` holds, by its files: config.json with "pretrained_config" = engine; with
// "architecture" and rank0.safetensors = checkpoint; with "architectures" or "model_type" = Hugging
// Face. kNotFound or kInvalidArgument says what was looked for.
Result<SourceKind> Detect(const std::filesystem::path& dir);

// Called with the fraction done, [0, 1], and what is being done; for progress bars.
using Progress = std::function<void(double fraction, std::string_view what)>;

struct ConvertOptions {
  std::filesystem::path model_dir;
  std::filesystem::path output_dir;
  std::string dtype = "auto";  // auto | float32 | bfloat16 | float16; auto = the model's
                               // torch_dtype
  model::QuantAlgo quant_algo = model::QuantAlgo::kNone;
  bool fp8_kv_cache = false;
  bool quantize_lm_head = false;
  int tp_size = 1;  // tensor-parallel ranks
  int pp_size = 1;  // pipeline stages; layers that are left over go to the first ones
  bool use_parallel_embedding = false;  // split the embedding table over the tensor-parallel ranks
  int embedding_sharding_dim = 0;       // along the vocabulary (0) or the hidden size (1)
  std::optional<bool> use_embedding_sharing;  // store a tied table once; default: where it can be
  bool save_config_only = false;              // write config.json without weights
};
Status Convert(const ConvertOptions& options, const Progress& progress = {});

struct BuildOptions {
  std::filesystem::path checkpoint_dir;  // or a Hugging Face directory
  std::filesystem::path output_dir;
  std::optional<DType> dtype;  // default: the checkpoint's; float32 becomes bfloat16
                               // for CUDA, with a note in the log
  std::optional<model::QuantAlgo> quant_algo;  // default: the checkpoint's
  std::optional<bool> fp8_kv_cache;            // likewise
  std::optional<bool> quantize_lm_head;        // likewise
  model::EngineLimits limits;
  std::filesystem::path tokenizer_dir;   // of the tokenizer's files; empty = checkpoint_dir
  std::optional<int> tp_size;            // that the checkpoint is expected to have
  std::optional<int> pp_size;            // the same
  DeviceKind target = DeviceKind::kCpu;  // whose kernels will read the engine
  bool tune = true;                      // time products on this machine's GPU, for target cuda
                                         // where there is one, and keep the fastest as hints
  bool dry_run = false;                  // check, write nothing
};
Status Build(const BuildOptions& options, const Progress& progress = {});

// The same of random weights in the shape of `config`: what build.py of the first releases made
// where it was given sizes and no model. `options.checkpoint_dir` and ranks are not looked at.
Status BuildRandom(const model::ModelConfig& config, const BuildOptions& options, uint64_t seed);

struct OpenOptions {
  std::optional<DType> dtype;  // other than stored: only from a checkpoint or Hugging Face
                               // directory. By default float32 becomes bfloat16 on CUDA, with a
                               // note in the log
  std::optional<model::QuantAlgo> quant_algo;  // likewise
  std::optional<bool> fp8_kv_cache;            // default: the model's; of engines too
  std::optional<bool> quantize_lm_head;        // likewise, but not of engines
  std::optional<model::EngineLimits> limits;   // only from a checkpoint or Hugging Face directory
  DeviceKind target = DeviceKind::kCpu;        // of Describe: Open goes by its device
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
  uint64_t weight_bytes = 0;            // as they will be in memory
  std::filesystem::path tokenizer_dir;  // as of model::Engine
};
Result<Description> Describe(const std::filesystem::path& dir, const OpenOptions& options = {});

// An engine of random weights with the given shape, made in memory; for benchmarks, which tune
// where the device is a GPU (builder/tune.h).
Result<std::shared_ptr<const model::Engine>> Random(const model::ModelConfig& config,
                                                    const model::EngineLimits& limits,
                                                    uint64_t seed, Device& device,
                                                    bool tune = false);

}  // namespace inflight::builder
