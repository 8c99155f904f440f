// SPDX-License-Identifier: Apache-2.0
// A request of the server as our models take it. Inputs that lie in one piece in the host's memory
// are not copied: they are the server's until the request is released.
#pragma once

#include "inflight/status.h"
#include "protocol/triton_backend/triton_api.h"
#include "serving/core/request.h"

namespace inflight::triton_backend {

// Parameters of the request are custom ones; those that the protocol reserves are the server's own
// business. kInvalidArgument for a parameter of another type than text, number and switch.
Result<serving::Request> ReadRequest(TRITONBACKEND_Request* request);

}  // namespace inflight::triton_backend
