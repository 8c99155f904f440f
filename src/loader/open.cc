// SPDX-License-Identifier: Apache-2.0
#include "inflight/open.h"

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "inflight/log.h"
#include "loader/devices.h"
#include "loader/loader.h"

namespace inflight {

Result<std::shared_ptr<Devices>> FindDevices(const std::string& device, int num_threads) {
  return Devices::ByName(device, num_threads);
}

Result<OpenedModel> Open(const std::filesystem::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(loader::Loaded loaded, loader::Load(directory, options));
  OpenedModel model{.info = std::move(loaded.info), .executor = std::move(loaded.executor)};
  if (!model.info.tokenizer_dir.empty()) {
    ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Load(model.info.tokenizer_dir));
  }
  return model;
}

Result<ModelInfo> Inspect(const std::filesystem::path& directory, const OpenOptions& options) {
  ASSIGN_OR_RETURN(loader::Plan plan, loader::MakePlan(directory, options));
  return std::move(plan.info);
}

void SetLogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kVerbose:
      return logging::SetLevel(logging::Level::kVerbose);
    case LogLevel::kInfo:
      return logging::SetLevel(logging::Level::kInfo);
    case LogLevel::kWarning:
      return logging::SetLevel(logging::Level::kWarning);
    case LogLevel::kError:
      return logging::SetLevel(logging::Level::kError);
  }
}

}  // namespace inflight
