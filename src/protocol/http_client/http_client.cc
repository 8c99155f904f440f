// SPDX-License-Identifier: Apache-2.0
#include "protocol/http_client/http_client.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>  // before Boost 1.74 under C++20

namespace inflight::http_client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using Tcp = asio::ip::tcp;

// With the authorities that this machine trusts, which are read once.
asio::ssl::context& TlsContext() {
  static asio::ssl::context context = [] {
    asio::ssl::context made(asio::ssl::context::tls_client);
    ErrorCode ignored;  // without authorities no certificate is trusted
    made.set_default_verify_paths(ignored);
    made.set_verify_mode(asio::ssl::verify_peer);
    return made;
  }();
  return context;
}

// The steps of one request; each goes on with the next one, and an error ends them all. It lives as
// long as one of them is under way.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& io, Request request, Handler handler)
      : request_(std::move(request)),
        handler_(std::move(handler)),
        deadline_(io),
        resolver_(io),
        stream_(io, TlsContext()) {
    message_.method_string(request_.method);
    message_.target(request_.url.path);
    message_.version(11);
    const Url& url = request_.url;
    const bool is_v6 = url.host.find(':') != std::string::npos;
    message_.set(http::field::host, (is_v6 ? '[' + url.host + ']' : url.host) + ':' + url.port);
    message_.set(http::field::connection, "close");
    for (const auto& [name, value] : request_.headers) message_.set(name, value);
    answer_.skip(request_.method == "HEAD");
    message_.body() = std::move(request_.body);
    message_.prepare_payload();
  }

  void Start() {
    deadline_.expires_after(request_.timeout);
    deadline_.async_wait([self = shared_from_this()](ErrorCode ec) {
      if (!ec) self->End(Unavailable("no answer in time"));
    });
    resolver_.async_resolve(request_.url.host, request_.url.port,
                            [self = shared_from_this()](ErrorCode ec, const auto& found) {
                              ec ? self->Fail(ec) : self->Connect(found);
                            });
  }

 private:
  void Connect(const Tcp::resolver::results_type& found) {
    for (const auto& entry : found) {
      const Tcp::endpoint endpoint = entry.endpoint();
      if (!request_.may_reach || request_.may_reach(endpoint.address()))
        endpoints_.push_back(endpoint);
    }
    if (endpoints_.empty()) {
      return End(Status(StatusCode::kPermissionDenied,
                        "'" + request_.url.host + "' has no address that may be called"));
    }
    beast::get_lowest_layer(stream_).async_connect(
        endpoints_, [self = shared_from_this()](ErrorCode ec, const Tcp::endpoint&) {
          if (ec) return self->Fail(ec);
          self->request_.url.is_tls ? self->Shake() : self->Write(self->stream_.next_layer());
        });
  }

  void Shake() {
    const std::string& host = request_.url.host;
    ErrorCode not_a_name;
    asio::ip::make_address(host, not_a_name);
    if (not_a_name) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(host));
    stream_.async_handshake(asio::ssl::stream_base::client,
                            [self = shared_from_this()](ErrorCode ec) {
                              ec ? self->Fail(ec) : self->Write(self->stream_);
                            });
  }

  template <typename Stream>
  void Write(Stream& stream) {
    http::async_write(stream, message_, [self = shared_from_this(), &stream](ErrorCode ec, size_t) {
      ec ? self->Fail(ec) : self->Read(stream);
    });
  }

  template <typename Stream>
  void Read(Stream& stream) {
    // A body that is not read has no limit: its length in the head would be held against it.
    answer_.body_limit(request_.max_answer_bytes > 0 ? request_.max_answer_bytes
                                                     : std::numeric_limits<uint64_t>::max());
    http::async_read_header(stream, buffer_, answer_,
                            [self = shared_from_this(), &stream](ErrorCode ec, size_t) {
                              if (ec) return self->Fail(ec);
                              const auto& head = self->answer_.get();
                              self->got_.status = static_cast<int>(head.result_int());
                              for (const auto& field : head)
                                self->got_.headers.emplace_back(field.name_string(), field.value());
                              if (self->request_.on_head) self->request_.on_head(self->got_);
                              if (self->request_.max_answer_bytes == 0)
                                return self->End(std::move(self->got_));
                              self->ReadBody(stream);
                            });
  }

  template <typename Stream>
  void ReadBody(Stream& stream) {
    std::string& body = answer_.get().body();
    const std::string_view fresh = std::string_view(body).substr(num_told_);
    if (!fresh.empty() && request_.on_bytes) request_.on_bytes(fresh);
    num_told_ = body.size();
    if (answer_.is_done()) {
      got_.body = std::move(body);
      return End(std::move(got_));
    }
    http::async_read_some(stream, buffer_, answer_,
                          [self = shared_from_this(), &stream](ErrorCode ec, size_t) {
                            ec ? self->Fail(ec) : self->ReadBody(stream);
                          });
  }

  void Fail(ErrorCode ec) { End(Unavailable(ec.message())); }

  void End(Result<Answer> answer) {
    if (!handler_) return;
    const Handler handler = std::exchange(handler_, nullptr);
    deadline_.cancel();
    resolver_.cancel();
    beast::get_lowest_layer(stream_).close();
    handler(std::move(answer));
  }

  Request request_;
  Handler handler_;
  asio::steady_timer deadline_;
  Tcp::resolver resolver_;
  beast::ssl_stream<beast::tcp_stream> stream_;  // its lower layer alone where there is no TLS
  std::vector<Tcp::endpoint> endpoints_;
  beast::flat_buffer buffer_{size_t{64} << 10};
  http::request<http::string_body> message_;
  http::response_parser<http::string_body> answer_;
  size_t num_told_ = 0;  // bytes of its body, to on_bytes
  Answer got_;
};

}  // namespace

