// SPDX-License-Identifier: Apache-2.0
// From the directory that SageMaker names to a model (docs/reference/protocol/sagemaker.md):
//
//   DIR/config.pbtxt           DIR is the model, its parent the repository
//   DIR/<model>/config.pbtxt   DIR is the repository; of several models the ensemble is meant
#pragma once

#include <filesystem>
#include <string>

#include "inflight/status.h"

namespace inflight::sagemaker {

struct ModelPlace {
  std::filesystem::path repository;
  std::string directory;  // of the model in it
};

// With symbolic links resolved. kInvalidArgument for what is no directory, lies below /dev, /proc
// or /sys, or does not tell which model is meant.
Result<ModelPlace> FindModelPlace(const std::string& url);

}  // namespace inflight::sagemaker
