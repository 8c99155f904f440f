// SPDX-License-Identifier: Apache-2.0
#include "bench/load/http_answer.h"

#include <algorithm>
#include <charconv>

namespace inflight::bench {
namespace {

std::string Lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

}  // namespace

HttpAnswer::State HttpAnswer::Feed(std::string_view bytes) {
  in_ += bytes;
  if (!has_head_ && !ReadHead()) return is_faulty_ ? State::kFaulty : State::kPartial;
  if (is_chunked_) return ReadChunks();
  const auto size = std::min(in_.size(), static_cast<size_t>(num_left_));
  body_.append(in_, 0, size);
  in_.erase(0, size);
  num_left_ -= static_cast<int64_t>(size);
  return num_left_ == 0 ? State::kComplete : State::kPartial;
}

bool HttpAnswer::ReadHead() {
  const size_t end = in_.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  const std::string_view head = std::string_view(in_).substr(0, end + 2);
  size_t at = head.find("\r\n");
  const std::string_view first = head.substr(0, at);
  is_faulty_ = !first.starts_with("HTTP/1.1 ") || first.size() < 12 ||
               std::from_chars(first.data() + 9, first.data() + 12, status_).ec != std::errc();
  for (at += 2; at < head.size();) {
    const size_t next = head.find("\r\n", at);
    ReadField(head.substr(at, next - at));
    at = next + 2;
  }
  in_.erase(0, end + 4);
  has_head_ = !is_faulty_;
  return has_head_;
}

void HttpAnswer::ReadField(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = Lowered(line.substr(0, colon));
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "content-length")
    std::from_chars(value.data(), value.data() + value.size(), num_left_);
  else if (name == "transfer-encoding")
    is_chunked_ = Lowered(value).find("chunked") != std::string::npos;
  else if (name == "content-type")
    is_event_stream_ = value.starts_with("text/event-stream");
  else if (name == "connection")
    keeps_connection_ = Lowered(value) != "close";
}

HttpAnswer::State HttpAnswer::ReadChunks() {
  for (;;) {
    if (!in_chunk_) {
      const size_t end = in_.find("\r\n");
      if (end == std::string::npos) return State::kPartial;
      int64_t size = 0;
      if (std::from_chars(in_.data(), in_.data() + end, size, 16).ec != std::errc())
        return State::kFaulty;
      in_.erase(0, end + 2);
      in_chunk_ = true;
      num_left_ = size;
      is_last_chunk_ = size == 0;  // trailers are not sent by our servers
    }
    // The chunk, then its line end.
    const auto size = std::min(in_.size(), static_cast<size_t>(num_left_));
    body_.append(in_, 0, size);
    in_.erase(0, size);
    num_left_ -= static_cast<int64_t>(size);
    if (num_left_ > 0 || in_.size() < 2) return State::kPartial;
    in_.erase(0, 2);
    in_chunk_ = false;
    if (is_last_chunk_) return State::kComplete;
  }
}

}  // namespace inflight::bench
