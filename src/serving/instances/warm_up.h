// SPDX-License-Identifier: Apache-2.0
// The requests that a model's configuration wants answered before it is ready (`model_warmup`,
// docs/reference/repositories.md, "Warm-up").
#pragma once

#include <filesystem>
#include <functional>

#include "inflight/status.h"
#include "serving/core/model.h"

namespace inflight::serving {

// Runs each sample for each instance, one request after the other, and takes them out of the
// model's statistics again. Before the model is known to anybody. Files are looked for below
// `<model_dir>/warmup`.
// Errors: kInvalidArgument names the sample and what failed.
Status WarmUp(Model& model, const std::filesystem::path& model_dir);

// The same for one new instance of a model that serves: `infer` brings a request there, and counts
// nothing.
Status WarmUpOne(const Model& model, const std::filesystem::path& model_dir,
                 const std::function<void(Request, ResponseHandler)>& infer);

}  // namespace inflight::serving
