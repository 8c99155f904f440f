// SPDX-License-Identifier: Apache-2.0
// The options of commands that open a model in this process: `run`, `chat`, `bench`, `inspect`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/schema.h"
#include "expert_rank_options.h"
#include "inflight/open.h"
#include "loader/loader.h"
#include "model_directory.h"
#include "quantization_options.h"

namespace inflight::tool {

struct ModelOptions {
  std::string device = "auto";
  std::string dtype = "auto";  // as of OpenOptions
  QuantizationOptions quantization;
  std::optional<int> num_threads;
  std::string ops;
  std::filesystem::path draft_model;
  bool download = false;
  std::optional<int> tensor_parallel_size;
  std::optional<int> pipeline_parallel_size;
  std::optional<int> moe_ep_size;
  std::optional<int> moe_tp_size;
  ExecutorOptions executor;

  // kInvalidArgument where the spellings of quantisation contradict each other.
  Result<OpenOptions> ToOpenOptions() const;
};

// Declares --device in `schema`, for every command that runs models; `field` gives the text.
template <typename Options, typename Field>
void AddDevice(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "device", field,
      "Where models run: cpu, cuda (the first GPU), cuda:N, or auto: the first GPU where there "
      "is one that can run the model, else the CPU; an engine on the kind of device that it "
      "was built for.");
}

// Declares --dtype in `schema`, for every command that opens models; `field` gives the text.
template <typename Options, typename Field>
void AddDType(config::Schema<Options>& schema, const Field& field, const std::string& help) {
  schema.Add("dtype", field, help, config::OneOf({"auto", "float32", "bfloat16", "float16"}));
}

constexpr char kComputedIn[] =
    "Compute in this dtype; for Hugging Face and checkpoint directories; auto is the model's own. "
    "A GPU computes float32 models in bfloat16 unless float32 is given here.";

// Declares --deterministic in `schema`; `field` gives the ExecutorOptions.
template <typename Options, typename Field>
void AddDeterministic(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "deterministic", [field](Options& o) -> auto& { return field(o).deterministic; },
      "The results of a request depend on nothing else, bit for bit: not on its batch, the chunks "
      "of its prompt, reused KV blocks or pauses. Costs speed on a GPU.",
      config::Switch());
}

// Declares --enable-sleep-mode in `schema`; `field` gives the ExecutorOptions.
template <typename Options, typename Field>
void AddSleepMode(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "enable_sleep_mode", [field](Options& o) -> auto& { return field(o).enable_sleep; },
      "POST /sleep gives the memory of weights and KV cache back until POST /wake_up takes it "
      "again; requests wait meanwhile.",
      config::Switch());
}

// Declares --gpu-weights-percent and --gpu-weights-auto in `schema`; `field` gives the
// ExecutorOptions.
template <typename Options, typename Field>
void AddGpuWeights(config::Schema<Options>& schema, const Field& field) {
  schema.Add(
      "gpu_weights_percent", [field](Options& o) -> auto& { return field(o).gpu_weights.fraction; },
      "The part of the layers whose weights stay in a GPU's memory, 0 to 1. Those of the others "
      "are kept in pinned host memory, and each step copies them while earlier layers are "
      "computed: slower, for models that are larger than the GPU's memory.",
      config::Range(0, 1));
  schema.Add(
      "gpu_weights_auto",
      [field](Options& o) -> auto& { return field(o).gpu_weights.as_many_as_fit; },
      "As many layers stay as there is room for, all where that suffices, in place of "
      "gpu_weights_percent.",
      config::Switch());
}

