// SPDX-License-Identifier: Apache-2.0
// Loads one version of a `tensorrt_llm` model: what its configuration says becomes an executor. For
// the server's repository and for the plug-in that runs in another server.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "contract/key_report.h"
#include "inflight/executor.h"
#include "serving/llm/llm_model.h"
#include "serving/repository/candidate.h"
#include "serving/repository/engine_loader.h"

namespace inflight::serving {

struct LoadedLlmModel {
  std::shared_ptr<LlmModel> model;
  std::filesystem::path tokenizer_dir;  // beside its engine
  int stats_check_period_ms = 0;        // as its configuration says
};

// What a configuration leaves open.
struct LlmLoadOptions {
  ExecutorOptions executor;
  // Whether a request that names one of the model's end ids ends at each of them.
  bool end_ids_are_alike = false;
  std::shared_ptr<NamedAdapters> adapters{};           // of requests that name one; null: none
  std::shared_ptr<PromptTableDir> prompt_tables = {};  // of the server, or null
  // Where guides are made and files of the server are read; null: no guides, and callers read.
  std::shared_ptr<WorkerPool> text_pool = {};
  // Makes a path that may be an address of an object store a local one; null: all are local.
  std::function<Result<std::filesystem::path>(const std::filesystem::path&)> fetch{};
};

// `load` is called once. `keys` gets the lines of the configuration's parameters, also where the
// load fails.
Result<LoadedLlmModel> LoadLlmModel(const Candidate& candidate, const std::string& version,
                                    LlmLoadOptions options, const EngineLoader& load,
                                    contract::KeyReport& keys);

}  // namespace inflight::serving
