// SPDX-License-Identifier: Apache-2.0
// `inflight serve --shadow-of URL`: a port before another server, whose clients get that one's
// answers while this server is asked the same and compared (docs/shadow.md).
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "serve_options.h"
#include "shadow/grpc_proxy.h"
#include "shadow/proxy.h"
#include "shadow/report.h"

namespace inflight::tool {

// Declares the options of it.
void AddShadowOf(config::Schema<ServeOptions>& schema);

// Before models are loaded. kInvalidArgument names the option at fault.
Status CheckShadowOf(const ServeOptions& options);

// Where its port listens: as HTTP or gRPC of this server does, by the URL.
const std::string& ShadowAddress(const ServeOptions& options);

class ShadowOf {
 public:
  // This server listens on `http_port` and `grpc_port`. Null where the options ask for no shadow.
  static Result<std::unique_ptr<ShadowOf>> Start(const ServeOptions& options, int http_port,
                                                 int grpc_port);
  ~ShadowOf();

  int port() const;
  // Lets requests that run finish for `drain`, and prints what all came to.
  void Stop(std::chrono::milliseconds drain);

 private:
  using File = std::unique_ptr<FILE, int (*)(FILE*)>;
  explicit ShadowOf(File report);

  const File file_;
  shadow::Report report_;
  std::unique_ptr<shadow::Proxy> http_;  // one of both
  std::unique_ptr<shadow::GrpcProxy> grpc_;
};

}  // namespace inflight::tool
