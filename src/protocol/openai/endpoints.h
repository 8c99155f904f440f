// SPDX-License-Identifier: Apache-2.0
// One function per endpoint, in a file of its name: parse, handle, write. openai_handler.cc says
// which path leads to which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "protocol/http_listener/http_message.h"
#include "protocol/openai/response_store.h"
#include "protocol/openai/served_models.h"
#include "protocol/openai/tools.h"
#include "serving/server/server.h"

namespace inflight::openai {

struct Context {
  serving::Server& server;
  const ServedModels& models;
  const MessageFormats& formats;
  ResponseStore* responses;  // null: none are kept
  int64_t started_s;         // since 1970
};

// `name`: of the model or the response that the path has; empty where it has none.
using Endpoint = void(const Context& context, const std::string& name,
                      const http_listener::HttpRequest& request,
                      std::shared_ptr<http_listener::HttpResponder> responder);

Endpoint HandleHealth;
Endpoint HandleVersion;
Endpoint HandleModels;
Endpoint HandleModel;
Endpoint HandleTokenize;
Endpoint HandleDetokenize;
// Answered when the model responds; a client that disconnects cancels its request.
Endpoint HandleChatCompletions;
Endpoint HandleCompletions;
Endpoint HandleResponses;
// Of one that is kept.
Endpoint HandleResponse;
Endpoint HandleDeleteResponse;
Endpoint HandleInputItems;
Endpoint HandleEmbeddings;

}  // namespace inflight::openai
