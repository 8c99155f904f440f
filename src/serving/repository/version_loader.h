// SPDX-License-Identifier: Apache-2.0
// Loads one version of one model, of any kind. Text models and pipelines take from the LLM that
// they belong to what their files leave open: batch size, vocabulary, tokenizer.
//
// Threads: one at a time, under the mutex of the owner, which is given up while a version is loaded
// or warmed up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_pool.h"
#include "contract/key_report.h"
#include "contract/llm_parameters.h"
#include "inflight/tokenizer.h"
#include "serving/core/model.h"
#include "serving/repository/candidate.h"
#include "serving/repository/engine_loader.h"
#include "serving/repository/model_table.h"
#include "serving/repository/server_options.h"

namespace inflight::serving {

// What the text models and pipelines need to know of an LLM.
struct LoadedLlm {
  int max_batch_size = 1;
  int vocab_size = 0;
  int max_input_len = 0;
  std::filesystem::path tokenizer_dir;  // beside its engine
};

class VersionLoader {
 public:
  // The version of a loaded model, or its latest for -1; null without.
  using FindModel = std::function<std::shared_ptr<Model>(const std::string& name, int64_t version)>;

  // `mutex` is the owner's. `options` and `mutex` outlive this. In `published` stands what requests
  // find, at the latest when the model is prepared for them.
  VersionLoader(const ServerOptions& options, EngineLoader load,
                std::shared_ptr<WorkerPool> text_pool, std::string name_space, std::mutex& mutex,
                FindModel find, std::shared_ptr<const PublishedTable> published);

  // Which LLM each text model and pipeline belongs to, and how many LLMs leave their memory open.
  // Before any of them is loaded.
  void FindPartners(std::vector<Candidate>& candidates);
  // Ready for its first request, with the time that this took.
  Result<std::shared_ptr<Model>> Load(const Candidate& candidate, const std::string& version,
                                      contract::KeyReport& keys);
  // Of a normalised configuration.
  Status CheckInstances(const ::inference::ModelConfig& config) const;

  const LoadedLlm* LlmOf(const std::string& model) const;
  void ForgetLlm(const std::string& name) { loaded_llms_.erase(name); }
  void ForgetPartner(const std::string& name) { llm_names_.erase(name); }
  void ForgetTokenizers() { tokenizers_.clear(); }

 private:
  void ReportParameters(const Candidate& candidate, contract::KeyReport& keys) const;
  // A path that a model's file names, or the local copy of an address in an object store.
  Result<std::filesystem::path> Fetch(const std::filesystem::path& path,
                                      std::string_view field) const;
  // A directory that a model's file names, or where a model of the hub is.
  Result<std::filesystem::path> FindModelDir(const std::filesystem::path& named) const;
  Result<std::shared_ptr<Model>> LoadVersion(const Candidate& candidate, const std::string& version,
                                             contract::KeyReport& keys);
  Result<std::shared_ptr<Model>> LoadLlm(const Candidate& candidate, const std::string& version,
                                         contract::KeyReport& keys);
  Result<std::shared_ptr<Model>> LoadConformance(const Candidate& candidate,
                                                 const std::string& version) const;

  // --- text models and pipelines (version_loader_pipelines.cc) ---
  Result<std::shared_ptr<Model>> LoadPreprocessing(const Candidate& candidate,
                                                   const std::string& version,
                                                   contract::KeyReport& keys);
  Result<std::shared_ptr<Model>> LoadPostprocessing(const Candidate& candidate,
                                                    const std::string& version,
                                                    contract::KeyReport& keys);
  Result<std::shared_ptr<Model>> LoadEnsemble(const Candidate& candidate,
                                              const std::string& version) const;
  Result<std::shared_ptr<Model>> LoadBls(const Candidate& candidate, const std::string& version,
                                         contract::KeyReport& keys) const;
  // In version_loader_llm_api.cc.
  Result<std::filesystem::path> LlmApiModelDir(const Candidate& candidate,
                                               const std::string& model) const;
  Result<std::shared_ptr<Model>> LoadLlmApi(const Candidate& candidate, const std::string& version);
  Result<std::filesystem::path> FindTokenizerDir(const Candidate& candidate,
                                                 const std::string& named) const;
  Result<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::filesystem::path& dir);
  ::inference::ModelConfig Complete(const Candidate& candidate) const;
  bool MatchesStopTexts(const Candidate& ensemble, const LlmModel& llm) const;

  const ServerOptions& options_;
  const EngineLoader load_;
  const std::shared_ptr<WorkerPool> text_pool_;
  const std::string name_space_;
  std::mutex& mutex_;
  const FindModel find_;
  const std::shared_ptr<const PublishedTable> published_;
  std::map<std::string, LoadedLlm> loaded_llms_;  // by name; the latest version
  std::map<std::string, std::string> llm_names_;  // of text models and pipelines: their LLM's
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;  // by directory
};

}  // namespace inflight::serving
