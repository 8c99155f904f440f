// SPDX-License-Identifier: Apache-2.0
// Asks two servers the same, at the same time.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "protocol/http_client/http_client.h"
#include "shadow/compare.h"
#include "shadow/recorded_request.h"

namespace inflight::shadow {

struct ShadowOptions {
  http_client::Url old_server;  // its path stands before those of requests
  http_client::Url new_server;
  std::chrono::milliseconds timeout{120'000};  // of an answer
  size_t max_answer_bytes = size_t{64} << 20;
  CompareRules rules;
};

struct Reply {
  Result<http_client::Answer> answer = Unavailable("not asked");
  double first_ms = 0;  // to the head of the answer, or the first bytes of its body
  double total_ms = 0;
};

struct Outcome {
  RecordedRequest request;
  Reply old_reply;
  Reply new_reply;
  std::vector<Difference> differences;  // where both answered

  bool HasFailed() const { return !old_reply.answer.ok() || !new_reply.answer.ok(); }
};

// What is told of the old server's answer as it comes. May be null.
struct Listening {
  std::function<void(const http_client::Answer& head)> on_head;
  std::function<void(std::string_view bytes)> on_bytes;
  std::function<void(const Result<http_client::Answer>& answer)> on_end;
};

// `done` is called once both have answered, from a thread that runs `io`.
void AskBoth(boost::asio::io_context& io, const ShadowOptions& options, RecordedRequest request,
             Listening listening, std::function<void(Outcome)> done);

// The old server alone.
void AskOld(boost::asio::io_context& io, const ShadowOptions& options,
            const RecordedRequest& request, Listening listening);

}  // namespace inflight::shadow
