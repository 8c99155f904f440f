// SPDX-License-Identifier: Apache-2.0
#include "terminal_sink.h"

#include <cstdio>

namespace inflight::tool {

TerminalSink::TerminalSink(std::shared_ptr<const Tokenizer> tokenizer)
    : detokenizer_(std::move(tokenizer), /*skip_special_tokens=*/true) {}

void TerminalSink::OnResponse(Response response) {
  std::string text = detokenizer_.Append(response.output_ids);
  if (response.is_final) text += detokenizer_.Finish();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  text_ += text;
  if (!response.is_final) return;
  const std::lock_guard lock(mutex_);
  final_ = std::move(response);
  wake_.notify_all();
}

const Response& TerminalSink::Wait() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return final_.has_value(); });
  return *final_;
}

bool TerminalSink::WaitFor(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, time, [this] { return final_.has_value(); });
}

}  // namespace inflight::tool
