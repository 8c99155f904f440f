// SPDX-License-Identifier: Apache-2.0
// What a server is started with, as far as models and requests go; front ends have options of their
// own.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inflight/open.h"
#include "loader/recording.h"
#include "object_store/options.h"
#include "receipts/issuer.h"
#include "serving/memory/shared_memory_options.h"
#include "serving/statistics/statistics.h"
#include "serving/trace/tracer.h"

namespace inflight {
class Orchestrator;
}

namespace inflight::serving {

class NamedAdapters;
class PromptTableDir;
class RateLimiter;
class ResponseCache;

// Who loads models while the server runs: nobody, a watch of the repositories, or requests.
enum class ControlMode : uint8_t { kNone, kPoll, kExplicit };

// What stop words of a text model end: a text that contains one, or a sequence that ends with its
// tokens, as upstream's do. By release: tokens where a repository is written for one of upstream's
// (text in BLS from 0.19 on), else text.
enum class StopWordMatch : uint8_t { kByRelease, kText, kTokens };

struct ServerOptions {
  std::vector<std::string> model_dirs;  // Hugging Face, checkpoint or engine directories: served
                                        // under the four models' names
  std::vector<std::string> model_repositories;  // folders, or addresses of object stores
  object_store::Options remote;                 // how those are read
  // The directory of a model or tokenizer that a repository's file names; empty:
  // artifact::ResolveModelDir. Threads: any, one at a time for each repository.
  std::function<Result<std::filesystem::path>(const std::filesystem::path& named)> find_model;
  bool model_namespacing = false;  // each of them is a namespace (repositories.h)
  ControlMode control_mode = ControlMode::kNone;
  std::vector<std::string> load_models;  // at start, in mode explicit; "*" = all
  int poll_secs = 15;
  std::string model_config_name;  // <model>/configs/<name>.pbtxt where it exists
  int model_load_retries = 0;     // of each version
  int model_load_threads = 4;     // loads that run at a time, of models that do not touch
  bool auto_complete = true;      // configurations (auto_complete.h)
  SharedMemoryOptions shared_memory;
  std::string server_id = "triton";
  TraceOptions trace;
  StatisticsOptions statistics;                   // of each model
  std::shared_ptr<ResponseCache> response_cache;  // of the models that ask for it; null = none
  std::shared_ptr<RateLimiter> rate_limiter;      // of models on instances; null = off
  std::shared_ptr<PromptTableDir> prompt_tables;  // that requests may name; null = none
  bool strict_readiness = true;
  StopWordMatch stop_words = StopWordMatch::kByRelease;
  bool exit_on_error = true;                   // a model that fails to load ends the start
  std::shared_ptr<NamedAdapters> adapters;     // (LoRA) of every LLM, by name; null = none
  OpenOptions open;                            // of every LLM; config.pbtxt changes the executor's
  loader::Recording recording;                 // of every LLM
  receipts::IssueOptions issuing;              // of their answers
  std::shared_ptr<Orchestrator> orchestrator;  // of LLMs of several ranks; null = none
  std::string chat_template;  // file of the one of every text model; empty: the models' own
  // Of model_dirs only; a repository says both in its files.
  bool decoupled = true;                 // requests may stream
  bool include_input_in_output = false;  // non-streaming answers begin with the prompt
};

}  // namespace inflight::serving
