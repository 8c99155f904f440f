// SPDX-License-Identifier: Apache-2.0
#include "builder/tune.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::builder {

Result<std::string> TuneProducts(const model::ModelConfig& config,
                                 const model::EngineLimits& limits, Device& gpu) {
  const int64_t begin_ns = Clock::System().NowNs();
  const ops::ShapeClass shape = model::KernelShape(config);
  RETURN_IF_ERROR(ops::CheckRunnable(gpu, shape));
  ASSIGN_OR_RETURN(const auto stream,
                   ops::MakeStream(gpu, shape, limits.max_num_tokens, limits.max_batch_size));
  RETURN_IF_ERROR(ops::TuneLinears(
      model::LinearShapes(config, limits.max_num_tokens, limits.max_batch_size), *stream));
  logging::Info("products tuned",
                {{"seconds", static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9}});
  return ops::SaveTuning(*stream);
}

}  // namespace inflight::builder
