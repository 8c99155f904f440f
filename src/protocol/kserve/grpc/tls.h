// SPDX-License-Identifier: Apache-2.0
// What a gRPC port asks of its clients before the first call: nothing, TLS, or TLS with a
// certificate of theirs (docs/reference/protocol/grpc.md, "Security").
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "inflight/status.h"
#include "protocol/kserve/grpc/grpc_options.h"

namespace inflight::kserve_grpc {

// Reads the files. Errors name the flag; a key or a certificate without TLS is one, since a port
// that its operator takes for encrypted must not open in plain text.
Result<std::shared_ptr<::grpc::ServerCredentials>> MakeCredentials(const TlsOptions& options);

}  // namespace inflight::kserve_grpc
