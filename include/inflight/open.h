// SPDX-License-Identifier: Apache-2.0
// Opens a model: from a directory to an executor that runs, with the tokenizer beside it.
//
//   auto model = inflight::Open("/models/llama", {.device = "cpu"});
//   if (!model.ok()) return Fail(model.status());
//   inflight::Request request;
//   request.input_ids = *model->tokenizer->Encode("Once upon a time", true);
//   request.end_ids = model->info.end_ids;
//   auto id = model->executor->Enqueue(std::move(request), sink);  // a ResponseSink of yours
//
// examples/embed/main.cc is the whole program; docs/embedding.md says how to build one.
//
// Threads:  Open and Inspect may be called from any thread, and for several models at once; they
//           take as long as the weights need to be read. The executor has threads of its own.
// Lifetime: the executor holds the weights and the device's memory, and returns them when the last
//           reference goes. Its destructor cancels what is under way: call Shutdown first to let
//           requests end. Sinks, and an observer of ExecutorOptions, are the caller's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/executor.h"
#include "inflight/request.h"
#include "inflight/status.h"
#include "inflight/tokenizer.h"

namespace inflight {

// The devices that models of this process share, each with one account of its memory and one pool
// of CPU threads. Opaque; thread-safe.
class Devices;

// The processes of a group that compute a model together, as `inflight serve` joins or starts them.
// Opaque.
class RankProcesses;

// "auto" is the first GPU where there is one that has kernels for a model, else the CPU, and for an
// engine the kind of device that it was built for; "cpu", "cuda" (the first GPU) and "cuda:1" name
// one for all models. `num_threads` of the CPU pools: 0 = the usable cores. kInvalidArgument for
// other names, kUnavailable or kUnimplemented for a device that this machine or build does not
// have.
Result<std::shared_ptr<Devices>> FindDevices(const std::string& device = "auto",
                                             int num_threads = 0);

struct OpenOptions {
  std::string device = "auto";  // as of FindDevices
  int num_threads = 0;          // as of FindDevices
  // Shared with other models, in place of the two above. A process that opens several models on one
  // device shares them, so that each model knows what memory the others took. Null: one's own.
  std::shared_ptr<Devices> devices = nullptr;
  // Indices of GPUs, one for each rank, where the device is "auto"; empty: the first ones.
  std::vector<int> gpus = {};

  // auto | float32 | bfloat16 | float16. Other than stored only from a checkpoint or a Hugging Face
  // directory; "auto" is the stored one, and bfloat16 for float32 on a GPU.
  std::string dtype = "auto";
  // auto | none | W8A16 | W4A16 | W8A16_GPTQ | W4A16_GPTQ | FP8_PER_CHANNEL_PER_TOKEN: how the
  // linears of the layers are stored. "auto" is the model's own; another only from a checkpoint or
  // Hugging Face directory.
  std::string quant_algo = "auto";
  std::optional<int> group_size = std::nullopt;  // columns of a group of W8A16_GPTQ and W4A16_GPTQ;
                                                 // unset: the model's own, 128 of others
  std::optional<bool> fp8_kv_cache = std::nullopt;  // unset: the model's own; GPUs only
  // The output layer in fewer bits, too: in FP8 beside FP8 weights, on the CPU in int8 beside int8
  // and int4 ones. Unset: the model's own.
  std::optional<bool> quantize_lm_head = std::nullopt;
  std::string ops = {};    // table of operators by name, such as "reference"; empty = the fastest
  std::string owner = {};  // names the model's shares in the account of memory, for logs
  // Called on Open's thread with the part of the work that is done, [0, 1], and what is being done.
  std::function<void(double fraction, std::string_view what)> progress = nullptr;

  // Ranks that compute a part of the model each, on CPUs or on a GPU each (docs/multi-gpu.md): so
  // many share every layer, of so many stages of layers, on GPUs of one. Unset: an engine's own, 1
  // of others. An engine runs on the ranks that it was built for alone.
  std::optional<int> tensor_parallel_size = std::nullopt;
  std::optional<int> pipeline_parallel_size = std::nullopt;
  // Of the ranks that share a layer with experts, so many hold different ones, and so many a part
  // of the same ones each. Their product is tensor_parallel_size: one follows from the other, and
  // without both each rank holds a part of every expert. -1 is as unset.
  std::optional<int> moe_ep_size = std::nullopt;
  std::optional<int> moe_tp_size = std::nullopt;
  // Gives the processes that are a model's ranks, this one the first of them, where there are
  // several; null: threads of this process are. On GPUs they are too, unless the second says so.
  std::function<Result<std::shared_ptr<RankProcesses>>(int num_ranks)> rank_processes = nullptr;
  bool gpu_ranks_are_processes = false;

  // A smaller model of the same vocabulary that proposes tokens, as directories are given to Open,
  // or, on a CPU, a head of EAGLE for the model; empty: none. Not beside other `executor.drafts`.
  std::filesystem::path draft_model = {};

  ExecutorOptions executor = {};
};

// Bytes of the device's memory that a model holds.
struct ModelMemory {
  uint64_t weight_bytes = 0;
  uint64_t kv_cache_bytes = 0;
  uint64_t total_bytes = 0;  // these, and what steps work in
};

struct ModelInfo {
  std::filesystem::path directory;      // that was opened: of a hub id, the snapshot
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are; empty if there are none
  std::string architecture;             // by its Hugging Face name: "LlamaForCausalLM"
  std::string dtype;                    // that it is computed in: "bfloat16"
  std::string quant_algo;               // as of OpenOptions; "none" where weights have the dtype
  std::string device;                   // "cpu", "cuda:0"
  std::vector<TokenId> end_ids;         // that end an answer; all are in the vocabulary
  ExecutorLimits limits;                // of the executor
  DraftSource drafts = DraftSource::kNone;  // who proposes tokens; never kAuto
  ModelMemory memory;
};

struct OpenedModel {
  ModelInfo info;
  std::shared_ptr<const Tokenizer> tokenizer;  // null where the directory has none
  std::shared_ptr<Executor> executor;
};

// `directory` is a Hugging Face directory, a checkpoint or an engine, or the id of a model in the
// Hugging Face cache: "org/name" or "org/name@revision". Where it is no engine, weights are
// converted in memory.
//
// kNotFound: no such directory, or no model in it. kInvalidArgument: an option or a file is wrong;
// the message names it. kFailedPrecondition: an engine for another device. kResourceExhausted: the
// memory does not suffice, with the plan and what to change. kUnimplemented: a model, or an option,
// that is not supported on that device.
Result<OpenedModel> Open(const std::filesystem::path& directory, const OpenOptions& options = {});

// What Open would give, without loading weights and without taking memory: the same limits, while
// the device has as much memory free. Errors as of Open, but for those of the weights themselves.
Result<ModelInfo> Inspect(const std::filesystem::path& directory, const OpenOptions& options = {});

}  // namespace inflight
