// SPDX-License-Identifier: Apache-2.0
// What front ends ask for and are shown when they load and unload models.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "inflight/status.h"

namespace inflight::serving {

// What a load request brings in place of a model's directory: a configuration as JSON, and files.
struct LoadOverride {
  std::optional<std::string> config_json;
  std::map<std::string, std::string> files;  // "<version>/<path>" -> content

  bool empty() const { return !config_json && files.empty(); }
};

struct IndexEntry {
  std::string name;
  std::string version;
  std::string state;  // "READY", "UNAVAILABLE", "LOADING", "UNLOADING"
  std::string reason;
};

// A repository that comes while the server runs.
struct AddedRepository {
  std::string root;
  std::string model;      // the name of one of its models, whatever its directory is called
  std::string directory;  // of that model in `root`
};

// What clients of KServe are told of a load: that contract has one class for all that failed.
inline Status AsContractLoadStatus(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return InvalidArgument(status.message());
}

}  // namespace inflight::serving
