// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 over kept connections and one epoll: infer, generate, generate_stream.
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/load/http_answer.h"
#include "bench/load/load.h"
#include "bench/load/requests.h"

namespace inflight::bench {
namespace {

struct Connection {
  int fd = -1;
  size_t index = 0;
  RequestOutcome* outcome = nullptr;  // null: idle
  std::string own;                    // the request, where it was made for this connection
  size_t num_written = 0;
  bool is_reused = false;  // answered before, so the server may have closed it meanwhile
  HttpAnswer answer;
  int64_t last_ns = 0;  // of the last chunk
};

class HttpTransport : public LoadTransport {
 public:
  // `prompts` null: tokens of answers are not counted. `make` null: `requests` are sent.
  HttpTransport(const LoadOptions& options, std::vector<std::string> requests,
                const std::vector<LoadPrompt>* prompts, MakeRequestBytes make = nullptr)
      : options_(options),
        prompts_(prompts),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        requests_(std::move(requests)),
        make_(std::move(make)) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const std::string port = std::to_string(options.port);
    if (getaddrinfo(options.host.c_str(), port.c_str(), &hints, &addresses_) != 0)
      addresses_ = nullptr;
  }

  ~HttpTransport() override {
    for (const auto& connection : connections_)
      if (connection->fd >= 0) close(connection->fd);
    close(epoll_);
    if (addresses_ != nullptr) freeaddrinfo(addresses_);
  }

  void Start(size_t index, RequestOutcome& outcome) override {
    Connection& connection = IdleConnection();
    connection.index = index;
    connection.outcome = &outcome;
    connection.num_written = 0;
    connection.answer = HttpAnswer();
    outcome.sent_ns = LoadNowNs();
    if (make_) connection.own = make_(index, outcome.sequence);
    if (connection.fd < 0)
      Connect(connection);
    else
      Write(connection);
  }

