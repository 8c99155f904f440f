// SPDX-License-Identifier: Apache-2.0
#include "object_store/http_client.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/letter_case.h"
#include "base/status_macros.h"
#include "object_store/curl_library.h"

namespace inflight::object_store {
namespace {

constexpr size_t kMaxHeaderBytes = size_t{256} << 10;

const CurlCalls& Curl() { return **LoadCurl(); }  // loaded by Make

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

class HeaderList {
 public:
  explicit HeaderList(const Pairs& headers) {
    for (const auto& [name, value] : headers) Append(std::string(name).append(": ").append(value));
    Append("Expect:");  // libcurl's own, which costs a turn
  }
  ~HeaderList() { Curl().slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;

  curl_slist* get() const { return list_; }

 private:
  void Append(const std::string& line) { list_ = Curl().slist_append(list_, line.c_str()); }

  curl_slist* list_ = nullptr;
};

int Progress(void* limits, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& is_cancelled = static_cast<const HttpLimits*>(limits)->is_cancelled;
  return is_cancelled && is_cancelled() ? 1 : 0;
}

}  // namespace

struct HttpClient::Transfer {
  void* handle;
  const BodySink& sink;
  const SendOptions& options;
  HttpResponse response;
  size_t header_bytes = 0;
  Status failure;  // of the sink, or of a body that is too long
};

size_t HttpClient::TakeHeader(char* data, size_t size, size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  const std::string_view line(data, size * count);
  self.header_bytes += line.size();
  if (self.header_bytes > kMaxHeaderBytes) {
    self.failure = Internal("the answer has more than 256 KB of headers");
    return 0;
  }
  if (line.starts_with("HTTP/")) self.response.headers.clear();  // after one of status 1xx
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    self.response.headers[AsciiLower(line.substr(0, colon))] =
        std::string(WithoutBlanks(line.substr(colon + 1)));
  }
  return line.size();
}

size_t HttpClient::TakeBody(char* data, size_t size, size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  const std::string_view part(data, size * count);
  long status = 0;  // NOLINT: libcurl's type
  Curl().easy_getinfo(static_cast<CURL*>(self.handle), CURLINFO_RESPONSE_CODE, &status);
  if (self.sink && (status == 200 || status == 206)) {
    const bool is_first = self.response.status == 0;
    self.response.status = static_cast<int>(status);
    if (is_first && self.options.begins_body)
      self.failure = self.options.begins_body(self.response);
    if (self.failure.ok()) self.failure = self.sink(part);
  } else if (self.response.body.size() + part.size() > kMaxBodyBytes) {
    self.failure = Internal("the answer has more than 32 MB");
  } else {
    self.response.body += part;
  }
  return self.failure.ok() ? part.size() : 0;
}

Result<std::unique_ptr<HttpClient>> HttpClient::Make(HttpLimits limits) {
  RETURN_IF_ERROR(LoadCurl().status());
  void* const handle = Curl().easy_init();
  if (handle == nullptr) return OutOfMemory("libcurl has no memory for a connection");
  return std::unique_ptr<HttpClient>(new HttpClient(handle, std::move(limits)));
}

HttpClient::~HttpClient() { Curl().easy_cleanup(static_cast<CURL*>(handle_)); }

void HttpClient::SetOptions(const SendOptions& options) {
  auto* const handle = static_cast<CURL*>(handle_);
  const auto set = [handle](CURLoption option, auto value) {
    Curl().easy_setopt(handle, option, value);
  };
  Curl().easy_reset(handle);  // connections stay
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));  // NOLINT: its type
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout_ms));  // NOLINT
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.timeout_ms));                 // NOLINT
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kSlowBytesPerS));                // NOLINT
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(limits_.slow_s));                 // NOLINT
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Progress);
  set(CURLOPT_XFERINFODATA, const_cast<HttpLimits*>(&limits_));
  if (options.is_of_this_machine) set(CURLOPT_NOPROXY, "*");
  if (!limits_.ca_file.empty()) set(CURLOPT_CAINFO, limits_.ca_file.c_str());
}

Result<HttpResponse> HttpClient::Send(const HttpRequest& request, const SendOptions& options,
                                      const BodySink& sink) {
  auto* const handle = static_cast<CURL*>(handle_);
  const auto set = [handle](CURLoption option, auto value) {
    Curl().easy_setopt(handle, option, value);
  };
  SetOptions(options);
  const HeaderList headers(request.headers);
  Transfer transfer{.handle = handle_,
                    .sink = sink,
                    .options = options,
                    .response = {},
                    .header_bytes = 0,
                    .failure = {}};
  set(CURLOPT_URL, UrlOf(request).c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_HEADERFUNCTION, &TakeHeader);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &TakeBody);
  set(CURLOPT_WRITEDATA, &transfer);
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    set(CURLOPT_POSTFIELDS, request.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  const CURLcode code = Curl().easy_perform(handle);
  if (!transfer.failure.ok()) return transfer.failure;
  if (code == CURLE_ABORTED_BY_CALLBACK) return Cancelled("the transfer was given up");
  if (code != CURLE_OK) {
    const std::string why = std::string(HostOf(request.origin)) + ": " + Curl().easy_strerror(code);
    const bool is_certificate = code == CURLE_PEER_FAILED_VERIFICATION ||
                                code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR;
    if (is_certificate) return FailedPrecondition(why);  // no other try makes it better
    if (code == CURLE_OPERATION_TIMEDOUT) return DeadlineExceeded(why);
    return Unavailable(why);
  }
  long status = 0;  // NOLINT: libcurl's type
  Curl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.response.status = static_cast<int>(status);
  return std::move(transfer.response);
}

}  // namespace inflight::object_store
