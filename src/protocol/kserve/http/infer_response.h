// SPDX-License-Identifier: Apache-2.0
// serving::Response -> body of the answer to POST .../infer (docs/reference/protocol/http.md).
#pragma once

#include <map>
#include <string>

#include "base/memory_account.h"
#include "inflight/status.h"
#include "json/json_writer.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/http/binary_framing.h"
#include "serving/core/request.h"

namespace inflight::kserve_http {

enum class DataPlace : uint8_t { kJson, kBinary, kSharedMemory };

// Where the data of outputs goes.
struct OutputForm {
  bool is_binary_by_default = false;        // for outputs that the request does not list
  std::map<std::string, DataPlace> listed;  // by name
};

// JSON, then the binary tensors, which are sent from where they lie. What the JSON may take is
// charged to `memory`, which may be null, while it is written: kResourceExhausted.
Result<http_listener::HttpResponse> WriteInfer(const serving::Response& response,
                                               const OutputForm& form,
                                               const BinaryFraming& framing = {},
                                               const std::shared_ptr<AccountShare>& memory = {});

void WriteParameter(const serving::ParameterValue& value, json::Writer& out);

}  // namespace inflight::kserve_http