Result<Url> ParseUrl(const std::string& text) {
  const Status misfit =
      InvalidArgument("'" + text + "' is no url of the form http[s]://host:port/path");
  Url url{.is_tls = text.starts_with("https://")};
  if (!url.is_tls && !text.starts_with("http://")) return misfit;
  const size_t begin = text.find("//") + 2;
  const size_t end = std::min(text.find_first_of("/?#", begin), text.size());
  const std::string authority = text.substr(begin, end - begin);
  url.path = text.substr(end, text.find('#', end) - end);
  if (!url.path.starts_with('/')) url.path.insert(0, 1, '/');
  url.host = authority;
  url.port = url.is_tls ? "443" : "80";
  const size_t colon = authority.rfind(':');
  const bool is_ipv6 = authority.starts_with('[');
  if (colon != std::string::npos && (!is_ipv6 || colon > authority.rfind(']'))) {
    url.host = authority.substr(0, colon);
    url.port = authority.substr(colon + 1);
  }
  if (is_ipv6 && url.host.ends_with(']')) url.host = url.host.substr(1, url.host.size() - 2);
  const bool has_digits = !url.port.empty() && url.port.size() <= 5 &&
                          url.port.find_first_not_of("0123456789") == std::string::npos;
  const auto is_unfit = [](char c) { return c <= ' ' || c == '\x7F' || c == '@' || c == '\\'; };
  if (url.host.empty() || !has_digits || std::stoi(url.port) > 65535 ||
      std::any_of(url.host.begin(), url.host.end(), is_unfit) ||
      std::any_of(url.path.begin(), url.path.end(), [](char c) { return c <= ' ' && c >= 0; }))
    return misfit;
  return url;
}

void Send(asio::io_context& io, Request request, Handler handler) {
  std::make_shared<Exchange>(io, std::move(request), std::move(handler))->Start();
}

Result<Answer> Ask(Request request) {
  asio::io_context io{1};
  Result<Answer> answer = Unavailable("not sent");
  Send(io, std::move(request), [&](Result<Answer> got) { answer = std::move(got); });
  io.run();
  return answer;
}

Status PostJson(Request request) {
  request.headers.emplace_back("Content-Type", "application/json");
  const auto answer = Ask(std::move(request));
  if (!answer.ok()) return answer.status();
  return answer->status >= 200 && answer->status <= 299
             ? Status::Ok()
             : Unavailable("status " + std::to_string(answer->status));
}

}  // namespace inflight::http_client
