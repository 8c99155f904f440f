// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "bench/load/http_answer.h"
#include "bench/load/requests.h"
#include "bench/tensors/server_calls.h"

namespace inflight::bench {
namespace {

// A connection that waits at most half a minute at a time.
class Socket {
 public:
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  Status Connect(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* addresses = nullptr;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses) != 0)
      return Unavailable(fmt::format("connect: the host '{}' is unknown", host));
    fd_ = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int failed = connect(fd_, addresses->ai_addr, addresses->ai_addrlen);
    const int error = errno;
    freeaddrinfo(addresses);
    if (failed == 0) return Status::Ok();
    return Unavailable(fmt::format("connect {}:{}: {}", host, port, std::strerror(error)));
  }

  Status Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return Unavailable(fmt::format("send: {}", std::strerror(errno)));
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return Status::Ok();
  }

  Result<HttpAnswer> Receive() {
    HttpAnswer answer;
    for (char buffer[16384];;) {
      const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0)
        return Unavailable(size == 0 ? "closed by the server"
                                     : fmt::format("receive: {}", std::strerror(errno)));
      switch (answer.Feed({buffer, static_cast<size_t>(size)})) {
        case HttpAnswer::State::kPartial:
          break;
        case HttpAnswer::State::kComplete:
          return answer;
        case HttpAnswer::State::kFaulty:
          return Unavailable("the answer is not HTTP/1.1");
      }
    }
  }

 private:
  int fd_ = -1;
};

class HttpCalls : public ServerCalls {
 public:
  HttpCalls(std::string host, int port) : host_(std::move(host)), port_(port) {}

  Result<std::string> ModelMetadata(const std::string& model, const std::string& version) override {
    return Call("GET", ModelPath(model, version), "");
  }
  Result<std::string> ModelConfig(const std::string& model, const std::string& version) override {
    return Call("GET", ModelPath(model, version) + "/config", "");
  }
  Result<std::string> Statistics(const std::string& model, const std::string& version) override {
    return Call("GET", model.empty() ? "/v2/models/stats" : ModelPath(model, version) + "/stats",
                "");
  }
  Status RegisterSharedMemory(const std::string& name, int64_t byte_size) override {
    const nlohmann::json body = {{"key", "/" + name}, {"offset", 0}, {"byte_size", byte_size}};
    return Call("POST", fmt::format("/v2/systemsharedmemory/region/{}/register", name), body.dump())
        .status();
  }
  Status UnregisterSharedMemory(const std::string& name) override {
    return Call("POST", fmt::format("/v2/systemsharedmemory/region/{}/unregister", name), "")
        .status();
  }

 private:
  static std::string ModelPath(const std::string& model, const std::string& version) {
    const std::string path = "/v2/models/" + model;
    return version.empty() ? path : path + "/versions/" + version;
  }

  Result<std::string> Call(const char* method, const std::string& path, const std::string& body) {
    Socket connection;
    RETURN_IF_ERROR(connection.Connect(host_, port_));
    RETURN_IF_ERROR(connection.Send(fmt::format(
        "{} {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        method, path, host_, port_, body.size(), body)));
    ASSIGN_OR_RETURN(HttpAnswer answer, connection.Receive());
    if (answer.status() == 200) return std::move(answer.body());
    const auto json = nlohmann::json::parse(answer.body(), nullptr, /*allow_exceptions=*/false);
    const bool has_text = json.is_object() && json.contains("error") && json["error"].is_string();
    return FailedPrecondition(
        fmt::format("{} {}: HTTP {}: {}", method, path, answer.status(),
                    has_text ? json["error"].get<std::string>() : answer.body().substr(0, 200)));
  }

  const std::string host_;
  const int port_;
};

}  // namespace

std::unique_ptr<ServerCalls> CreateHttpCalls(const std::string& host, int port) {
  return std::make_unique<HttpCalls>(host, port);
}

}  // namespace inflight::bench
