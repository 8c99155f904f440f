// SPDX-License-Identifier: Apache-2.0
// POST /v1/responses, GET and DELETE of /v1/responses/{response}. What its answers were made from:
// input_items.cc.
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/http_listener/query.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/chat_document.h"
#include "protocol/openai/chat_question.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"
#include "protocol/openai/input_items.h"
#include "protocol/openai/new_id.h"
#include "protocol/openai/object_reader.h"
#include "protocol/openai/response_answer.h"
#include "protocol/openai/response_input.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;

// Of a kept answer: it is told whole, with what its request included.
Status CheckQuery(const HttpRequest& request) {
  return http_listener::ForEachInQuery(
      request.target, [](const std::string& name, const std::string& value) {
        if (name == "stream" && value == "false") return Status::Ok();
        return Unimplemented(
            Shortened(name),
            "is not supported: an answer that is kept is told as it was; leave it out");
      });
}

// Whether the answer is to be kept.
Result<bool> Keeps(const Context& context, const Asked& asked) {
  if (context.responses != nullptr) return asked.store.value_or(true);
  if (asked.store.value_or(false) || !asked.previous_response_id.empty())
    return Unimplemented(
        asked.previous_response_id.empty() ? "store" : "previous_response_id",
        "is not supported: this server was started with --stored-responses-byte-size 0");
  return false;
}

Result<std::shared_ptr<const StoredResponse>> FindBefore(const Context& context,
                                                         const HttpRequest& request,
                                                         const std::string& id) {
  if (id.empty()) return std::make_shared<const StoredResponse>();
  auto found = context.responses->Find(IdentityOf(request.caller), id);
  if (found == nullptr) return NoSuchResponse("previous_response_id", id);
  return found;
}

// Errors name members of chat where this API has others.
Status Respond(const Context& context, Asked& asked, const HttpRequest& request,
               const std::shared_ptr<HttpResponder>& responder) {
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(const bool keeps, Keeps(context, asked));
  ASSIGN_OR_RETURN(const std::shared_ptr<const StoredResponse> before,
                   FindBefore(context, request, asked.previous_response_id));
  MemoryCharge charge(request.memory);
  const size_t before_bytes = before->num_bytes();
  RETURN_IF_ERROR(charge.Resize(before_bytes * kBytesPerBodyByte));
  ASSIGN_OR_RETURN(ResponseInput input, ReadResponseInput(asked, before->conversation));
  ResponseForm form = {.id = NewId("resp_"),
                       .model = served.name,
                       .tokenizer = served.text->tokenizer,
                       .created_s = std::time(nullptr),
                       .is_stream = asked.stream,
                       .logprobs = asked.logprobs,
                       .top_logprobs = asked.top_logprobs,
                       .echo = EchoOf(asked)};
  std::string items = keeps ? ItemsBehind(*before, input.items) : std::string();
  const size_t items_bytes = input.items.size() + items.size();
  if (keeps)
    form.keep = [store = context.responses, client = IdentityOf(request.caller), id = form.id,
                 conversation = std::move(input.conversation), items = std::move(items)](
                    const std::string& response, const std::string& message) {
      std::string longer;
      longer.reserve(conversation.size() + 1 + message.size());
      longer.append(conversation).append(",").append(message);
      return store->Put(client, id,
                        {.conversation = std::move(longer), .response = response, .items = items});
    };
  if (asked.logprobs) asked.stream = true;  // between us and the model: each token with its text
  RETURN_IF_ERROR(TakeDocument(input.document, asked));
  ASSIGN_OR_RETURN(Question question, AskChat(context, asked, served, input.document));
  question.body_bytes += request.body->size() + input.document.size() + items_bytes;
  question.charge = std::move(charge);
  return StartAnswer(context, served, asked, std::move(question), request, *responder,
                     AnswerByMessage(WriteResponse(std::move(form), responder)));
}

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleResponses(const Context& context, const std::string&, const HttpRequest& request,
                     std::shared_ptr<HttpResponder> responder) {
  auto asked = ParseBody(*request.body, kResponse);
  if (!asked.ok()) return responder->Send(Error(asked.status()));  // names as the client has them
  if (const Status status = Respond(context, *asked, request, responder); !status.ok())
    responder->Send(Error(ByOwnNames(ResponseFieldNames(), status)));
}

void HandleResponse(const Context& context, const std::string& id, const HttpRequest& request,
                    std::shared_ptr<HttpResponder> responder) {
  if (const Status status = CheckQuery(request); !status.ok())
    return responder->Send(Error(status));
  const auto found = context.responses == nullptr
                         ? nullptr
                         : context.responses->Find(IdentityOf(request.caller), id);
  if (found == nullptr) return responder->Send(Error(NoSuchResponse("response_id", id)));
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, found->response));
}

void HandleDeleteResponse(const Context& context, const std::string& id, const HttpRequest& request,
                          std::shared_ptr<HttpResponder> responder) {
  if (context.responses == nullptr || !context.responses->Remove(IdentityOf(request.caller), id))
    return responder->Send(Error(NoSuchResponse("response_id", id)));
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("id").String(id).Key("object").String("response");
  out.Key("deleted").Bool(true).EndObject();
  responder->Send(kserve_http::Answer(200, kserve_http::kJson, std::move(body)));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace inflight::openai
