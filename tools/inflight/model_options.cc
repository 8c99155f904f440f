// SPDX-License-Identifier: Apache-2.0
#include "model_options.h"

#include "base/status_macros.h"
#include "progress.h"

namespace inflight::tool {

Result<OpenOptions> ModelOptions::ToOpenOptions() const {
  OpenOptions open{.device = device,
                   .num_threads = num_threads.value_or(0),
                   .dtype = dtype,
                   .ops = ops,
                   .tensor_parallel_size = tensor_parallel_size,
                   .pipeline_parallel_size = pipeline_parallel_size,
                   .moe_ep_size = moe_ep_size,
                   .moe_tp_size = moe_tp_size,
                   .draft_model = draft_model,
                   .executor = executor};
  RETURN_IF_ERROR(quantization.SetIn(open));
  return open;
}

namespace {

// The directory of the model, and in `open` that of the one that drafts for it.
Result<std::filesystem::path> FindModels(const std::filesystem::path& dir,
                                         const ModelOptions& options, OpenOptions& open) {
  if (!open.draft_model.empty()) {
    const auto draft = ModelDirectory(open.draft_model, {}, options.download);
    if (!draft.ok()) return draft.status().WithPrefix("draft_model");
    open.draft_model = *draft;
  }
  return ModelDirectory(dir, {}, options.download);
}

}  // namespace

Result<OpenedModel> OpenModel(const std::filesystem::path& dir, const ModelOptions& options) {
  ASSIGN_OR_RETURN(OpenOptions open, options.ToOpenOptions());
  ASSIGN_OR_RETURN(const std::filesystem::path local, FindModels(dir, options, open));
  ProgressBar bar("load");
  open.progress = [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); };
  return Open(local, open);
}

Result<loader::Loaded> LoadModel(const std::filesystem::path& dir, const ModelOptions& options) {
  ASSIGN_OR_RETURN(OpenOptions open, options.ToOpenOptions());
  ASSIGN_OR_RETURN(const std::filesystem::path local, FindModels(dir, options, open));
  ProgressBar bar("load");
  open.progress = [&bar](double fraction, std::string_view what) { bar.Update(fraction, what); };
  return loader::Load(local, open);
}

}  // namespace inflight::tool