// Declares --tensor-parallel-size, --pipeline-parallel-size, --moe-ep-size and --moe-tp-size in
// `schema`; `field` gives the options that have these fields.
template <typename Options, typename Field>
void AddRanks(config::Schema<Options>& schema, const Field& field) {
  constexpr double kMost = 64;
  schema.Add(
      "tensor_parallel_size",
      [field](Options& o) -> auto& { return field(o).tensor_parallel_size; },
      "Ranks that share every layer of a model: each holds and computes its part of the heads, the "
      "feed-forward and the vocabulary; on GPUs, one for each. Default: those that an engine was "
      "built for, "
      "which no other number changes, and 1 of checkpoints and Hugging Face directories.",
      config::Range(1, kMost));
  schema.Add(
      "pipeline_parallel_size",
      [field](Options& o) -> auto& { return field(o).pipeline_parallel_size; },
      "Stages of layers, each on as many ranks; default as of tensor_parallel_size.",
      config::Range(1, kMost));
  AddExpertRanks(
      schema, [field](Options& o) -> auto& { return field(o).moe_ep_size; },
      [field](Options& o) -> auto& { return field(o).moe_tp_size; },
      "an engine's own, and of others tensor_parallel_size / moe_tp_size, or 1: each rank has a "
      "part of every expert.");
}

// Declares --speculation, --draft-model and --max-draft-len in `schema`; `field` gives the
// ExecutorOptions, `draft_model` the path.
template <typename Options, typename Field, typename DraftField>
void AddSpeculation(config::Schema<Options>& schema, const Field& field,
                    const DraftField& draft_model) {
  schema.Add(
      "speculation", [field](Options& o) -> auto& { return field(o).drafts; },
      "Draft tokens that a step verifies beside the newest one, which changes no token: none, what "
      "followed the last tokens where they stood before (ngram), also in earlier outputs (suffix), "
      "what the model's own heads say (medusa, and auto where a model has heads), or a head of "
      "EAGLE that --draft-model names (eagle, and auto beside it). Only as many as pay.",
      config::OneOf({"auto", "none", "ngram", "medusa", "suffix", "eagle"}));
  schema.Add("draft_model", draft_model,
             "A smaller model of the same vocabulary that proposes draft tokens in place of that, "
             "or the directory of a head of EAGLE or EAGLE-3 for the model.");
  schema.Add(
      "max_draft_len", [field](Options& o) -> auto& { return field(o).max_draft_len; },
      "Draft tokens of a sequence in a step, those that clients send too, below the block size; "
      "default: the engine's, or 4 where that is 0 and --speculation or --draft-model is given, "
      "and of heads as many as their tree has nodes.",
      config::Range(0, 127));
}

// Declares those of `run` and `chat` in `schema`; `field` finds them in Options.
template <typename Options, typename Field>
void AddEngineOptions(config::Schema<Options>& schema, const Field& field) {
  AddDownload(schema, [field](Options& o) -> auto& { return field(o).download; });
  AddDevice(schema, [field](Options& o) -> auto& { return field(o).device; });
  AddDType(
      schema, [field](Options& o) -> auto& { return field(o).dtype; }, kComputedIn);
  AddQuantization(schema, [field](Options& o) -> auto& { return field(o).quantization; });
  schema.Add(
      "threads", [field](Options& o) -> auto& { return field(o).num_threads; },
      "CPU threads; default: the usable cores.", config::Range(1, 1024));
  schema.Add(
      "ops", [field](Options& o) -> auto& { return field(o).ops; },
      "Operator table by name, such as reference, cpu/avx2 or cuda.");
  AddRanks(schema, field);
  AddDeterministic(schema, [field](Options& o) -> auto& { return field(o).executor; });
  AddGpuWeights(schema, [field](Options& o) -> auto& { return field(o).executor; });
  AddSpeculation(
      schema, [field](Options& o) -> auto& { return field(o).executor; },
      [field](Options& o) -> auto& { return field(o).draft_model; });
  schema.Add(
      "kv_cache_free_memory_fraction",
      [field](Options& o) -> auto& { return field(o).executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", config::Range(0.001, 0.999));
}

// Open, and loader::Load, with a bar that shows their progress.
Result<OpenedModel> OpenModel(const std::filesystem::path& dir, const ModelOptions& options);
Result<loader::Loaded> LoadModel(const std::filesystem::path& dir, const ModelOptions& options);

}  // namespace inflight::tool
