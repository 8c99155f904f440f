// SPDX-License-Identifier: Apache-2.0
// A model as its files stand, before it is loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serving/configuration/config_fields.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/override_dir.h"
#include "serving/repository/repository_layout.h"

namespace inflight::serving {

using FileTime = std::filesystem::file_time_type;

struct Candidate {
  std::filesystem::path dir;
  ParsedModelConfig parsed;
  ModelKind kind = ModelKind::kUnknown;
  std::vector<std::string> versions;
  bool is_generated = false;                 // has no file that a report could be about
  bool is_from_request = false;              // the configuration came with a load
  std::set<std::string> own_values;          // of parameters in the model's own file, then
  FileTime changed;                          // the newest of its files
  FileTimes data_files;                      // of its directory
  std::shared_ptr<const OverrideDir> files;  // where they came with a request
  // LLMs of the same call still to load whose files leave their memory open; null: none.
  std::shared_ptr<int> open_shares;
};

// With any number where a template left the batch size open: it is the engine's, which is not known
// yet.
::inference::ModelConfig WithAnyBatchSize(const ParsedModelConfig& parsed);

// Where `named`, a path that the configuration names as `field`, leads. One that came with a
// request leads below the model's directory, unless the model's own file names the same; else
// kInvalidArgument, and nothing is told of what lies there.
Result<std::filesystem::path> ResolveNamed(const Candidate& candidate, std::string_view field,
                                           const std::string& named);

// An LLM's configuration that was written for a release of upstream's: it declares no input that
// only this server has.
bool IsUpstreams(const ::inference::ModelConfig& llm);

// The models that an ensemble's steps name, or the parameters of a BLS.
std::vector<std::string> MembersOf(const ::inference::ModelConfig& config);

}  // namespace inflight::serving
