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

class Repository {
 public:
  Repository(const ServerOptions& options, EngineLoader load,
             std::shared_ptr<WorkerPool> text_pool);

  // True when a subdirectory holds a config.pbtxt.
  static bool IsRepository(const std::filesystem::path& dir);

  void LoadRepository(const std::filesystem::path& dir);
  void LoadModelDir(const std::filesystem::path& dir);  // generated configurations

  const std::vector<ModelEntry>& entries() const { return entries_; }
  const std::vector<std::shared_ptr<LlmModel>>& llms() const { return llms_; }

 private:
  enum class Kind : uint8_t { kLlm, kPreprocessing, kPostprocessing, kEnsemble, kBls, kUnknown };
  struct Candidate {
    std::filesystem::path dir;
    ParsedModelConfig parsed;
    Kind kind = Kind::kUnknown;
    std::vector<std::string> versions;
  };

  static Kind KindOf(const ::inference::ModelConfig& config);
  Result<Candidate> Poll(const std::filesystem::path& dir) const;
  void Load(Candidate& candidate);
  Result<std::shared_ptr<Model>> LoadVersion(const Candidate& candidate,
                                             const std::string& version);
  Result<std::shared_ptr<Model>> LoadLlm(const Candidate& candidate, const std::string& version);
  Result<std::shared_ptr<Model>> LoadPreprocessing(const Candidate& candidate,
                                                   const std::string& version);
  Result<std::shared_ptr<Model>> LoadPostprocessing(const Candidate& candidate,
                                                    const std::string& version);
  Result<std::shared_ptr<Model>> LoadEnsemble(const Candidate& candidate,
                                              const std::string& version) const;
  Result<std::shared_ptr<const tokenizer::Tokenizer>> LoadTokenizer(
      const ::inference::ModelConfig& config);
  ::inference::ModelConfig Complete(const Candidate& candidate) const;
  void Add(ModelEntry entry);
  std::shared_ptr<Model> Find(const std::string& name) const;  // latest version loaded

  const ServerOptions& options_;
  const EngineLoader load_;
  const std::shared_ptr<WorkerPool> text_pool_;
  std::vector<ModelEntry> entries_;
  std::vector<std::shared_ptr<LlmModel>> llms_;
  std::filesystem::path engine_tokenizer_dir_;  // beside the first engine loaded
  std::map<std::string, std::shared_ptr<const tokenizer::Tokenizer>> tokenizers_;  // by directory
};

// "Invalid argument: ...": how the index prints a status.
std::string ReasonText(const Status& status);

}  // namespace inflight::serving
