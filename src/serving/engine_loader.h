// SPDX-License-Identifier: Apache-2.0
// How the server gets an executor for a directory. Tests put a fake one here; everything else of
// the server is the same code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "serving/llm_model.h"
#include "serving/server.h"

namespace inflight {
class Device;
}

namespace inflight::serving {

struct LoadedEngine {
  LlmBackend backend;
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are expected
};

// Opens `dir` (Hugging Face directory, checkpoint or engine) and starts an executor on it. What it
// takes of the device's memory stands in the ledger under the name of `owner`, "tensorrt_llm/1",
// and is given back when the executor goes.
using EngineLoader = std::function<Result<LoadedEngine>(
    const std::filesystem::path& dir, const std::string& owner, const ExecutorOptions& options)>;

// Builds where needed and runs on the device that the options name, or on the one given.
Result<EngineLoader> LocalEngineLoader(const ServerOptions& options,
                                       std::shared_ptr<Device> device = nullptr);

// CreateServer with another way to executors.
Result<std::unique_ptr<Server>> CreateServerWith(const ServerOptions& options, EngineLoader load);

}  // namespace inflight::serving
