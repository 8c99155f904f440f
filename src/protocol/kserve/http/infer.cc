// SPDX-License-Identifier: Apache-2.0
// POST .../infer: tensors in, tensors out, one response (docs/reference/protocol/http.md).
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/endpoints.h"
#include "protocol/kserve/http/infer_request.h"
#include "protocol/kserve/http/infer_response.h"
#include "protocol/kserve/http/response.h"
#include "protocol/kserve/http/traced.h"

namespace inflight::kserve_http {
namespace {

using http_listener::HttpResponder;
using http_listener::HttpResponse;

// Keeps the response until the final one is here, which may be a second, empty one.
class InferCall {
 public:
  InferCall(const Context& context, std::shared_ptr<HttpResponder> responder, OutputForm form,
            Coding coding, const serving::Request& request)
      : memory_(request.memory),
        framing_(context.framing),
        responder_(std::move(responder)),
        form_(std::move(form)),
        coding_(coding),
        trace_(request.trace) {}

  void OnResponse(serving::Response response) {
    const bool is_final = response.is_final;
    const bool is_bare_end =
        is_final && num_responses_ > 0 && response.status.ok() && response.outputs.empty();
    if (!is_bare_end) {
      ++num_responses_;
      if (response_.status.ok()) response_ = std::move(response);  // an error is kept
    }
    if (!is_final) return;
    trace_.Mark("INFER_RESPONSE_COMPLETE");
    HttpResponse answer = Write();
    TraceSending(trace_, *responder_);
    responder_->Send(std::move(answer));
  }

 private:
  HttpResponse Write() const {
    if (!response_.status.ok()) return Error(response_.status);
    if (num_responses_ != 1) {
      return Error(Internal("expected a single response, got " + std::to_string(num_responses_)),
                   kText);
    }
    auto answer = WriteInfer(response_, form_, framing_, memory_);
    if (!answer.ok()) return Error(answer.status(), kText);
    if (Status status = Compress(coding_, *answer); !status.ok()) return Error(status, kText);
    return *std::move(answer);
  }

  const std::shared_ptr<AccountShare> memory_;
  const BinaryFraming framing_;
  const std::shared_ptr<HttpResponder> responder_;
  const OutputForm form_;
  const Coding coding_;
  const serving::Trace trace_;
  serving::Response response_;
  int num_responses_ = 0;
};

// As parameters of the request, in place of what its body says under the same name. Blanks behind a
// value go along, as they do in Triton, where the listener has kept them.
Status ForwardHeaders(const kserve::HeaderForward& forward, const http_listener::HttpRequest& from,
                      serving::Request& to) {
  if (forward.empty()) return Status::Ok();
  for (size_t i = 0; i < from.headers.size(); ++i) {
    const auto& [name, value] = from.headers[i];
    ASSIGN_OR_RETURN(const bool goes, forward.Matches(name));
    if (goes) to.parameters[name] = from.raw_values.empty() ? value : from.raw_values[i];
  }
  return Status::Ok();
}

// As it was before its Content-Encoding, which a front end without compression does not take.
Result<std::shared_ptr<const std::string>> BodyOf(const Context& context,
                                                  const http_listener::HttpRequest& request) {
  if (context.with_compression) return DecodedBody(request, context.max_input_bytes);
  const std::string* coding = request.FindHeader("Content-Encoding");
  if (coding == nullptr || *coding == "identity") return request.body;
  return Unimplemented("Unsupported compression type");
}

Coding AnswerCoding(const Context& context, const http_listener::HttpRequest& request) {
  const std::string* accept = request.FindHeader("Accept-Encoding");
  if (!context.with_compression || accept == nullptr) return Coding::kIdentity;
  return AcceptedCoding(*accept);
}

HttpResponse EncodingError(const Context& context, const Status& status) {
  HttpResponse response = Error(status, kText);
  if (context.with_compression && status.code() == StatusCode::kUnimplemented) {
    response.headers.emplace_back("Accept-Encoding", "gzip, deflate");
  }
  return response;
}

}  // namespace

void HandleInfer(const Context& context, const Route& route,
                 const http_listener::HttpRequest& request,
                 std::shared_ptr<HttpResponder> responder) {
  const int64_t received_ns = Clock::System().NowNs();
  const auto model = context.server.FindModel(route.model, route.version);
  if (!model.ok()) return responder->Send(Error(model.status(), kText));
  if (!(*model)->allows_single_response_calls()) {
    return responder->Send(Error(
        Unimplemented("HTTP end point doesn't support models with decoupled transaction policy"),
        kText));
  }
  auto body = BodyOf(context, request);
  if (!body.ok()) return responder->Send(EncodingError(context, body.status()));
  const auto json_length = context.framing.JsonLength(request, (*body)->size());
  if (!json_length.ok()) return responder->Send(Error(json_length.status(), kText));

  auto parsed =
      ParseInfer((*model)->config(), context.server.shared_memory().Of(IdentityOf(request.caller)),
                 *std::move(body), *json_length, context.max_input_bytes, request.memory);
  if (!parsed.ok()) return responder->Send(Error(parsed.status()));
  parsed->request.model_name = route.model;
  parsed->request.model_version = route.version;
  parsed->request.received_ns = received_ns;
  parsed->request.memory = request.memory;
  parsed->request.client = request.caller;
  parsed->request.tally = request.tally;
  parsed->request.wants_one_response = true;
  const Status forwarded = ForwardHeaders(context.header_forward, request, parsed->request);
  if (!forwarded.ok()) return responder->Send(Error(forwarded));
  parsed->request.trace = SampleTrace(context.server, route.model, request);

  responder->OnDisconnect([cancel = parsed->request.cancel] { cancel->Cancel(); });
  auto call = std::make_shared<InferCall>(context, std::move(responder), std::move(parsed->form),
                                          AnswerCoding(context, request), parsed->request);
  context.server.Infer(*model, std::move(parsed->request), [call](serving::Response response) {
    call->OnResponse(std::move(response));
  });
}

}  // namespace inflight::kserve_http
