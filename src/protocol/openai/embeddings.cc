// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings, which no model of this server answers.
#include <memory>
#include <string>

#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"

namespace inflight::openai {

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleEmbeddings(const Context&, const std::string&, const http_listener::HttpRequest&,
                      std::shared_ptr<http_listener::HttpResponder> responder) {
  responder->Send(Error(Unimplemented(
      "embeddings are not supported: models of this server answer with text alone, by "
      "/v1/chat/completions, /v1/completions, /v1/responses and /v1/messages")));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace inflight::openai
