// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_listener/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/check.h"

namespace inflight::http_listener {

std::string TestResponse::Header(std::string_view name) const {
  size_t line = head.find("\r\n");
  while (line != std::string::npos) {
    line += 2;
    const size_t colon = head.find(": ", line);
    if (colon == std::string::npos) break;
    const size_t end = head.find("\r\n", colon);
    if (colon - line == name.size() &&
        strncasecmp(head.data() + line, name.data(), name.size()) == 0) {
      return head.substr(colon + 2, end - colon - 2);
    }
    line = end;
  }
  return "";
}

TestClient::TestClient(int port, const char* from) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  inet_pton(AF_INET, from, &own.sin_addr);
  CHECK(bind(fd_, reinterpret_cast<sockaddr*>(&own), sizeof(own)) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval timeout{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
}

TestClient::~TestClient() { Close(); }

void TestClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void TestClient::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

bool TestClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool TestClient::Fill() {
  char bytes[65536];
  const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string TestClient::TakeLine() {
  size_t end = 0;
  while ((end = received_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return "";
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 2);
  return line;
}

std::string TestClient::Take(size_t num_bytes) {
  while (received_.size() < num_bytes && Fill()) {
  }
  std::string bytes = received_.substr(0, num_bytes);
  received_.erase(0, bytes.size());
  return bytes;
}

TestResponse TestClient::Receive(bool to_head) {
  TestResponse response;
  size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill()) return response;
  }
  response.head = received_.substr(0, end + 2);
  received_.erase(0, end + 4);
  response.status = std::atoi(response.head.c_str() + response.head.find(' ') + 1);
  if (to_head || response.status == 100) {
    response.complete = true;
  } else if (response.Header("Transfer-Encoding") == "chunked") {
    std::string chunk;
    while (!(chunk = ReceiveChunk()).empty()) {
      response.body += chunk;
      ++response.num_chunks;
    }
    response.complete = true;
  } else {
    const std::string length = response.Header("Content-Length");
    response.body = Take(length.empty() ? SIZE_MAX : std::strtoul(length.c_str(), nullptr, 10));
    response.complete = true;
  }
  return response;
}

TestResponse TestClient::Ask(std::string_view request) {
  Send(request);
  return Receive();
}

std::string TestClient::ReceiveChunk() {
  const size_t size = std::strtoul(TakeLine().c_str(), nullptr, 16);
  std::string chunk = Take(size);
  Take(2);
  return chunk;
}

bool TestClient::IsClosedByServer() {
  while (Fill()) {
  }
  char byte = 0;
  return recv(fd_, &byte, 1, 0) == 0 || errno != EAGAIN;
}

std::string Post(std::string_view target, std::string_view body, std::string_view headers) {
  std::string request = "POST " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n";
  request.append(headers).append("Content-Length: ").append(std::to_string(body.size()));
  return request.append("\r\n\r\n").append(body);
}

std::string Get(std::string_view target) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: test\r\n\r\n";
}

TestResponse RoundTrip(int port, std::string_view request) {
  TestClient client(port);
  client.Send(request);
  return client.Receive();
}

}  // namespace inflight::http_listener
