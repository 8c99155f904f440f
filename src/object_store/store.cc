// SPDX-License-Identifier: Apache-2.0
#include "object_store/store.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace inflight::object_store {
namespace {

constexpr size_t kMaxObjects = 1'000'000;
constexpr int kMaxDelayMs = 10'000;
constexpr int kMaxRetryAfterMs = 60'000;
constexpr size_t kMaxMessageBytes = 300;

// Credentials that were good once: S3 says it by these names, the others by status 401.
bool IsAboutExpiry(int status, const std::string& code) {
  constexpr std::array kCodes = {"ExpiredToken",         "ExpiredTokenException",
                                 "TokenRefreshRequired", "InvalidToken",
                                 "RequestExpired",       "InvalidAuthenticationInfo"};
  return status == 401 || std::ranges::find(kCodes, code) != kCodes.end();
}

bool MayPass(int status, const std::string& code) {
  return status == 408 || status == 429 || status >= 500 || code == "RequestTimeout" ||
         code == "SlowDown";
}

StatusCode CodeOf(int status) {
  switch (status) {
    case 401:
      return StatusCode::kUnauthenticated;
    case 403:
      return StatusCode::kPermissionDenied;
    case 404:
      return StatusCode::kNotFound;
    case 412:
      return StatusCode::kAborted;
    default:
      return status >= 500 || status == 429 || status == 408 ? StatusCode::kUnavailable
                                                             : StatusCode::kFailedPrecondition;
  }
}

// Without what a terminal or a log obeys.
std::string Readable(std::string text) {
  text = text.substr(0, kMaxMessageBytes);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

Result<std::shared_ptr<Store>> Store::Open(const Address& address, Options options) {
  std::unique_ptr<Service> service;
  if (address.kind == Kind::kAs) {
    ASSIGN_OR_RETURN(service, MakeAs(address, options.environment));
  } else {
    service = address.kind == Kind::kS3 ? MakeS3(address, options.environment)
                                        : MakeGs(address, options.environment);
  }
  const std::shared_ptr<Store> store(new Store(address, std::move(options), std::move(service)));
  ASSIGN_OR_RETURN(store->credentials_client_, store->MakeClient());
  return store;
}

Result<std::unique_ptr<HttpClient>> Store::MakeClient() const {
  std::string ca_file;
  if (address_.kind == Kind::kS3) ca_file = options_.environment("AWS_CA_BUNDLE");
  if (ca_file.empty()) ca_file = options_.environment("SSL_CERT_FILE");
  return HttpClient::Make({.slow_s = options_.slow_s,
                           .ca_file = std::move(ca_file),
                           .is_cancelled = options_.is_cancelled});
}

Result<HttpResponse> Store::SendOnce(HttpClient& client, HttpRequest request, const BodySink& sink,
                                     Attempts& attempts) {
  {
    const std::lock_guard lock(mutex_);
    attempts.used_mind = mind_;
    const auto send = [this](const HttpRequest& asked, const SendOptions& how) {
      return credentials_client_->Send(asked, how);
    };
    RETURN_IF_ERROR(service_->Authorize(send, request));
  }
  return client.Send(request, {}, sink);
}

// Slices, so that whoever ends the program need not wait.
Status Store::Wait(int failed, const std::string& retry_after) const {
  int64_t delay_ms = int64_t{options_.first_delay_ms} << std::min(failed - 1, 16);
  delay_ms = std::min<int64_t>(delay_ms, kMaxDelayMs);
  if (!retry_after.empty())
    delay_ms = std::clamp<int64_t>(int64_t{std::atoi(retry_after.c_str())} * 1000, delay_ms,
                                   kMaxRetryAfterMs);
  constexpr int64_t kSliceMs = 100;
  for (; delay_ms > 0; delay_ms -= kSliceMs) {
    if (options_.is_cancelled && options_.is_cancelled()) return Cancelled("given up");
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(delay_ms, kSliceMs)));
  }
  return Status::Ok();
}

Status Store::Refused(const HttpResponse& response) const {
  const StoreError error = service_->ErrorOf(response);
  std::string text = Readable(error.code);
  if (!error.message.empty()) text += (text.empty() ? "" : ": ") + Readable(error.message);
  if (!text.empty()) text += " ";
  return {CodeOf(response.status), text + "(HTTP " + std::to_string(response.status) + ")"};
}

