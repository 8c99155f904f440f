// SPDX-License-Identifier: Apache-2.0
#include "protocol/otlp/http_post.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <string_view>
#include <utility>  // before Boost 1.74 under C++20

namespace inflight::otlp {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

// The steps of one exchange; each goes on with the next one, and an error ends them all.
class Exchange {
 public:
  Exchange(const Url& url, std::string body, std::chrono::milliseconds timeout)
      : url_(url), timeout_(timeout) {
    request_.method(http::verb::post);
    request_.target(url.path);
    request_.set(http::field::host, url.host + ":" + url.port);
    request_.set(http::field::content_type, "application/json");
    request_.body() = std::move(body);
    request_.prepare_payload();
  }

  Status Run() {
    resolver_.async_resolve(url_.host, url_.port, [this](ErrorCode ec, const auto& endpoints) {
      if (ec) return End(ec);
      stream_.expires_after(timeout_);
      stream_.async_connect(endpoints, [this](ErrorCode connect_ec, const auto&) {
        connect_ec ? End(connect_ec) : Write();
      });
    });
    io_.run();
    return status_;
  }

 private:
  void Write() {
    http::async_write(stream_, request_, [this](ErrorCode ec, size_t) { ec ? End(ec) : Read(); });
  }

  void Read() {
    http::async_read(stream_, buffer_, response_, [this](ErrorCode ec, size_t) {
      if (ec) return End(ec);
      const auto code = response_.result_int();
      if (code < 200 || code > 299) status_ = Unavailable("status " + std::to_string(code));
    });
  }

  void End(ErrorCode ec) { status_ = Unavailable(ec.message()); }

  const Url url_;
  const std::chrono::milliseconds timeout_;
  asio::io_context io_{1};
  asio::ip::tcp::resolver resolver_{io_};
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_{size_t{1} << 20};
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
  Status status_;
};

}  // namespace

Result<Url> ParseUrl(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) {
    return InvalidArgument("'" + text + "' is no url of the form http://host:port/path");
  }
  const size_t begin = kScheme.size();
  const size_t slash = std::min(text.find('/', begin), text.size());
  const std::string authority = text.substr(begin, slash - begin);
  Url url{.host = authority, .port = "80", .path = text.substr(slash)};
  const size_t colon = authority.rfind(':');
  const bool is_ipv6 = authority.starts_with('[');
  if (colon != std::string::npos && (!is_ipv6 || colon > authority.rfind(']'))) {
    url.host = authority.substr(0, colon);
    url.port = authority.substr(colon + 1);
  }
  if (is_ipv6 && url.host.ends_with(']')) url.host = url.host.substr(1, url.host.size() - 2);
  if (url.path.empty()) url.path = "/";
  const bool has_digits =
      !url.port.empty() && url.port.find_first_not_of("0123456789") == std::string::npos;
  if (!url.host.empty() && has_digits) return url;
  return InvalidArgument("'" + text + "' is no url of the form http://host:port/path");
}

Status PostJson(const Url& url, std::string body, std::chrono::milliseconds timeout) {
  return Exchange(url, std::move(body), timeout).Run();
}

}  // namespace inflight::otlp
