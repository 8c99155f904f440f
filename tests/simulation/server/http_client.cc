// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

namespace inflight::testing {
namespace {

constexpr size_t kNone = std::string_view::npos;

size_t Number(std::string_view text, int base) {
  size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Moves the chunks' bytes to `body`; where they end, kNone where the last has not come.
size_t TakeChunks(std::string_view text, std::string& body) {
  size_t at = 0;
  while (true) {
    const size_t line_end = text.find("\r\n", at);
    if (line_end == kNone) return kNone;
    const size_t size = Number(text.substr(at, line_end - at), 16);
    const size_t data = line_end + 2;
    if (text.size() < data + size + 2) return kNone;
    body.append(text.substr(data, size));
    at = data + size + 2;
    if (size == 0) return at;
  }
}

}  // namespace

std::string HttpPost(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      path, body.size(), body);
}

HttpClient::HttpClient(int connected_socket) : socket_(connected_socket) {}
HttpClient::~HttpClient() { close(socket_); }

void HttpClient::PollOnce() {
  if (!out_.empty()) {
    const ssize_t count = send(socket_, out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) out_.erase(0, static_cast<size_t>(count));
    if (count < 0 && errno != EAGAIN && errno != EINTR) out_.clear();
  }
  std::array<char, 16 * 1024> buffer;
  while (!has_ended_) {
    const ssize_t count = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      has_ended_ = true;
      return;
    }
    in_.append(buffer.data(), static_cast<size_t>(count));
  }
}

std::optional<HttpAnswer> HttpClient::TakeAnswer() {
  const size_t head_end = in_.find("\r\n\r\n");
  if (head_end == kNone) return std::nullopt;
  const std::string_view head(in_.data(), head_end + 2);
  const std::string_view rest = std::string_view(in_).substr(head_end + 4);
  HttpAnswer answer;
  answer.status = static_cast<int>(Number(head.substr(9, 3), 10));
  answer.closes = head.find("\r\nConnection: close\r\n") != kNone;
  answer.is_chunked = head.find("\r\nTransfer-Encoding: chunked\r\n") != kNone;
  size_t end = 0;
  if (answer.is_chunked) {
    end = TakeChunks(rest, answer.body);
    if (end == kNone) return std::nullopt;
  } else {
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const size_t at = head.find(kLength);
    end = at == kNone ? 0 : Number(head.substr(at + kLength.size()), 10);
    if (rest.size() < end) return std::nullopt;
    answer.body = rest.substr(0, end);
  }
  in_.erase(0, head_end + 4 + end);
  return answer;
}

}  // namespace inflight::testing
