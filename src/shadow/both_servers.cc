// SPDX-License-Identifier: Apache-2.0
#include "shadow/both_servers.h"

#include <memory>
#include <utility>

namespace inflight::shadow {
namespace {

using http_client::Answer;
using SteadyClock = std::chrono::steady_clock;

double MsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

// Both answers on their way.
struct Pair {
  Outcome outcome;
  std::function<void(Outcome)> done;
  CompareRules rules;
  SteadyClock::time_point started = SteadyClock::now();
  int num_left = 2;

  void End() {
    if (--num_left > 0) return;
    if (!outcome.HasFailed())
      outcome.differences = Compare(*outcome.old_reply.answer, *outcome.new_reply.answer, rules);
    done(std::move(outcome));
  }
};

http_client::Request RequestTo(const http_client::Url& server, const RecordedRequest& recorded,
                               const ShadowOptions& options) {
  http_client::Request request;
  request.url = server;
  std::string& path = request.url.path;
  if (path.ends_with('/')) path.pop_back();
  path += recorded.path;
  request.method = recorded.method;
  request.headers = recorded.headers;
  request.body = recorded.body;
  request.timeout = options.timeout;
  request.max_answer_bytes = options.max_answer_bytes;
  return request;
}

}  // namespace

void AskBoth(boost::asio::io_context& io, const ShadowOptions& options, RecordedRequest request,
             Listening listening, std::function<void(Outcome)> done) {
  const auto pair = std::make_shared<Pair>();
  pair->done = std::move(done);
  pair->rules = options.rules;
  http_client::Request old_request = RequestTo(options.old_server, request, options);
  http_client::Request new_request = RequestTo(options.new_server, request, options);
  pair->outcome.request = std::move(request);

  old_request.on_head = [pair, on_head = std::move(listening.on_head)](const Answer& head) {
    pair->outcome.old_reply.first_ms = MsSince(pair->started);
    if (on_head) on_head(head);
  };
  old_request.on_bytes = std::move(listening.on_bytes);
  new_request.on_head = [pair](const Answer&) {
    pair->outcome.new_reply.first_ms = MsSince(pair->started);
  };
  http_client::Send(io, std::move(old_request),
                    [pair, on_end = std::move(listening.on_end)](Result<Answer> answer) {
                      pair->outcome.old_reply.total_ms = MsSince(pair->started);
                      if (on_end) on_end(answer);
                      pair->outcome.old_reply.answer = std::move(answer);
                      pair->End();
                    });
  http_client::Send(io, std::move(new_request), [pair](Result<Answer> answer) {
    pair->outcome.new_reply.total_ms = MsSince(pair->started);
    pair->outcome.new_reply.answer = std::move(answer);
    pair->End();
  });
}

void AskOld(boost::asio::io_context& io, const ShadowOptions& options,
            const RecordedRequest& request, Listening listening) {
  http_client::Request asked = RequestTo(options.old_server, request, options);
  asked.on_head = std::move(listening.on_head);
  asked.on_bytes = std::move(listening.on_bytes);
  http_client::Send(io, std::move(asked),
                    [on_end = std::move(listening.on_end)](const Result<Answer>& answer) {
                      if (on_end) on_end(answer);
                    });
}

}  // namespace inflight::shadow
