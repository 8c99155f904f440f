// SPDX-License-Identifier: Apache-2.0
// Loads models: from a model repository as upstream lays it out, or one directory under the four
// models' names. What cannot be loaded becomes an index entry with its reason.
//
//   <repository>/<model>/config.pbtxt, <repository>/<model>/<version>/...
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_pool.h"
#include "contract/key_report.h"
#include "contract/llm_parameters.h"
#include "serving/config_fields.h"
#include "serving/engine_loader.h"
#include "serving/llm_model.h"
#include "serving/model_config.h"
#include "serving/server.h"
#include "tokenizer/tokenizer.h"

namespace inflight::serving {

// One version of one model, loaded or not.
struct ModelEntry {
  std::string name;
  std::string version;           // empty when none was found
  std::shared_ptr<Model> model;  // null = not loaded
  Status status;                 // why not
  bool required = true;          // its failure makes the server not ready
};

// What became of the keys of one config.pbtxt.
struct ModelReport {
  std::string model;
  std::string version;
  contract::KeyReport keys;
};

class Repository {
 public:
  Repository(const ServerOptions& options, EngineLoader load,
             std::shared_ptr<WorkerPool> text_pool);

  void LoadRepository(const std::filesystem::path& dir);
  void LoadModelDir(const std::filesystem::path& dir);  // generated configurations

  const std::vector<ModelEntry>& entries() const { return entries_; }
  const std::vector<std::shared_ptr<LlmModel>>& llms() const { return llms_; }
  const std::vector<ModelReport>& reports() const { return reports_; }  // of files, in load order

 private:
  struct Candidate {
    std::filesystem::path dir;
    ParsedModelConfig parsed;
    ModelKind kind = ModelKind::kUnknown;
    std::vector<std::string> versions;
    bool is_generated = false;  // has no file that a report could be about
  };
  // What the text models and pipelines need to know of an LLM.
  struct LoadedLlm {
    std::shared_ptr<LlmModel> model;
    std::filesystem::path tokenizer_dir;  // beside its engine
  };

  Result<Candidate> Poll(const std::filesystem::path& dir) const;
  void FindPartners(const std::vector<Candidate>& candidates);
  void Load(Candidate& candidate);
  void ReportParameters(const Candidate& candidate, contract::KeyReport& keys) const;
  Result<std::shared_ptr<Model>> LoadVersion(const Candidate& candidate, const std::string& version,
                                             contract::KeyReport& keys);
  Result<std::shared_ptr<Model>> LoadLlm(const Candidate& candidate, const std::string& version,
                                         contract::KeyReport& keys);
  void ShareMemory(contract::LlmParameters& parameters, contract::KeyReport& keys);
  void Add(ModelEntry entry);

  // --- text models and pipelines (repository_pipelines.cc) ---
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
  Result<std::shared_ptr<const tokenizer::Tokenizer>> LoadTokenizer(const Candidate& candidate,
                                                                    const std::string& named);
  ::inference::ModelConfig Complete(const Candidate& candidate) const;
  const LoadedLlm* LlmOf(const std::string& model) const;
  // The version asked for, or the latest loaded.
  std::shared_ptr<Model> Find(const std::string& name, int64_t version = -1) const;

  const ServerOptions& options_;
  const EngineLoader load_;
  const std::shared_ptr<WorkerPool> text_pool_;
  std::vector<ModelEntry> entries_;
  std::vector<ModelReport> reports_;
  std::vector<std::shared_ptr<LlmModel>> llms_;
  std::map<std::string, LoadedLlm> loaded_llms_;  // by name; the latest version
  std::map<std::string, std::string> llm_names_;  // of text models and pipelines: their LLM's
  int open_shares_ = 0;  // LLMs still to load whose files leave their memory open
  std::map<std::string, std::shared_ptr<const tokenizer::Tokenizer>> tokenizers_;  // by directory
};

// "Invalid argument: ...": how the index prints a status.
std::string ReasonText(const Status& status);

}  // namespace inflight::serving
