// SPDX-License-Identifier: Apache-2.0
// How the server gets an executor for a directory. Tests put a fake one here; everything else of
// the server is the same code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "inflight/open.h"
#include "serving/llm/llm_model.h"

namespace inflight::serving {

struct LoadedEngine {
  LlmBackend backend;
  std::string device;                   // "cpu", "cuda:0"
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are expected
};

// Opens `dir` (Hugging Face directory, checkpoint or engine) and starts an executor on it. What it
// takes of the device's memory stands in the ledger under the name of `owner`, "tensorrt_llm/1",
// and is given back when the executor goes. `gpu` is the index of a GPU that the model's file asks
// for: an error names its key where it cannot be had.
using EngineLoader =
    std::function<Result<LoadedEngine>(const std::filesystem::path& dir, const std::string& owner,
                                       const ExecutorOptions& options, std::optional<int> gpu)>;

// Opens models as `options` say, on the device that they name or on the devices given there.
Result<EngineLoader> LocalEngineLoader(OpenOptions options);

// `options` for the model of one EngineLoader call, on a GPU that can be had.
Result<OpenOptions> OptionsFor(OpenOptions options, const std::filesystem::path& dir,
                               const std::string& owner, const ExecutorOptions& executor,
                               std::optional<int> gpu);

}  // namespace inflight::serving
