// SPDX-License-Identifier: Apache-2.0
#include "object_store/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "base/descriptor.h"

namespace inflight::object_store {
namespace {

// Listens on loopback, and answers one connection by `text`; what follows is nothing, until the
// client goes, or the end where `ends`.
class OneAnswer {
 public:
  OneAnswer(std::string text, bool ends) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof place;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
    origin_ = "http://127.0.0.1:" + std::to_string(ntohs(place.sin_port));
    thread_ = std::jthread([this, text = std::move(text), ends] {
      const Descriptor connection(accept(listener_.get(), nullptr, nullptr));
      char bytes[4096];
      (void)!read(connection.get(), bytes, sizeof bytes);
      (void)!write(connection.get(), text.data(), text.size());
      while (!ends && read(connection.get(), bytes, sizeof bytes) > 0) {
      }
    });
  }

  ~OneAnswer() { shutdown(listener_.get(), SHUT_RDWR); }  // a client may never have come
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  HttpRequest request() const {
    HttpRequest request;
    request.origin = origin_;
    request.path = "/x";
    return request;
  }

 private:
  const Descriptor listener_;
  std::string origin_;
  std::jthread thread_;
};

Result<HttpResponse> Ask(const HttpRequest& request, HttpLimits limits = {}) {
  const auto client = HttpClient::Make(std::move(limits));
  if (!client.ok()) return client.status();
  return (*client)->Send(request, {.is_of_this_machine = true});
}

constexpr char kPart[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart";

TEST(HttpClient, GivesUpWhatHardlyMoves) {
  const OneAnswer slow(kPart, /*ends=*/false);
  EXPECT_EQ(Ask(slow.request(), {.slow_s = 1}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(HttpClient, EndsWhenItsOwnerDoes) {
  const OneAnswer slow(kPart, /*ends=*/false);
  EXPECT_EQ(Ask(slow.request(), {.is_cancelled = [] { return true; }}).status().code(),
            StatusCode::kCancelled);
}

TEST(HttpClient, TellsACutBodyFromAWholeOne) {
  const OneAnswer cut(kPart, /*ends=*/true);
  EXPECT_EQ(Ask(cut.request()).status().code(), StatusCode::kUnavailable);
  const OneAnswer whole("HTTP/1.1 404 No\r\nContent-Length: 2\r\nX-Name:  v \r\n\r\nno", true);
  const auto answer = Ask(whole.request());
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "no");
  EXPECT_EQ(answer->Header("x-name"), "v");
}

TEST(HttpClient, FollowsNoRedirection) {
  const OneAnswer elsewhere(
      "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", true);
  const auto answer = Ask(elsewhere.request());
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 307);
}

}  // namespace
}  // namespace inflight::object_store