  int Poll(int64_t until_ns) override {
    while (num_ended_ == 0) {
      const int64_t left_ns = until_ns - LoadNowNs();
      if (left_ns <= 0) break;
      epoll_event events[64];
      // Rounded up: waking early would spin.
      const int count =
          epoll_wait(epoll_, events, 64, static_cast<int>((left_ns + 999'999) / 1'000'000));
      for (int i = 0; i < count; ++i) {
        auto& connection = *static_cast<Connection*>(events[i].data.ptr);
        if ((events[i].events & EPOLLOUT) != 0 && connection.outcome != nullptr) Write(connection);
        if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read(connection);
      }
      EndOverdue();
    }
    return std::exchange(num_ended_, 0);
  }

 private:
  Connection& IdleConnection() {
    for (const auto& connection : connections_)
      if (connection->outcome == nullptr) return *connection;
    return *connections_.emplace_back(std::make_unique<Connection>());
  }

  // Not blocking: it ends, well or not, as an event.
  void Connect(Connection& connection) {
    connection.is_reused = false;
    if (addresses_ == nullptr) return End(connection, "connect: the host is unknown");
    connection.fd = socket(addresses_->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection.fd < 0) return End(connection, fmt::format("socket: {}", std::strerror(errno)));
    const int on = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(connection.fd, addresses_->ai_addr, addresses_->ai_addrlen) != 0 &&
        errno != EINPROGRESS) {
      const int error = errno;
      close(std::exchange(connection.fd, -1));
      return End(connection, fmt::format("connect: {}", std::strerror(error)));
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = &connection;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
  }

  void Write(Connection& connection) {
    const std::string& bytes =
        make_ ? connection.own : requests_[connection.index % requests_.size()];
    while (connection.num_written < bytes.size()) {
      const ssize_t size = send(connection.fd, bytes.data() + connection.num_written,
                                bytes.size() - connection.num_written, MSG_NOSIGNAL);
      if (size >= 0) {
        connection.num_written += static_cast<size_t>(size);
      } else if (errno != EINTR) {
        if (errno != EAGAIN) Lost(connection, std::strerror(errno));
        return;
      }
    }
    if (connection.outcome->written_ns == 0) connection.outcome->written_ns = LoadNowNs();
  }

  void Read(Connection& connection) {
    while (connection.fd >= 0) {
      const ssize_t size = recv(connection.fd, buffer_, sizeof buffer_, 0);
      if (size > 0) {
        if (connection.outcome != nullptr) Take(connection, {buffer_, static_cast<size_t>(size)});
      } else if (size == 0 || (errno != EINTR && errno != EAGAIN)) {
        Lost(connection, size == 0 ? "closed by the server" : std::strerror(errno));
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  void Take(Connection& connection, std::string_view bytes) {
    if (!connection.answer.started()) connection.outcome->answer_ns = LoadNowNs();
    const HttpAnswer::State state = connection.answer.Feed(bytes);
    if (state == HttpAnswer::State::kFaulty) return Drop(connection, "answer: not HTTP/1.1");
    HttpAnswer& answer = connection.answer;
    std::string error;
    if (answer.is_event_stream() && answer.status() == 200) error = TakeEvents(connection);
    if (!error.empty()) return Drop(connection, std::move(error));
    if (state != HttpAnswer::State::kComplete) return;
    if (answer.status() != 200)
      error = ErrorKind(fmt::format("HTTP {}", answer.status()), answer.body());
    else if (!answer.is_event_stream())
      TakeBody(connection);
    if (!answer.keeps_connection()) return Drop(connection, std::move(error));
    connection.is_reused = true;
    End(connection, std::move(error));
  }

  // Complete events of the stream; the text of an error among them.
  std::string TakeEvents(Connection& connection) {
    std::string& body = connection.answer.body();
    RequestOutcome& outcome = *connection.outcome;
    size_t begin = 0;
    for (size_t end; (end = body.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      std::string_view event = std::string_view(body).substr(begin, end - begin);
      if (!event.starts_with("data: ")) return "stream: an event without data";
      event.remove_prefix(6);
      if (event.starts_with("{\"error\"")) return ErrorKind("stream", event);
      const int64_t now = LoadNowNs();
      const bool has_ids = prompts_ != nullptr && !(*prompts_)[connection.index].ids.empty();
      const int num_tokens = has_ids ? CountOutputIds(options_.protocol, event) : 1;
      if (num_tokens == 0) continue;
      if (outcome.first_ns == 0)
        outcome.first_ns = now;
      else
        outcome.gaps_ns.push_back(now - connection.last_ns);
      connection.last_ns = now;
      outcome.num_tokens += num_tokens;
      ++outcome.num_chunks;
    }
    body.erase(0, begin);
    return {};
  }

  void TakeBody(Connection& connection) {
    RequestOutcome& outcome = *connection.outcome;
    outcome.num_chunks = 1;
    if (prompts_ == nullptr) return;
    const LoadPrompt& prompt = (*prompts_)[connection.index];
    if (!prompt.ids.empty())
      outcome.num_tokens = CountOutputIds(options_.protocol, connection.answer.body());
    else if (options_.ignore_end)
      outcome.num_tokens = prompt.output_len;
  }

  // A kept connection may have been closed by the server just before it was used again; its
  // request is sent once more.
  void Lost(Connection& connection, const char* reason) {
    close(std::exchange(connection.fd, -1));
    if (connection.outcome == nullptr) return;
    if (connection.is_reused && !connection.answer.started()) {
      connection.num_written = 0;
      return Connect(connection);
    }
    End(connection, fmt::format("connection: {}", reason));
  }

  void Drop(Connection& connection, std::string error) {
    close(std::exchange(connection.fd, -1));
    End(connection, std::move(error));
  }

  void End(Connection& connection, std::string error) {
    RequestOutcome& outcome = *std::exchange(connection.outcome, nullptr);
    outcome.end_ns = LoadNowNs();
    outcome.error = std::move(error);
    ++num_ended_;
  }

  void EndOverdue() {
    const int64_t now = LoadNowNs();
    if (now < next_check_ns_) return;
    next_check_ns_ = now + 100'000'000;
    for (const auto& connection : connections_)
      if (connection->outcome != nullptr &&
          now - connection->outcome->sent_ns > options_.timeout_ms * 1'000'000)
        Drop(*connection, "timeout of the client");
  }

  const LoadOptions& options_;
  const std::vector<LoadPrompt>* prompts_;
  const int epoll_;
  addrinfo* addresses_ = nullptr;
  const std::vector<std::string> requests_;
  const MakeRequestBytes make_;
  std::vector<std::unique_ptr<Connection>> connections_;
  char buffer_[65536];
  int num_ended_ = 0;
  int64_t next_check_ns_ = 0;
};

}  // namespace

std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   const std::vector<LoadPrompt>& prompts) {
  std::vector<std::string> requests;
  for (const LoadPrompt& prompt : prompts) requests.push_back(HttpRequestBytes(options, prompt));
  return std::make_unique<HttpTransport>(options, std::move(requests), &prompts);
}

std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   std::vector<std::string> requests) {
  return std::make_unique<HttpTransport>(options, std::move(requests), nullptr);
}

std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   MakeRequestBytes make) {
  return std::make_unique<HttpTransport>(options, std::vector<std::string>(), nullptr,
                                         std::move(make));
}

}  // namespace inflight::bench
