// SPDX-License-Identifier: Apache-2.0
#include "local_model.h"

#include "artifact/hub_cache.h"
#include "builder/devices.h"
#include "executor/executor.h"
#include "executor/local_backend.h"
#include "progress.h"

namespace inflight::tool {

Result<LocalModel> OpenLocalModel(const std::filesystem::path& dir,
                                  const LocalModelOptions& options) {
  ASSIGN_OR_RETURN(const std::filesystem::path model_dir, artifact::ResolveModelDir(dir));
  LocalModel model;
  ASSIGN_OR_RETURN(const auto devices,
                   builder::DeviceChoice::ByName(options.device, options.num_threads.value_or(0)));
  builder::OpenOptions open;
  if (options.dtype) open.dtype = DTypeFromName(*options.dtype);
  ASSIGN_OR_RETURN(open.quant_algo, options.quantization.Algo());
  open.fp8_kv_cache = options.quantization.Fp8KvCache();
  open.quantize_lm_head = options.quantization.QuantizeLmHead();
  ASSIGN_OR_RETURN(model.device, devices->For(model_dir, open));
  {
    ProgressBar bar("load");
    ASSIGN_OR_RETURN(model.engine, builder::Open(model_dir, *model.device, open,
                                                 [&bar](double fraction, std::string_view what) {
                                                   bar.Update(fraction, what);
                                                 }));
  }
  if (!model.engine->tokenizer_dir.empty()) {
    ASSIGN_OR_RETURN(model.tokenizer, tokenizer::Tokenizer::Load(model.engine->tokenizer_dir));
  }
  ASSIGN_OR_RETURN(auto backend, executor::CreateLocalBackend(model.engine, *model.device,
                                                              options.executor, options.ops));
  ASSIGN_OR_RETURN(model.executor, executor::CreateExecutor(std::move(backend), options.executor));
  return model;
}

}  // namespace inflight::tool
