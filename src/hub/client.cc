// SPDX-License-Identifier: Apache-2.0
#include "hub/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/letter_case.h"
#include "base/percent_encoding.h"
#include "base/status_macros.h"
#include "inflight/version.h"

namespace inflight::hub {
namespace {

using artifact::HubId;
using object_store::HttpRequest;
using object_store::HttpResponse;

constexpr char kDefaultEndpoint[] = "https://huggingface.co";
constexpr int kMaxRedirections = 8;
constexpr int kMaxDelayMs = 10'000;
constexpr uint64_t kMaxTokenBytes = 4096;

bool IsOn(const std::string& value) {
  const std::string word = AsciiLower(value);
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

std::string Trimmed(std::string text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  return text;
}

std::string FindToken(const artifact::Environment& environment) {
  if (std::string token = Trimmed(environment("HF_TOKEN")); !token.empty()) return token;
  std::filesystem::path file = environment("HF_TOKEN_PATH");
  if (file.empty())
    file = artifact::FindHubCache([&](const char* name) {
             const bool names_cache = std::string_view(name).ends_with("HUB_CACHE");
             return names_cache ? std::string() : environment(name);
           }).dir.parent_path() /
           "token";
  const auto text = ReadFile(file, kMaxTokenBytes);
  return text.ok() ? Trimmed(*text) : std::string();
}

bool HasHeaderChars(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

bool IsRedirection(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Where `location` leads from `url`; kInvalidArgument where it leaves HTTP, or HTTPS for HTTP.
Result<std::string> Follow(const std::string& url, const std::string& location) {
  const HttpRequest from = object_store::RequestTo(url);
  if (location.starts_with("/") && !location.starts_with("//")) return from.origin + location;
  const bool is_safe = location.starts_with("https://");
  const bool is_plain = location.starts_with("http://") && from.origin.starts_with("http://");
  if (is_safe || is_plain) return location;
  return InvalidArgument("the hub sends us where we do not go: '" + location.substr(0, 100) + "'");
}

Status Failure(const HubId& id, const HttpResponse& response, bool has_token) {
  const std::string why = response.Header("x-error-message");
  const std::string told = why.empty() ? "" : " (" + why.substr(0, 200) + ")";
  const std::string name = id.repo() + (id.has_revision ? "@" + id.revision : "");
  switch (response.status) {
    case 401:
      return Status(StatusCode::kUnauthenticated,
                    fmt::format("{}: no such model, or one that asks who you are{}; {}", name, told,
                                has_token ? "the token was not taken"
                                          : "a token of yours goes into HF_TOKEN"));
    case 403:
      return Status(
          StatusCode::kPermissionDenied,
          fmt::format(
              "{}: the hub refuses it{}; a gated model has to be asked for on its page, and "
              "HF_TOKEN has to be that account's",
              name, told));
    case 404:
      return NotFound(fmt::format("{}: the hub has no such model, revision or file{}", name, told));
    default:
      break;
  }
  const std::string message = fmt::format("{}: the hub answers {}{}", name, response.status, told);
  const bool may_pass = response.status == 408 || response.status == 429 || response.status >= 500;
  return may_pass ? Unavailable(message) : FailedPrecondition(message);
}

bool MayPass(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "W/\"abc\"" is abc.
std::string EtagOf(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  std::erase(text, '"');
  return text;
}

}  // namespace

struct HubClient::Asked {
  const HubId& id;
  std::string url;
  std::string method = "GET";
  std::function<uint64_t()> begin = {};  // of a range; null: all of it
  bool follows = true;
  object_store::BodySink sink = {};
  object_store::SendOptions options = {};
  std::function<uint64_t()> received = {};  // bytes so far, which count as progress
};

HubClient::HubClient(std::unique_ptr<object_store::HttpClient> http, const HubOptions& options)
    : http_(std::move(http)), options_(options) {}

Result<std::unique_ptr<HubClient>> HubClient::Make(const HubOptions& options) {
  if (IsOn(options.environment("HF_HUB_OFFLINE")))
    return FailedPrecondition("HF_HUB_OFFLINE is set: nothing is asked of a hub");
  ASSIGN_OR_RETURN(auto http,
                   object_store::HttpClient::Make({.slow_s = options.slow_s,
                                                   .ca_file = options.environment("SSL_CERT_FILE"),
                                                   .is_cancelled = {}}));
  std::unique_ptr<HubClient> client(new HubClient(std::move(http), options));
  client->endpoint_ = Trimmed(options.environment("HF_ENDPOINT"));
  if (client->endpoint_.empty()) client->endpoint_ = kDefaultEndpoint;
  while (client->endpoint_.ends_with('/')) client->endpoint_.pop_back();
  const std::string& endpoint = client->endpoint_;
  if ((!endpoint.starts_with("https://") && !endpoint.starts_with("http://")) ||
      !HasHeaderChars(endpoint))
    return InvalidArgument("HF_ENDPOINT: got '" + endpoint + "', an address such as " +
                           kDefaultEndpoint + " is needed");
  client->token_ = FindToken(options.environment);
  if (!HasHeaderChars(client->token_))
    return InvalidArgument("HF_TOKEN: has characters that no token has");
  return client;
}

std::string HubClient::UrlOf(const HubId& id, const std::string& commit,
                             const HubFile& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, id.repo(), commit,
                     PercentEncode(file.path, "/"));
}

Result<HttpResponse> HubClient::GetOnce(const Asked& asked) {
  std::string url = asked.url;
  const std::string home = object_store::RequestTo(endpoint_).origin;
  for (int hops = 0;; ++hops) {
    HttpRequest request = object_store::RequestTo(url);
    request.method = asked.method;
    request.headers = {{"user-agent", std::string("inflight/") + kVersion}};
    if (!token_.empty() && request.origin == home)
      request.headers.emplace_back("authorization", "Bearer " + token_);
    const uint64_t begin = asked.begin ? asked.begin() : 0;
    if (begin > 0) request.headers.emplace_back("range", fmt::format("bytes={}-", begin));
    ASSIGN_OR_RETURN(HttpResponse response, http_->Send(request, asked.options, asked.sink));
    if (!IsRedirection(response.status) || !asked.follows) return response;
    if (hops == kMaxRedirections)
      return FailedPrecondition("the hub sends us on more than 8 times");
    ASSIGN_OR_RETURN(url, Follow(url, response.Header("location")));
  }
}

Result<HttpResponse> HubClient::Get(const Asked& asked) {
  int delay_ms = options_.first_delay_ms;
  for (int attempt = 1;; ++attempt) {
    const uint64_t before = asked.received ? asked.received() : 0;
    auto response = GetOnce(asked);
    Status status = response.status();
    const bool is_told = response.ok() && (response->status == 200 || response->status == 206 ||
                                           response->status == 416 || !asked.follows);
    if (is_told && response->status < 400) return response;
    if (response.ok() && response->status == 416) return response;
    if (response.ok()) status = Failure(asked.id, *response, !token_.empty());
    if (!MayPass(status)) return status;
    if (asked.received && asked.received() > before) {
      attempt = 0;
      delay_ms = options_.first_delay_ms;
    }
    if (attempt >= options_.max_attempts) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    delay_ms = std::min(2 * delay_ms, kMaxDelayMs);
  }
}

Result<HubListing> HubClient::List(const HubId& id) {
  const Asked asked = {.id = id,
                       .url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint_,
                                          id.repo(), PercentEncode(id.revision))};
  ASSIGN_OR_RETURN(const HttpResponse response, Get(asked));
  auto listing = ParseListing(response.body);
  if (!listing.ok()) return listing.status().WithPrefix(id.repo());
  return listing;
}

Status HubClient::Describe(const HubId& id, const std::string& commit, HubFile& file) {
  if (!file.digest.empty()) return Status::Ok();
  const Asked asked = {
      .id = id, .url = UrlOf(id, commit, file), .method = "HEAD", .follows = false};
  ASSIGN_OR_RETURN(const HttpResponse response, Get(asked));
  std::string etag = EtagOf(response.Header("x-linked-etag"));
  if (etag.empty()) etag = EtagOf(response.Header("etag"));
  std::string size = response.Header("x-linked-size");
  if (size.empty() && !IsRedirection(response.status)) size = response.Header("content-length");
  const auto bytes = NumberOf(size);
  if (!IsDigest(etag) || !bytes)
    return FailedPrecondition(
        fmt::format("{}: the hub tells neither digest nor size of {}", id.repo(), file.path));
  file.digest = etag;
  file.size = *bytes;
  return Status::Ok();
}

Status HubClient::Read(const HubId& id, const std::string& commit, const HubFile& file,
                       uint64_t begin, const Receiver& receiver) {
  uint64_t at = begin;
  uint64_t received = 0;
  Asked asked = {.id = id, .url = UrlOf(id, commit, file)};
  asked.begin = [&] { return at; };
  asked.received = [&] { return received; };
  asked.options.begins_body = [&](const HttpResponse& response) -> Status {
    const std::string wanted = fmt::format("bytes {}-", at);
    if (at == 0 || (response.status == 206 && response.Header("content-range").starts_with(wanted)))
      return Status::Ok();
    if (response.status == 206) return DataLoss(file.path + ": the hub sends another range");
    at = 0;
    return receiver.restart();
  };
  asked.sink = [&](std::string_view bytes) -> Status {
    if (bytes.size() > file.size - at)
      return DataLoss(file.path + ": the hub sends more than it said");
    RETURN_IF_ERROR(receiver.take(bytes));
    at += bytes.size();
    received += bytes.size();
    return Status::Ok();
  };
  while (at < file.size) {
    const uint64_t before = received;
    ASSIGN_OR_RETURN(const HttpResponse response, Get(asked));
    if (response.status == 416 || received == before)
      return DataLoss(file.path + ": the hub sends less than it said");
  }
  return Status::Ok();
}

}  // namespace inflight::hub
