// SPDX-License-Identifier: Apache-2.0
// How the server gets an executor for a directory. Tests put a fake one here; everything else of
// the server is the same code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "inflight/open.h"
#include "loader/orchestrator.h"
#include "loader/recording.h"
#include "receipts/issuer.h"
#include "serving/llm/llm_model.h"

namespace inflight::serving {

struct LoadedEngine {
  LlmBackend backend;
  std::string device;                   // "cpu", "cuda:0"
  std::filesystem::path tokenizer_dir;  // where the tokenizer's files are expected
  bool has_medusa = false;              // the model's Medusa heads propose tokens
};

// Where a model's file wants its engine to run.
struct AskedPlace {
  std::vector<int> gpus = {};          // of each rank; empty: where the server's options say
  std::vector<int> participants = {};  // of a launcher's processes
  std::string worker_program = {};     // that ranks are processes of; empty: the server's own
};

// Opens `dir` (Hugging Face directory, checkpoint or engine) and starts an executor on it. What it
// takes of the device's memory stands in the ledger under the name of `owner`, "tensorrt_llm/1",
// and is given back when the executor goes. An error names the key of `place` that cannot be had.
using EngineLoader =
    std::function<Result<LoadedEngine>(const std::filesystem::path& dir, const std::string& owner,
                                       const ExecutorOptions& options, const AskedPlace& place)>;

// Opens models as `options` say, on the device that they name or on the devices given there. With
// an orchestrator those of several ranks run on processes of their own. Each is recorded. Where
// receipts are issued, every file of a model is read once more, to hash it.
Result<EngineLoader> LocalEngineLoader(OpenOptions options,
                                       std::shared_ptr<Orchestrator> orchestrator = nullptr,
                                       loader::Recording recording = {},
                                       receipts::IssueOptions issuing = {});

// `options` for the model of one EngineLoader call, its first rank on a GPU that can be had.
Result<OpenOptions> OptionsFor(OpenOptions options, const std::filesystem::path& dir,
                               const std::string& owner, const ExecutorOptions& executor,
                               const AskedPlace& place);

}  // namespace inflight::serving
