// SPDX-License-Identifier: Apache-2.0
// Prints an answer on standard output as it comes, and keeps its text.
//
// Threads: OnResponse on a stream thread, the rest on the one that waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "inflight/executor.h"
#include "inflight/tokenizer.h"

namespace inflight::tool {

class TerminalSink : public ResponseSink {
 public:
  explicit TerminalSink(std::shared_ptr<const Tokenizer> tokenizer);

  void OnResponse(Response response) override;

  // Waits for the final response.
  const Response& Wait();
  // Waits for a while; whether it came.
  bool WaitFor(std::chrono::milliseconds time);

  std::string TakeText() { return std::move(text_); }  // after the final response

 private:
  Detokenizer detokenizer_;
  std::string text_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Response> final_;
};

}  // namespace inflight::tool
