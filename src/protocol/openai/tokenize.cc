// SPDX-License-Identifier: Apache-2.0
// POST /tokenize and /detokenize: the ids of a text or a conversation, as requests get them, and
// back.
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "json/json_writer.h"
#include "protocol/kserve/http/response.h"
#include "protocol/openai/body_fields.h"
#include "protocol/openai/chat_question.h"
#include "protocol/openai/endpoints.h"
#include "protocol/openai/error.h"
#include "protocol/openai/prompts.h"
#include "protocol/openai/tools.h"

namespace inflight::openai {
namespace {

using http_listener::HttpRequest;
using http_listener::HttpResponder;

// Of a body that is parsed into `asked`.
Result<std::vector<TokenId>> IdsOf(const Context& context, const Asked& asked,
                                   const ServedModel& served, const HttpRequest& request) {
  if (asked.messages.has_value() == asked.prompt.has_value())
    return InvalidArgument("prompt", "give a prompt, or messages");
  if (asked.messages) return ChatIds(context, asked, served, *request.body);
  RETURN_IF_ERROR(ReadTools(asked).status());
  if (asked.prompt->kind() != json::Value::Kind::kString)
    return InvalidArgument("prompt", "must be a string");
  ASSIGN_OR_RETURN(const std::string text, asked.prompt->AsString());
  return served.text->tokenizer->Encode(text, asked.add_special_tokens.value_or(true));
}

Result<std::string> Tokenize(const Context& context, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const Asked asked, ParseBody(*request.body, kTokenize));
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, IdsOf(context, asked, served, request));
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("count").Int(std::ssize(ids));
  out.Key("max_model_len").Int(served.text->limits.max_seq_len).Key("tokens").BeginArray();
  for (const TokenId id : ids) out.Int(id);
  out.EndArray().EndObject();
  return body;
}

constexpr size_t kCopiesOfText = 3;  // the text, and the JSON of it while that grows

Result<std::string> Detokenize(const Context& context, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const Asked asked, ParseBody(*request.body, kDetokenize));
  ASSIGN_OR_RETURN(const ServedModel served, context.models.Find(asked.model));
  if (!asked.tokens) return InvalidArgument("tokens", "is missing");
  MemoryCharge charge(request.memory);
  const size_t id_bytes = request.body->size() * kIdBytesPerByte;
  RETURN_IF_ERROR(charge.Resize(id_bytes));
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   ReadIds("tokens", *asked.tokens, served.text->limits.vocab_size));
  const Tokenizer& tokenizer = *served.text->tokenizer;
  RETURN_IF_ERROR(charge.Resize(id_bytes + MostTextBytes(tokenizer, ids) * kCopiesOfText));
  std::string body;
  json::Writer out(body);
  out.BeginObject().Key("prompt");
  out.String(tokenizer.Decode(ids, /*skip_special_tokens=*/false)).EndObject();
  return body;
}

void Send(Result<std::string> body, HttpResponder& responder) {
  if (!body.ok()) return responder.Send(Error(body.status()));
  responder.Send(kserve_http::Answer(200, kserve_http::kJson, *std::move(body)));
}

}  // namespace

// NOLINTBEGIN(performance-unnecessary-value-param): endpoints have one signature
void HandleTokenize(const Context& context, const std::string&, const HttpRequest& request,
                    std::shared_ptr<HttpResponder> responder) {
  Send(Tokenize(context, request), *responder);
}

void HandleDetokenize(const Context& context, const std::string&, const HttpRequest& request,
                      std::shared_ptr<HttpResponder> responder) {
  Send(Detokenize(context, request), *responder);
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace inflight::openai
