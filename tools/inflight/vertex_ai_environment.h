// SPDX-License-Identifier: Apache-2.0
// What Vertex AI tells a container by its environment (docs/reference/protocol/vertex-ai.md).
#pragma once

#include "serve_options.h"

namespace inflight::tool {

// Before flags: AIP_MODE=PREDICTION allows this front end and neither HTTP nor gRPC; AIP_HTTP_PORT
// is its port.
Status SetFromVertexAi(ServeOptions& options);

// After flags: where this front end is allowed and nothing says what to serve, the repository is
// AIP_STORAGE_URI.
void AddVertexAiStorage(ServeOptions& options);

}  // namespace inflight::tool
