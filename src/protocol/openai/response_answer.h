// SPDX-License-Identifier: Apache-2.0
// The object "response" of /v1/responses, whole or in events
// (docs/reference/protocol/openai.md, "Responses").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inflight/tokenizer.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/message_answer.h"

namespace inflight::openai {

struct ResponseForm {
  std::string id;
  std::string model;
  std::shared_ptr<const Tokenizer> tokenizer;  // by which the tokens of its reasoning are counted
  int64_t created_s = 0;                       // since 1970
  bool is_stream = false;
  bool logprobs = false;  // of the tokens of texts, and of so many likely ones beside each
  int top_logprobs = 0;
  // Members of the object that tell what was asked: names, and values as JSON.
  std::vector<std::pair<std::string_view, std::string>> echo = {};
  // Given the object of an answer that is whole, and its message in the form of chat; false: it
  // could not be kept. Empty: nothing is kept.
  std::function<bool(const std::string& response, const std::string& message)> keep = {};
};

// ResponseForm::echo of a body as it came.
std::vector<std::pair<std::string_view, std::string>> EchoOf(const Asked& asked);

MakeWriter WriteResponse(ResponseForm form,
                         std::shared_ptr<http_listener::HttpResponder> responder);

}  // namespace inflight::openai
