// SPDX-License-Identifier: Apache-2.0
// A message as Anthropic's API answers it, whole or in events
// (docs/reference/protocol/anthropic.md, "Answers").
#pragma once

#include <memory>
#include <string>

#include "protocol/http_listener/http_message.h"
#include "protocol/openai/message_answer.h"

namespace inflight::anthropic {

openai::MakeWriter WriteMessage(bool is_stream, std::string model,
                                std::shared_ptr<http_listener::HttpResponder> responder);

}  // namespace inflight::anthropic
