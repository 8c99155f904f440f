// SPDX-License-Identifier: Apache-2.0
// One HTTP/1.1 response, understood as its bytes come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inflight::bench {

class HttpAnswer {
 public:
  enum class State { kPartial, kComplete, kFaulty };

  State Feed(std::string_view bytes);

  bool started() const { return has_head_ || !in_.empty(); }
  int status() const { return status_; }
  bool is_event_stream() const { return is_event_stream_; }
  bool keeps_connection() const { return keeps_connection_; }
  std::string& body() { return body_; }            // what came so far; the caller may take from it
  const std::string& rest() const { return in_; }  // what came behind a complete one

 private:
  bool ReadHead();
  void ReadField(std::string_view line);
  State ReadChunks();

  std::string in_;  // not yet understood
  std::string body_;
  int status_ = 0;
  bool has_head_ = false;
  bool is_chunked_ = false;
  bool is_event_stream_ = false;
  bool keeps_connection_ = true;
  bool is_faulty_ = false;
  int64_t num_left_ = 0;  // of the body, or of the chunk with its line end
  bool in_chunk_ = false;
  bool is_last_chunk_ = false;
};

}  // namespace inflight::bench
