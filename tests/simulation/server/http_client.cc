// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace inflight::testing {
std::string HttpPost(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      path, body.size(), body);
}

void HttpClient::PollOnce() {
  if (!out_.empty()) {
    const ssize_t count =
        send(socket_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) out_.erase(0, static_cast<size_t>(count));
    if (count < 0 && errno != EAGAIN && errno != EINTR) out_.clear();
  }
  std::array<char, 16 * 1024> buffer;
  while (!has_ended_) {
    const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      has_ended_ = true;
      return;
    }
    in_.append(buffer.data(), static_cast<size_t>(count));
  }
}

std::optional<bench::HttpAnswer> HttpClient::TakeAnswer() {
  if (in_.empty()) return std::nullopt;
  const auto state = answer_.Feed(std::exchange(in_, {}));
  has_ended_ |= state == bench::HttpAnswer::State::kFaulty;
  if (state != bench::HttpAnswer::State::kComplete) return std::nullopt;
  bench::HttpAnswer answer = std::exchange(answer_, {});
  in_ = answer.rest();
  return answer;
}

}  // namespace inflight::testing
