// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 over one epoll: infer of a binary tensor, and server-sent events of mock_llm.
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "bench/front_end/front_end_load.h"
#include "bench/load/http_answer.h"

namespace inflight::bench {
namespace {

constexpr std::string_view kLastChunk = "\r\n0\r\n\r\n";

std::string Post(const FrontEndOptions& options, std::string_view path, std::string_view fields,
                 std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: {}:{}\r\n{}Content-Length: {}\r\n\r\n{}", path,
                     options.host, options.port, fields, body.size(), body);
}

// A tensor of 16 floats in and out as bytes behind the JSON: what Triton's clients send.
std::string InferRequest(const FrontEndOptions& options) {
  std::string body =
      R"({"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"FP32","parameters":{"binary_data_size":64}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const std::string fields = fmt::format(
      "Inference-Header-Content-Length: {}\r\nContent-Type: application/octet-stream\r\n",
      body.size());
  body.append(64, '\1');
  return Post(options, fmt::format("/v2/models/{}/infer", options.model), fields, body);
}

std::string StreamRequest(const FrontEndOptions& options) {
  constexpr std::string_view kFields = "Content-Type: application/json\r\n";
  if (options.load == FrontEndLoad::kChatStream) {
    return Post(
        options, "/v1/chat/completions", kFields,
        fmt::format(
            R"({{"messages":[{{"role":"user","content":"word"}}],"stream":true,"max_tokens":{}}})",
            options.repetition));
  }
  return Post(options, fmt::format("/v2/models/{}/generate_stream", options.model), kFields,
              fmt::format(R"({{"PROMPT":" word","STREAM":true,"REPETITION":{},"DELAY":{:.6f}}})",
                          options.repetition, options.delay_s));
}

struct Connection {
  int fd = -1;
  int64_t sent_ns = 0;
  HttpAnswer answer;   // of an infer
  std::string tail;    // of a stream: the last bytes that came
  int num_events = 0;  // of the running stream
};

class HttpLoad {
 public:
  HttpLoad(const FrontEndOptions& options, Meter& meter)
      : options_(options),
        meter_(meter),
        is_stream_(options.load != FrontEndLoad::kHttpInfer),
        request_(is_stream_ ? StreamRequest(options) : InferRequest(options)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

  ~HttpLoad() {
    for (const auto& connection : connections_) close(connection->fd);
    close(epoll_);
  }

  std::string Run() {
    if (!Connect()) return error_;
    meter_.Begin(options_);
    for (const auto& connection : connections_) Send(*connection);
    while (error_.empty() && !meter_.IsOver()) {
      epoll_event events[256];
      const int count = epoll_wait(epoll_, events, 256, 100);
      for (int i = 0; i < count && error_.empty(); ++i) {
        Read(*static_cast<Connection*>(events[i].data.ptr));
      }
    }
    return error_;
  }

 private:
  bool Connect() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(options_.host.c_str(), std::to_string(options_.port).c_str(), &hints, &found) !=
        0) {
      return Fail("the host is unknown");
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
    for (int i = 0; i < options_.concurrency; ++i) {
      auto& connection = *connections_.emplace_back(std::make_unique<Connection>());
      connection.fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connection.fd < 0 || connect(connection.fd, address->ai_addr, address->ai_addrlen) != 0) {
        return Fail(fmt::format("connect: {}", std::strerror(errno)));
      }
      const int on = 1;
      setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.ptr = &connection;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
    }
    return true;
  }

  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  // Small enough for the socket's buffer at once.
  void Send(Connection& connection) {
    connection.answer = HttpAnswer();
    connection.tail.clear();
    connection.num_events = 0;
    connection.sent_ns = MonotonicNs();
    if (send(connection.fd, request_.data(), request_.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request_.size())) {
      Fail(fmt::format("send: {}", std::strerror(errno)));
    }
  }

  void Read(Connection& connection) {
    const ssize_t size = recv(connection.fd, buffer_, sizeof buffer_, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
      Fail("the server closed a connection");
      return;
    }
    const std::string_view bytes(buffer_, static_cast<size_t>(size));
    is_stream_ ? TakeEvents(connection, bytes) : TakeAnswer(connection, bytes);
  }

  void TakeAnswer(Connection& connection, std::string_view bytes) {
    const auto state = connection.answer.Feed(bytes);
    if (state == HttpAnswer::State::kPartial) return;
    if (state == HttpAnswer::State::kFaulty || connection.answer.status() != 200) {
      Fail("answer: " + connection.answer.body());
      return;
    }
    meter_.CountItems(1);
    meter_.Observe(MonotonicNs() - connection.sent_ns);
    Send(connection);
  }

  // An event ends with an empty line, which nothing else in the answer has but \r\n.
  void TakeEvents(Connection& connection, std::string_view bytes) {
    if (connection.tail.empty() && !bytes.starts_with("HTTP/1.1 200")) {
      Fail("answer: " + std::string(bytes));
      return;
    }
    int count = !connection.tail.empty() && connection.tail.back() == '\n' && bytes[0] == '\n';
    for (size_t at = bytes.find("\n\n"); at != bytes.npos; at = bytes.find("\n\n", at + 2)) ++count;
    connection.num_events += count;
    meter_.CountItems(count);
    connection.tail.append(bytes.substr(bytes.size() - std::min(bytes.size(), kLastChunk.size())));
    if (connection.tail.size() > kLastChunk.size()) {
      connection.tail.erase(0, connection.tail.size() - kLastChunk.size());
    }
    if (connection.tail != kLastChunk) return;
    // Beside the texts a chat has the role, the reason why it ended, and [DONE].
    const int others = options_.load == FrontEndLoad::kChatStream ? 3 : 0;
    if (connection.num_events != options_.repetition + others) meter_.CountError();
    Send(connection);
  }

  const FrontEndOptions& options_;
  Meter& meter_;
  const bool is_stream_;
  const std::string request_;
  const int epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::string error_;
  char buffer_[256 * 1024];
};

}  // namespace

std::string RunHttpLoad(const FrontEndOptions& options, Meter& meter) {
  return std::make_unique<HttpLoad>(options, meter)->Run();
}

}  // namespace inflight::bench
