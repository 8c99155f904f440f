// SPDX-License-Identifier: Apache-2.0
// Body of POST .../infer -> serving::Request (docs/reference/protocol/http.md, "infer").
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "inflight/status.h"
#include "model_config.pb.h"
#include "protocol/kserve/http/infer_response.h"
#include "serving/core/request.h"
#include "serving/memory/shared_memory.h"

namespace inflight::kserve_http {

struct ParsedInfer {
  serving::Request request;  // model_name and model_version are the caller's to set
  OutputForm form;
};

// Tensors of the binary part point into `body`, which they keep alive. A body without JSON is the
// data of the model's only input. Tensors in shared memory are read here. Errors carry Triton's
// texts. What is made beside `body` is charged to `memory` before it is, and stays so with the
// request.
Result<ParsedInfer> ParseInfer(const ::inference::ModelConfig& config,
                               const serving::ClientRegions& regions,
                               const std::shared_ptr<const std::string>& body,
                               std::optional<size_t> json_length, size_t max_input_bytes,
                               const std::shared_ptr<AccountShare>& memory = nullptr);

}  // namespace inflight::kserve_http
