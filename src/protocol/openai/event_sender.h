// SPDX-License-Identifier: Apache-2.0
// A stream of events on its way to a client: what was written since the last Send is one chunk.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "protocol/http_listener/event_stream.h"
#include "protocol/http_listener/http_message.h"
#include "protocol/kserve/http/response.h"

namespace inflight::openai {

// The seed that tokens were drawn with, of every answer.
inline http_listener::Headers SeedHeader(uint64_t seed) {
  return {{"Inflight-Seed", std::to_string(seed)}};
}

class EventSender {
 public:
  // `headers` beside those of every stream.
  EventSender(std::shared_ptr<http_listener::HttpResponder> responder,
              http_listener::Headers headers)
      : responder_(std::move(responder)), headers_(std::move(headers)) {}

  std::string& text() { return text_; }  // append events (event_stream.h)
  bool has_started() const { return has_started_; }

  void Send() {
    if (text_.empty()) return;
    if (!std::exchange(has_started_, true)) {
      headers_.emplace_back("Content-Type", kserve_http::kEventStream);
      headers_.emplace_back("Cache-Control", "no-cache");
      responder_->StartStream(200, headers_);
    }
    responder_->WriteChunk(text_);
    text_.clear();
  }
  void Finish() {
    Send();
    responder_->Finish();
  }

 private:
  const std::shared_ptr<http_listener::HttpResponder> responder_;
  http_listener::Headers headers_;
  std::string text_;  // kept, so that a chunk costs no allocation
  bool has_started_ = false;
};

}  // namespace inflight::openai