bool Store::IsWorthAChange(const HttpResponse& response, const std::string& code,
                           Attempts& attempts) {
  constexpr int kMaxChanges = 2;  // a region, and credentials
  const std::lock_guard lock(mutex_);
  if (attempts.num_changes == kMaxChanges) return false;
  const bool is_expired = IsAboutExpiry(response.status, code);
  const bool has_changed = attempts.used_mind != mind_;
  if (!has_changed && !service_->Adapt(response)) {
    if (!is_expired) return false;
    service_->ForgetCredentials();
  }
  if (has_changed && !is_expired && response.status != 400 && response.status != 301) return false;
  if (!has_changed) ++mind_;
  ++attempts.num_changes;
  return true;
}

Status Store::AfterFailure(const Result<HttpResponse>& response, Attempts& attempts) {
  Status failure;
  std::string retry_after;
  if (response.ok()) {
    failure = Refused(*response);
    const std::string code = service_->ErrorOf(*response).code;
    if (IsWorthAChange(*response, code, attempts)) return Status::Ok();
    if (!MayPass(response->status, code)) return failure;
    retry_after = response->Header("retry-after");
  } else {
    failure = response.status();
    const bool may_pass = failure.code() == StatusCode::kUnavailable ||
                          failure.code() == StatusCode::kDeadlineExceeded;
    if (!may_pass) return failure;
  }
  if (++attempts.failed >= options_.max_attempts)
    return {StatusCode::kUnavailable, failure.message() + "; " + std::to_string(attempts.failed) +
                                          " attempts in a row failed"};
  logging::Verbose(
      "a request to an object store is made once more",
      {{"address", address_.text}, {"reason", failure.message()}, {"failed", attempts.failed}});
  return Wait(attempts.failed, retry_after);
}

Result<HttpResponse> Store::Ask(HttpClient& client, const HttpRequest& request) {
  Attempts attempts;
  while (true) {
    auto response = SendOnce(client, request, {}, attempts);
    if (response.ok() && response->status == 200) return response;
    RETURN_IF_ERROR(AfterFailure(response, attempts));
  }
}

Result<Listing> Store::List(HttpClient& client, const std::string& folder, bool is_recursive) {
  Listing listing;
  std::string page;
  do {
    const HttpRequest request =
        service_->ListRequest(Join(address_.prefix, folder), is_recursive, page);
    const auto response = Ask(client, request);
    if (!response.ok()) return response.status();
    const std::string last = page;
    auto next = service_->ReadPage(response->body, listing);
    if (!next.ok()) return next.status();
    page = *std::move(next);
    if (!page.empty() && page == last) return Internal("lists the same page again");
    if (listing.objects.size() > kMaxObjects)
      return InvalidArgument("more than a million objects; name a folder in it");
  } while (!page.empty());
  return listing;
}

Result<bool> Store::Read(HttpClient& client, const Object& object, Range range,
                         const BodySink& sink) {
  Attempts attempts;
  bool has_digest = true;
  uint64_t at = range.begin;
  const bool is_whole = range.begin == 0 && range.end == object.size;
  while (at < range.end) {
    const uint64_t begin = at;
    HttpRequest request = service_->ReadRequest(object);
    const bool is_range = !is_whole || at > 0;
    if (is_range)
      request.headers.emplace_back(service_->RangeHeader(), "bytes=" + std::to_string(at) + "-" +
                                                                std::to_string(range.end - 1));
    const auto take = [&](std::string_view bytes) -> Status {
      if (bytes.size() > range.end - at) return Internal("more bytes come than were asked for");
      at += bytes.size();
      return sink(bytes);
    };
    auto response = SendOnce(client, std::move(request), take, attempts);
    if (at > begin) attempts.failed = 0;
    if (response.ok() && (response->status == 200 || response->status == 206)) {
      if (is_range && response->status != 206)
        return Internal("'" + object.key + "': the store gives no ranges of bytes");
      has_digest = service_->HasDigest(*response);
      if (at == range.end) break;
      response = Unavailable("the transfer of '" + object.key + "' broke off at byte " +
                             std::to_string(at) + " of " + std::to_string(object.size));
    }
    const Status after = AfterFailure(response, attempts);
    RETURN_IF_ERROR(after.WithPrefix("'" + object.key + "'"));
  }
  return has_digest;
}

uint64_t Store::PartBytes(HttpClient& client, const Object& object) {
  const auto request = service_->PartRequest(object);
  if (!request) return 0;
  Attempts attempts;
  while (true) {
    const auto response = SendOnce(client, *request, {}, attempts);
    if (response.ok() && (response->status == 200 || response->status == 206)) {
      const std::string length = response->Header("content-length");
      uint64_t bytes = 0;
      std::from_chars(length.data(), length.data() + length.size(), bytes);
      return bytes;
    }
    if (!AfterFailure(response, attempts).ok()) return 0;
  }
}

}  // namespace inflight::object_store
